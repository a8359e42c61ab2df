"""Effects: actions that an actor requests; the processor performs them after the cut's commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from sharegroup.config.group import TimedReset
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.messages import (
    Message,
    RequestEnvelope,
    ResponseEnvelope,
    decoded_response,
    encoded_response,
)
from sharegroup.protocol.rows import StateRow


class Persist(NamedTuple):
    """Effect: append a row to the state table, in the cut's one commit."""

    row: StateRow


class Address(NamedTuple):
    """Address of a response, and of the request that it belongs to.

    Attributes:
        partition: of the response log; negative when no response is asked for.
        correlation_id: of the request; -1 without a request.
    """

    partition: int
    api_key: int
    correlation_id: int
    group_id: str
    member_id: str


class Respond(NamedTuple):
    """Effect: append a response to a partition of the response log.

    Attributes:
        body: the response's body, for metrics.
        value: the response envelope in JSON, as it is published.
    """

    address: Address
    body: Message
    value: str

    @property
    def response(self) -> ResponseEnvelope:
        """The response envelope, decoded from the value."""
        return decoded_response(self.value.encode())


def address_of(envelope: RequestEnvelope) -> Address:
    """Return the address of the response to a request."""
    return Address(
        envelope.reply_partition, envelope.api_key, envelope.correlation_id, envelope.group_id, envelope.member_id
    )


def response_to(address: Address, body: Message, leader_epoch: int) -> Respond:
    """Return the effect that responds to a request."""
    _, api_key, correlation_id, group_id, member_id = address
    return Respond(address, body, encoded_response(api_key, correlation_id, group_id, member_id, leader_epoch, body))


class Send(NamedTuple):
    """Effect: append a message to the request log, in the group's own partition."""

    request: RequestEnvelope


@dataclass(frozen=True, slots=True)
class WatchTopics:
    """Effect: notify the group when a topic's id or partition count differs; replaces the group's earlier watch.

    Attributes:
        topics: topic name → (topic id or "" when unknown, partition count).
        reset: `share.auto.offset.reset` by time; None for earliest and latest.
    """

    group_id: str
    topics: dict[str, tuple[str, int]]
    reset: TimedReset | None = None


class WatchLog(NamedTuple):
    """Effect: notify the group once when a partition's log has grown above an offset.

    It holds the changes since the group's last watch; a reported watch ends by itself and is not listed here.

    Attributes:
        above_offset: (topic name, topic id, partition) → offset that the group knows to be the end: new or changed.
        forgotten: the partitions that the group no longer watches.
        isolation_level: which end, for all of the group's watches: the last stable offset under read_committed.
    """

    group_id: str
    above_offset: dict[tuple[str, str, int], int]
    forgotten: frozenset[tuple[str, str, int]] = frozenset()
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


class Wake(NamedTuple):
    """Effect: append a Tick for the group at a time; replaces the actor's earlier one.

    Attributes:
        at_ms: epoch ms; None when no Tick is needed.
    """

    group_id: str
    role: ActorRole
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Effect: count a message that cannot be decoded, for the reason of the decoding error."""

    request_offset: int
    reason: str


class DeadLetterReason(StrEnum):
    """Reason for a dead-letter record, in Kafka's words (KIP-1191)."""

    REJECTED = "Offset rejected by client."
    DELIVERY_COUNT_EXCEEDED = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Records of one share-partition's state that are ARCHIVING for the same reason, after as many deliveries."""

    topic: str
    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    reason: DeadLetterReason
    state_epoch: int

    def cut(self, first_offset: int, last_offset: int) -> DeadLetters:
        """Return the same with other offsets."""
        return replace(self, first_offset=first_offset, last_offset=last_offset)


@dataclass(frozen=True, slots=True)
class WriteDeadLetters:
    """Effect: write dead-letter records and report to the group; its earlier ones go to the same topic.

    Attributes:
        dlq_topic: `errors.deadletterqueue.topic.name`; "" when the group has no dead-letter queue any more.
        copies_records: `errors.deadletterqueue.copy.record.enable`.
        dead_letters: the records; none when only the configuration changed.
        replaces_waiting: True if these are all of the group, and replace those that wait to be written.
    """

    group_id: str
    dlq_topic: str
    copies_records: bool
    dead_letters: tuple[DeadLetters, ...] = ()
    replaces_waiting: bool = False


class DropDeadLetters(NamedTuple):
    """Effect: drop the dead-letter records of a removed group that wait to be written."""

    group_id: str


class ShareSessionsCounted(NamedTuple):
    """Effect: report the share sessions of a group after a cut in which they changed; for metrics only.

    Attributes:
        share_partition_count: their share-partitions, counted in each session.
        eviction_count: sessions that ended in this cut because their member was silent for too long.
        expired_fetch_count: fetches that had waited long enough in this cut, and got a response without records.
    """

    group_id: str
    session_count: int
    share_partition_count: int
    eviction_count: int
    expired_fetch_count: int


Effect = (
    Persist
    | Respond
    | Send
    | WatchTopics
    | WatchLog
    | Wake
    | WriteDeadLetters
    | DropDeadLetters
    | Undecodable
    | ShareSessionsCounted
)
