"""BrokerConfig: defaults and limits of all share groups, and when their state is snapshotted.

Hard bounds are those of Kafka 4.3's ShareGroupConfig, GroupCoordinatorConfig and ShareCoordinatorConfig (spec 002,
"Configuration reference"), with one exception: `group.share.partition.max.record.locks` is 1,000,000 where Kafka has
2,000, and goes up to 10,000,000 instead of 10,000, because state costs per run of records here, not per record. The
`errors.deadletterqueue` key is of Kafka 4.4 (KIP-1191). `group.share.member.silence.ms` is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sharegroup.config.model import Bool, Config, Int, invalid_relation, order_text

Bounds = tuple[int, int, int | None]
"""Default, lowest and highest value of a key."""


class LimitedSetting:
    """A setting with a default for all groups, which one group may change between two limits.

    Kafka has four keys for it, which end alike: the group's own, and the broker's for the default and for each limit.

    Args:
        stem: the end of the keys.
        name: a noun for the descriptions of the limits.
        description: of the default, and of the group's own key.
        default: bounds of the default; the lowest one is the group's, too.
        min_bounds: bounds of the lowest value that a group may set.
        max_bounds: bounds of the highest value that a group may set.
    """

    def __init__(
        self, stem: str, name: str, description: str, default: Bounds, min_bounds: Bounds, max_bounds: Bounds
    ) -> None:
        self.group_key, self.default_key = f"share.{stem}", f"group.share.{stem}"
        self.min_key, self.max_key = f"group.share.min.{stem}", f"group.share.max.{stem}"
        self.group_field: Any = _field((*default[:2], None), description)
        self.default_field: Any = _field(default, description)
        limit = f"{name} that a group may set{', in ms' if stem.endswith('.ms') else ''}."
        self.min_field: Any = _field(min_bounds, f"Lowest {limit}")
        self.max_field: Any = _field(max_bounds, f"Highest {limit}")


def _field(bounds: Bounds, description: str) -> Any:
    default, lowest, highest = bounds
    return Field(default=default, ge=lowest, le=highest, description=description)


HEARTBEAT_INTERVAL = LimitedSetting(
    "heartbeat.interval.ms",
    "heartbeat interval",
    "Time between two heartbeats of a member, in ms.",
    (5_000, 1, None),
    (5_000, 1, None),
    (15_000, 1, None),
)
SESSION_TIMEOUT = LimitedSetting(
    "session.timeout.ms",
    "session timeout",
    "Time without a heartbeat after which a member is removed, in ms.",
    (45_000, 1, None),
    (45_000, 1, None),
    (60_000, 1, None),
)
LOCK_DURATION = LimitedSetting(
    "record.lock.duration.ms",
    "lock duration",
    "Time for which an acquired record stays locked to its member, in ms.",
    (30_000, 1_000, 3_600_000),
    (15_000, 1_000, 30_000),
    (60_000, 30_000, 3_600_000),
)
DELIVERY_LIMIT = LimitedSetting(
    "delivery.count.limit",
    "delivery limit",
    "Deliveries of a record after which it is archived, or goes to the dead-letter queue.",
    (5, 2, 10),
    (2, 2, 5),
    (10, 5, 25),
)
RECORD_LOCKS = LimitedSetting(
    "partition.max.record.locks",
    "limit of record locks",
    "Records of a share-partition that are acquired, or available and not delayed, until which new ones are acquired.",
    (1_000_000, 100, 10_000_000),
    (100, 100, 1_000_000),
    (2_000_000, 2_000, 10_000_000),
)
ASSIGNMENT_INTERVAL = LimitedSetting(
    "assignment.interval.ms",
    "assignment interval",
    "Shortest time between two assignments of a group, in ms.",
    (1_000, 0, None),
    (0, 0, None),
    (15_000, 0, None),
)
LIMITED_SETTINGS = (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    LOCK_DURATION,
    DELIVERY_LIMIT,
    RECORD_LOCKS,
    ASSIGNMENT_INTERVAL,
)
"""In the order in which Kafka checks them."""

_STATE_TABLE = "Group state is kept in the Delta state table, not in a topic."
_COMMIT = "State is written by the commits of the processor, not by a coordinator of its own."


class BrokerConfig(Config):
    """Defaults and limits of all groups of a processor.

    Each default lies within its limits, a heartbeat interval is shorter than its session timeout, and a group of
    the largest size can open a session for each member.
    """

    refused: ClassVar[Mapping[str, str]] = {
        "errors.deadletterqueue.topic.name.prefix": "A dead-letter topic may have any name that is not internal.",
        "group.share.assignor.offload.enable": "The actor of a group computes its assignments itself.",
        "group.share.auto.offset.reset": "Set share.auto.offset.reset of the group instead.",
        "group.share.delivery.attempt.limit": "Set group.share.delivery.count.limit, its later name.",
        "group.share.enable": "A processor serves share groups, and nothing else.",
        "group.share.isolation.level": "Set share.isolation.level of the group instead.",
        "group.share.max.groups": "Groups have no maximum number; processor.group.pattern says which are served.",
        "group.share.persister.class.name": _STATE_TABLE,
        "group.share.record.lock.duration.max.ms": "Set group.share.max.record.lock.duration.ms, its later name.",
        "group.share.record.lock.partition.limit": "Set group.share.partition.max.record.locks, its later name.",
        "group.share.state.topic.min.isr": _STATE_TABLE,
        "group.share.state.topic.num.partitions": _STATE_TABLE,
        "group.share.state.topic.replication.factor": _STATE_TABLE,
        "group.share.state.topic.segment.bytes": _STATE_TABLE,
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

    group_share_heartbeat_interval_ms: Int = HEARTBEAT_INTERVAL.default_field
    group_share_min_heartbeat_interval_ms: Int = HEARTBEAT_INTERVAL.min_field
    group_share_max_heartbeat_interval_ms: Int = HEARTBEAT_INTERVAL.max_field
    group_share_session_timeout_ms: Int = SESSION_TIMEOUT.default_field
    group_share_min_session_timeout_ms: Int = SESSION_TIMEOUT.min_field
    group_share_max_session_timeout_ms: Int = SESSION_TIMEOUT.max_field
    group_share_record_lock_duration_ms: Int = LOCK_DURATION.default_field
    group_share_min_record_lock_duration_ms: Int = LOCK_DURATION.min_field
    group_share_max_record_lock_duration_ms: Int = LOCK_DURATION.max_field
    group_share_delivery_count_limit: Int = DELIVERY_LIMIT.default_field
    group_share_min_delivery_count_limit: Int = DELIVERY_LIMIT.min_field
    group_share_max_delivery_count_limit: Int = DELIVERY_LIMIT.max_field
    group_share_partition_max_record_locks: Int = RECORD_LOCKS.default_field
    group_share_min_partition_max_record_locks: Int = RECORD_LOCKS.min_field
    group_share_max_partition_max_record_locks: Int = RECORD_LOCKS.max_field
    group_share_assignment_interval_ms: Int = ASSIGNMENT_INTERVAL.default_field
    group_share_min_assignment_interval_ms: Int = ASSIGNMENT_INTERVAL.min_field
    group_share_max_assignment_interval_ms: Int = ASSIGNMENT_INTERVAL.max_field
    group_share_assignors: Literal["simple", "all"] = Field(
        default="simple",
        description="The assignor of all groups: Kafka's `simple`, or `all`, by which each member has each partition.",
    )
    group_share_max_size: Annotated[Int, Field(ge=1, le=1_000)] = Field(
        default=200, description="Members that one group may have."
    )
    group_share_member_silence_ms: Annotated[Int, Field(ge=0, le=604_800_000)] = Field(
        default=5_000,
        description="Time after which members of a Kafka log that hold records and give no sign of life lose their "
        "locks, of groups that do not set theirs, in ms; 0: only the locks' time counts, as in Kafka.",
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
        session, heartbeat = SESSION_TIMEOUT.default_key, HEARTBEAT_INTERVAL.default_key
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
