"""Acknowledgements: of a record and of a range of offsets, those that wait to be sent, and their wire form.

Those that wait are runs of offsets: of two for one offset the later counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.errors import ApiError, UnknownServerError, api_error
from sharegroup.protocol.share_fetch import AcknowledgementRange, FetchPartition, FetchTopic, PartitionResponse

OffsetKey = tuple[str, int, int]
"""Topic name, partition and offset of a record."""


class RecordAcknowledgement(NamedTuple):
    """The acknowledgement of one record, or of each record of a range.

    Attributes:
        redelivery_delay_ms: how long a released record stays unavailable; None uses the group's back-off.
        reason: reason for the audit trail; gaps have one.
    """

    acknowledge_type: AcknowledgeType
    redelivery_delay_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One type for a range of offsets.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        acknowledge_type: type of each record.
        reason: reason for the audit trail; gaps have one.
        topic: topic name, for logs and results.
        redelivery_delay_ms: how long released records stay unavailable; None uses the group's back-off.
    """

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    acknowledge_type: AcknowledgeType
    reason: str = ""
    topic: str = ""
    redelivery_delay_ms: int | None = None

    @property
    def key(self) -> PartitionKey:
        """The partition."""
        return self.topic_id, self.partition

    @property
    def offsets(self) -> range:
        """All offsets."""
        return range(self.first_offset, self.last_offset + 1)

    @property
    def of_record(self) -> RecordAcknowledgement:
        """The acknowledgement of each of its records."""
        return RecordAcknowledgement(self.acknowledge_type, self.redelivery_delay_ms, self.reason)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The result of acknowledgements of one partition.

    Attributes:
        error: None if they took effect.
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


class _PendingPartition(NamedTuple):
    topic: str
    runs: RangeMap[RecordAcknowledgement]


class PendingAcknowledgements:
    """An ordered set of runs that do not overlap, by partition; equal neighbours are one run."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, _PendingPartition] = {}

    def __len__(self) -> int:
        """Return the number of runs."""
        return sum(len(pending.runs) for pending in self._partitions.values())

    def __iter__(self) -> Iterator[Acknowledgement]:
        return (
            run_acknowledgement(key, pending.topic, *run)
            for key, pending in self._partitions.items()
            for run in pending.runs
        )

    @property
    def partitions(self) -> Collection[PartitionKey]:
        """Partitions with something to send."""
        return self._partitions.keys()

    def put(self, new: Acknowledgement) -> None:
        """Add an acknowledgement; it replaces earlier ones of its offsets."""
        self._runs(new).assign(new.first_offset, new.last_offset, new.of_record)

    def put_back(self, old: Iterable[Acknowledgement]) -> None:
        """Add acknowledgements again that were taken; those that were put since then replace them."""
        for ack in old:
            self._runs(ack).fill(ack.first_offset, ack.last_offset, ack.of_record)

    def take(self, max_runs: int) -> list[Acknowledgement]:
        """Remove up to `max_runs` runs, partition by partition in the order in which they came."""
        taken: list[Acknowledgement] = []
        while self._partitions and len(taken) < max_runs:
            key, (topic, runs) = next(iter(self._partitions.items()))
            taken += [run_acknowledgement(key, topic, *run) for run in runs.take(max_runs - len(taken))]
            if not runs:
                del self._partitions[key]
        return taken

    def _runs(self, ack: Acknowledgement) -> RangeMap[RecordAcknowledgement]:
        pending = self._partitions.get(ack.key)
        if pending is None:
            pending = self._partitions[ack.key] = _PendingPartition(ack.topic, RangeMap())
        return pending.runs


def run_acknowledgement(
    key: PartitionKey, topic: str, first_offset: int, last_offset: int, of_record: RecordAcknowledgement
) -> Acknowledgement:
    """Return the acknowledgement of a run of offsets."""
    acknowledge_type, delay_ms, reason = of_record
    return Acknowledgement(*key, first_offset, last_offset, acknowledge_type, reason, topic, delay_ms)


def by_partition(acknowledgements: Iterable[Acknowledgement]) -> dict[PartitionKey, list[Acknowledgement]]:
    """Group acknowledgements by partition, in their order."""
    grouped: dict[PartitionKey, list[Acknowledgement]] = {}
    for acknowledgement in acknowledgements:
        grouped.setdefault(acknowledgement.key, []).append(acknowledgement)
    return grouped


def failed(acknowledgements: Iterable[Acknowledgement], error: ApiError) -> list[Acknowledged]:
    """Return one result for each partition: its acknowledgements failed with this error."""
    return [Acknowledged(tuple(of_partition), error) for of_partition in by_partition(acknowledgements).values()]


def topics_with(added: Iterable[PartitionKey], acknowledgements: Iterable[Acknowledgement]) -> list[FetchTopic]:
    """Return the topics of a request: partitions to add to the session, and acknowledgements."""
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


def acknowledge_error(answer: PartitionResponse | None) -> ApiError | None:
    """Return the error of a partition's acknowledgements; None is success."""
    if answer is not None:
        if answer.acknowledge_error_code:
            return api_error(answer.acknowledge_error_code, answer.acknowledge_error_message)
        if answer.is_acknowledged:
            return None
        if answer.error_code:
            return api_error(answer.error_code, answer.error_message)
    return UnknownServerError("The answer has no outcome of the acknowledgements.")
