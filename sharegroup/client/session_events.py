"""What an answer of the leader means to the member, and the wire form of what the member says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import ApiError, UnknownServerError, api_error
from sharegroup.protocol.share_fetch import (
    AcknowledgementRange,
    FetchPartition,
    FetchTopic,
    PartitionResponse,
    ShareFetchResponse,
)


@dataclass(frozen=True, slots=True)
class AcquiredRecords:
    """Records of one partition that the member now holds; inclusive offsets."""

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Acquired:
    """A fetch brought records.

    Attributes:
        records: what the member holds now.
        lock_deadline_ms: when the locks end, epoch ms.
        lock_timeout_ms: how long they last.
        isolation_level: how the records are to be read.
        max_records: how many the fetch asked for.
    """

    records: tuple[AcquiredRecords, ...]
    lock_deadline_ms: int
    lock_timeout_ms: int
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    max_records: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What became of acknowledgements of one partition.

    Attributes:
        acknowledgements: which, all of one partition.
        error: None when they took effect.
    """

    acknowledgements: tuple[Acknowledgement, ...]
    error: ApiError | None

    @property
    def topic(self) -> str:
        """Topic name."""
        return self.acknowledgements[0].topic

    @property
    def partition(self) -> int:
        """Partition."""
        return self.acknowledgements[0].partition


SessionEvent = Acquired | Acknowledged
"""What an answer of the leader means."""


def topics_with(added: Iterable[PartitionKey], acknowledgements: Iterable[Acknowledgement]) -> list[FetchTopic]:
    """The topics of a request: partitions that the session gets, and acknowledgements."""
    ranges: dict[PartitionKey, list[AcknowledgementRange]] = {key: [] for key in sorted(added)}
    for ack in acknowledgements:
        ranges.setdefault(ack.key, []).append(
            AcknowledgementRange(
                first_offset=ack.first_offset,
                last_offset=ack.last_offset,
                acknowledge_types=[ack.acknowledge_type],
                reason=ack.reason,
                redelivery_delay_ms=ack.redelivery_delay_ms,
            )
        )
    topics: dict[str, list[FetchPartition]] = {}
    for (topic_id, partition), batches in ranges.items():
        topics.setdefault(topic_id, []).append(
            FetchPartition(partition_index=partition, acknowledgement_batches=batches)
        )
    return [FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]


def by_partition(acknowledgements: Iterable[Acknowledgement]) -> dict[PartitionKey, list[Acknowledgement]]:
    """Acknowledgements grouped by partition, in their order."""
    grouped: dict[PartitionKey, list[Acknowledgement]] = {}
    for acknowledgement in acknowledgements:
        grouped.setdefault(acknowledgement.key, []).append(acknowledgement)
    return grouped


def settled(acknowledgements: Iterable[Acknowledgement], error: ApiError) -> list[SessionEvent]:
    """One event for each partition: its acknowledgements failed with this error."""
    return [Acknowledged(tuple(found), error) for found in by_partition(acknowledgements).values()]


def acknowledge_error(answer: PartitionResponse | None) -> ApiError | None:
    """What a partition's answer says of the acknowledgements sent for it; None is success."""
    if answer is None:
        return UnknownServerError("The answer does not say what became of the acknowledgements.")
    if answer.acknowledge_error_code:
        return api_error(answer.acknowledge_error_code, answer.acknowledge_error_message)
    if answer.is_acknowledged:
        return None
    if answer.error_code:
        return api_error(answer.error_code, answer.error_message)
    return UnknownServerError("The answer does not say what became of the acknowledgements.")


def acquired_records(response: ShareFetchResponse) -> tuple[AcquiredRecords, ...]:
    """All ranges that an answer hands to the member."""
    return tuple(
        AcquiredRecords(topic.topic_id, partition.partition_index, r.first_offset, r.last_offset, r.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for r in partition.acquired_records
    )
