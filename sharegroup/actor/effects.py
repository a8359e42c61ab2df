"""Effects: what an actor wants done; the processor does it after the cut's commit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope
from sharegroup.protocol.rows import StateRow


@dataclass(frozen=True, slots=True)
class Persist:
    """Append a row to the state table, in the cut's one commit."""

    row: StateRow


@dataclass(frozen=True, slots=True)
class Respond:
    """Append a response to a partition of the response log."""

    partition: int
    response: ResponseEnvelope


@dataclass(frozen=True, slots=True)
class Send:
    """Append a message to the request log, in the group's own partition."""

    request: RequestEnvelope


@dataclass(frozen=True, slots=True)
class WatchTopics:
    """Tell the group when a topic's id or partition count is not as given; replaces the group's earlier watch.

    Attributes:
        group_id: the group.
        topics: topic name → (topic id or "" when unknown, partition count).
        reset_duration_ms: how far back `share.auto.offset.reset` by duration looks; None for earliest and latest.
    """

    group_id: str
    topics: dict[str, tuple[str, int]]
    reset_duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WatchLog:
    """Tell the group, once, when a partition's log has grown above an offset.

    Holds what changed since the group's last watch; a watch that was answered is gone without being forgotten here.

    Attributes:
        group_id: the group.
        above_offset: (topic name, topic id, partition) → offset that the group knows to be the end: new or changed.
        forgotten: what the group watches no more.
        isolation_level: which end, for all of the group's watches: the last stable offset under read_committed.
    """

    group_id: str
    above_offset: dict[tuple[str, str, int], int]
    forgotten: frozenset[tuple[str, str, int]] = frozenset()
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


@dataclass(frozen=True, slots=True)
class Wake:
    """Append a Tick for the group at a time; replaces the actor's earlier one. None: no need.

    Attributes:
        group_id: the group.
        role: the actor.
        at_ms: epoch ms, or None.
    """

    group_id: str
    role: ActorRole
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A message that could not be read was counted.

    Attributes:
        request_offset: its offset in the request log.
        reason: what is wrong with it.
    """

    request_offset: int
    reason: str


class DeadLetterReason(StrEnum):
    """Why a record was given up, in the words of Kafka's dead letters (KIP-1191)."""

    REJECTED = "Offset rejected by client."
    DELIVERY_COUNT_EXCEEDED = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Records of one share-partition that are ARCHIVING for the same reason, after as many deliveries.

    Attributes:
        topic: topic name.
        topic_id: topic id.
        partition: partition.
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        delivery_count: how often each was delivered.
        reason: why they were given up.
        state_epoch: epoch of the share-partition's state that gave them up.
    """

    topic: str
    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    reason: DeadLetterReason
    state_epoch: int


@dataclass(frozen=True, slots=True)
class WriteDeadLetters:
    """Write the dead letters of a group's records, and report to the group; its earlier ones go to the same topic.

    Attributes:
        group_id: the group.
        dlq_topic: `errors.deadletterqueue.topic.name`; "" when the group has no dead-letter queue any more.
        copies_records: `errors.deadletterqueue.copy.record.enable`.
        letters: the records; none when only the configuration changed.
        replaces_waiting: whether these are all of the group, in place of those that wait to be written.
    """

    group_id: str
    dlq_topic: str
    copies_records: bool
    letters: tuple[DeadLetters, ...] = ()
    replaces_waiting: bool = False


@dataclass(frozen=True, slots=True)
class ShareSessionsCounted:
    """Share sessions of a group after a cut in which they changed; for metrics only.

    Attributes:
        group_id: the group.
        session_count: open share sessions.
        share_partition_count: their share-partitions, counted in each session.
        eviction_count: sessions that ended in this cut because their member was silent for too long.
        expired_fetch_count: fetches that had waited long enough in this cut, and were answered with nothing.
    """

    group_id: str
    session_count: int
    share_partition_count: int
    eviction_count: int
    expired_fetch_count: int


Effect = (
    Persist | Respond | Send | WatchTopics | WatchLog | Wake | WriteDeadLetters | Undecodable | ShareSessionsCounted
)
