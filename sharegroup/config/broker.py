"""BrokerConfig: defaults and limits of all share groups, and when their state is snapshotted.

Hard bounds are those of Kafka 4.3's ShareGroupConfig, GroupCoordinatorConfig and ShareCoordinatorConfig (spec 002,
"Configuration reference"), with one exception: `group.share.max.partition.max.record.locks` goes up to 10,000,000
instead of 10,000, because state costs per run of records here, not per record. The `errors.deadletterqueue` key is of
Kafka 4.4 (KIP-1191).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from sharegroup.config.model import Bool, Config, Int, invalid_relation, order_text


class LimitedSetting(NamedTuple):
    """A setting with a default for all groups, which one group may change between two limits.

    Attributes:
        group_key: the group's own key.
        default_key: the broker's key of the value for groups that do not set theirs.
        min_key: the broker's key of the lowest value that a group may set.
        max_key: the broker's key of the highest value that a group may set.
    """

    group_key: str
    default_key: str
    min_key: str
    max_key: str


LIMITED_SETTINGS = tuple(
    LimitedSetting(f"share.{stem}", f"group.share.{stem}", f"group.share.min.{stem}", f"group.share.max.{stem}")
    for stem in (
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
        "assignment.interval.ms",
    )
)
"""In the order in which Kafka checks them."""

_STATE_TABLE = "Group state is kept in the Delta state table, not in a topic."
_COMMIT = "State is written by the commits of the processor, not by a coordinator of its own."


class BrokerConfig(Config):
    """What one processor grants to all of its groups.

    Each default lies within its limits, a heartbeat interval is shorter than its session timeout, and a group of
    the largest size can open a session for each member.
    """

    refused: ClassVar[Mapping[str, str]] = {
        "group.share.persister.class.name": _STATE_TABLE,
        "share.coordinator.append.linger.ms": _COMMIT,
        "share.coordinator.cached.buffer.max.bytes": _COMMIT,
        "share.coordinator.load.buffer.size": _STATE_TABLE,
        "share.coordinator.state.topic.compression.codec": _STATE_TABLE,
        "share.coordinator.state.topic.min.isr": _STATE_TABLE,
        "share.coordinator.state.topic.num.partitions": _STATE_TABLE,
        "share.coordinator.state.topic.prune.interval.ms": _STATE_TABLE,
        "share.coordinator.state.topic.replication.factor": _STATE_TABLE,
        "share.coordinator.state.topic.segment.bytes": _STATE_TABLE,
        "share.coordinator.threads": _COMMIT,
        "share.coordinator.write.timeout.ms": _COMMIT,
        "share.fetch.purgatory.purge.interval.requests": "Parked fetches are part of a group's state.",
    }

    group_share_heartbeat_interval_ms: Annotated[Int, Field(ge=1)] = Field(
        default=5_000, description="Time between two heartbeats of a member, in ms."
    )
    group_share_min_heartbeat_interval_ms: Annotated[Int, Field(ge=1)] = Field(
        default=5_000, description="Lowest heartbeat interval that a group may set, in ms."
    )
    group_share_max_heartbeat_interval_ms: Annotated[Int, Field(ge=1)] = Field(
        default=15_000, description="Highest heartbeat interval that a group may set, in ms."
    )
    group_share_session_timeout_ms: Annotated[Int, Field(ge=1)] = Field(
        default=45_000, description="Time without a heartbeat after which a member is removed, in ms."
    )
    group_share_min_session_timeout_ms: Annotated[Int, Field(ge=1)] = Field(
        default=45_000, description="Lowest session timeout that a group may set, in ms."
    )
    group_share_max_session_timeout_ms: Annotated[Int, Field(ge=1)] = Field(
        default=60_000, description="Highest session timeout that a group may set, in ms."
    )
    group_share_record_lock_duration_ms: Annotated[Int, Field(ge=1_000, le=3_600_000)] = Field(
        default=30_000, description="Time for which an acquired record stays locked to its member, in ms."
    )
    group_share_min_record_lock_duration_ms: Annotated[Int, Field(ge=1_000, le=30_000)] = Field(
        default=15_000, description="Lowest lock duration that a group may set, in ms."
    )
    group_share_max_record_lock_duration_ms: Annotated[Int, Field(ge=30_000, le=3_600_000)] = Field(
        default=60_000, description="Highest lock duration that a group may set, in ms."
    )
    group_share_delivery_count_limit: Annotated[Int, Field(ge=2, le=10)] = Field(
        default=5, description="Deliveries of a record after which it is archived, or goes to the dead-letter queue."
    )
    group_share_min_delivery_count_limit: Annotated[Int, Field(ge=2, le=5)] = Field(
        default=2, description="Lowest delivery limit that a group may set."
    )
    group_share_max_delivery_count_limit: Annotated[Int, Field(ge=5, le=25)] = Field(
        default=10, description="Highest delivery limit that a group may set."
    )
    group_share_partition_max_record_locks: Annotated[Int, Field(ge=100, le=10_000)] = Field(
        default=2_000, description="Offsets between the start offset of a share-partition and its last one in flight."
    )
    group_share_min_partition_max_record_locks: Annotated[Int, Field(ge=100, le=2_000)] = Field(
        default=100, description="Lowest limit of record locks that a group may set."
    )
    group_share_max_partition_max_record_locks: Annotated[Int, Field(ge=2_000, le=10_000_000)] = Field(
        default=4_000, description="Highest limit of record locks that a group may set."
    )
    group_share_assignment_interval_ms: Annotated[Int, Field(ge=0)] = Field(
        default=1_000, description="Shortest time between two assignments of a group, in ms."
    )
    group_share_min_assignment_interval_ms: Annotated[Int, Field(ge=0)] = Field(
        default=0, description="Lowest assignment interval that a group may set, in ms."
    )
    group_share_max_assignment_interval_ms: Annotated[Int, Field(ge=0)] = Field(
        default=15_000, description="Highest assignment interval that a group may set, in ms."
    )
    group_share_assignors: Literal["simple", "all"] = Field(
        default="simple",
        description="The assignor of all groups: Kafka's `simple`, or `all`, by which each member has each partition.",
    )
    group_share_max_size: Annotated[Int, Field(ge=1, le=1_000)] = Field(
        default=200, description="Members that one group may have."
    )
    group_share_max_share_sessions: Annotated[Int, Field(ge=1)] = Field(
        default=2_000, description="Share sessions that one group may have open."
    )
    share_coordinator_snapshot_update_records_per_snapshot: Annotated[Int, Field(ge=0, le=500)] = Field(
        default=500, description="Updates of a share-partition between two of its snapshots."
    )
    share_coordinator_cold_partition_snapshot_interval_ms: Annotated[Int, Field(ge=1)] = Field(
        default=300_000,
        description="Age of the state table's last snapshot, of all share-partitions, at which the next is due, in ms.",
    )
    offsets_retention_minutes: Annotated[Int, Field(ge=1)] = Field(
        default=10_080,
        description="Time after which a group without members, state and own configuration is dead, in minutes.",
    )
    errors_deadletterqueue_auto_create_topics_enable: Bool = Field(
        default=False, description="Whether the dead-letter topic of a group is created when it does not exist."
    )

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        for setting in LIMITED_SETTINGS:
            self._require_at_least(setting.default_key, setting.min_key)
            self._require_at_least(setting.max_key, setting.default_key)
        session, heartbeat = "group.share.session.timeout.ms", "group.share.heartbeat.interval.ms"
        if self.value(session) <= self.value(heartbeat):
            text = order_text(session, self.value(session), "greater than", heartbeat, self.value(heartbeat))
            raise invalid_relation(text, session, heartbeat)
        self._require_at_least("group.share.max.share.sessions", "group.share.max.size")
        return self

    def _require_at_least(self, key: str, bound_key: str) -> None:
        value, bound = self.value(key), self.value(bound_key)
        if value < bound:
            text = order_text(key, value, "greater than or equal to", bound_key, bound)
            raise invalid_relation(text, key, bound_key)
