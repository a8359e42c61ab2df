"""Acknowledgements: of a record and of a range of offsets, and those that wait to be sent.

Waiting acknowledgements are runs of offsets; of two acknowledgements of one offset the later counts. A share-partition
takes all acknowledgements of a request or none. So those that were refused together can be sent again in groups, each
with another request. A poll may have an acknowledgement for each record, so they are named tuples, as in the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from sharegroup.core.offset_ranges import OffsetRange, RangeMap
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.core.run import NO_WRITE
from sharegroup.errors import ApiError

OffsetKey = tuple[str, int, int]
"""Topic name, partition and offset of a record."""

_LONGEST_TYPED_RUN = 10
"""Offsets of a run that have a type each in a request, as in Kafka's consumers; a longer run is a range of its own."""
_PARTITION_BYTES = 150
"""Most bytes of a partition in a request, with its topic and without its ranges."""
_RANGE_BYTES = 140
"""Most bytes of a range in a request, without its types, its reason and its write."""
_WRITE_BYTES = 60
"""Most bytes of a range's write."""
_TYPE_BYTES = {kind: len(f"{kind.value},") for kind in AcknowledgeType}
_BYTES_PER_CHARACTER = 6
"""Most bytes of a character of a JSON string."""


class RecordAcknowledgement(NamedTuple):
    """The acknowledgement of one record, or of each record of a range.

    Attributes:
        redelivery_delay_ms: how long a released or unread record stays unavailable; None is the group's back-off for a
            released one, and no delay for an unread one.
        reason: reason for the audit trail; gaps have one.
        write_version: version of the write that the record was acquired with; NO_WRITE without one.
        is_begun: True if a run of that write has begun, or still may: it counts if the sink does not have the record.
    """

    acknowledge_type: AcknowledgeType
    redelivery_delay_ms: int | None = None
    reason: str = ""
    write_version: int = NO_WRITE
    is_begun: bool = False


class Acknowledgement(NamedTuple):
    """One type for a range of offsets.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        reason: reason for the audit trail; gaps have one.
        topic: topic name, for logs and results.
        redelivery_delay_ms: as of each record.
        write_version: as of each record.
        is_begun: as of each record.
    """

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    acknowledge_type: AcknowledgeType
    reason: str = ""
    topic: str = ""
    redelivery_delay_ms: int | None = None
    write_version: int = NO_WRITE
    is_begun: bool = False

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
        return RecordAcknowledgement(
            self.acknowledge_type, self.redelivery_delay_ms, self.reason, self.write_version, self.is_begun
        )

    def continues(self, before: Acknowledgement) -> bool:
        """Return True if a request has this and the one before as one range, with a type for each offset."""
        return (
            self.first_offset == before.last_offset + 1
            and self.last_offset - self.first_offset < _LONGEST_TYPED_RUN
            and before.last_offset - before.first_offset < _LONGEST_TYPED_RUN
            and self.reason == before.reason
            and self.redelivery_delay_ms == before.redelivery_delay_ms
            and self.write_version == before.write_version
            and self.is_begun == before.is_begun
            and self.key == before.key
        )


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
    """An ordered set of runs that do not overlap, by partition; equal neighbours of one group are one run."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, _PendingPartition] = {}
        self._apart: dict[PartitionKey, list[_PendingPartition]] = {}
        """Groups of which each is sent with another request; a partition has one at least."""

    def __len__(self) -> int:
        """Return the number of runs."""
        return sum(len(pending.runs) for _, pending in self._all())

    def __bool__(self) -> bool:
        """Return True if there is something to send."""
        return bool(self._partitions or self._apart)

    def __iter__(self) -> Iterator[Acknowledgement]:
        return (run_acknowledgement(key, pending.topic, *run) for key, pending in self._all() for run in pending.runs)

    @property
    def partitions(self) -> Set[PartitionKey]:
        """Partitions with something to send."""
        return self._partitions.keys() | self._apart.keys() if self._apart else self._partitions.keys()

    def put(self, new: Acknowledgement) -> None:
        """Add an acknowledgement; it replaces earlier ones of its offsets."""
        self._runs(new).assign(new.first_offset, new.last_offset, new.of_record)
        if groups := self._apart.get(new.key):
            for group in groups:
                group.runs.remove(new.first_offset, new.last_offset)
            self._keep_apart(new.key, (group for group in groups if group.runs))

    def put_apart(self, old: Sequence[Acknowledgement]) -> None:
        """Add acknowledgements of one partition again, without others of it in their request.

        Those that were put since they were taken replace them.
        """
        key, topic = old[0].key, old[0].topic
        group = _PendingPartition(topic, RangeMap())
        for ack in old:
            group.runs.assign(ack.first_offset, ack.last_offset, ack.of_record)
        if key in self._partitions:
            for first, last, _ in self._partitions[key].runs:
                group.runs.remove(first, last)
        if group.runs:
            self._keep_apart(key, (*self._apart.get(key, ()), group))

    def put_back(self, old: Iterable[Acknowledgement]) -> None:
        """Add acknowledgements again that were taken; those that were put since then replace them."""
        for ack in old:
            self._runs(ack).fill(ack.first_offset, ack.last_offset, ack.of_record)

    def overlapping(
        self, key: PartitionKey, first_offset: int, last_offset: int, write_version: int = NO_WRITE
    ) -> list[OffsetRange]:
        """Return the parts of a partition's range that have acknowledgements of a write, in any order."""
        groups = [*self._apart.get(key, ())] if self._apart else []
        if (pending := self._partitions.get(key)) is not None:
            groups.append(pending)
        return [
            (first, last)
            for each in groups
            for first, last, of_record in each.runs.overlapping(first_offset, last_offset)
            if of_record.write_version == write_version
        ]

    def fits(self, max_bytes: int) -> bool:
        """Return True if `take` would remove everything."""
        is_alone = all(len(groups) == 1 and key not in self._partitions for key, groups in self._apart.items())
        room = _Room(max_bytes)
        return is_alone and all(map(room.takes, self))

    def take(self, max_bytes: int) -> list[Acknowledgement]:
        """Remove what a request of this size has room for, partition by partition in the order in which they came.

        A partition's groups that are sent apart follow its other runs, one with each request.
        """
        room = _Room(max_bytes)
        taken: list[Acknowledgement] = []
        apart = [key for key in self._apart if key not in self._partitions]
        for key, pending in list(self._partitions.items()):
            taken += _taken(key, pending, room)
            if pending.runs:
                return taken
            del self._partitions[key]
        for key in apart:
            first, *later = self._apart[key]
            taken += _taken(key, first, room)
            self._keep_apart(key, (first, *later) if first.runs else later)
        return taken

    def _all(self) -> Iterator[tuple[PartitionKey, _PendingPartition]]:
        yield from self._partitions.items()
        for key, groups in self._apart.items():
            for group in groups:
                yield key, group

    def _keep_apart(self, key: PartitionKey, groups: Iterable[_PendingPartition]) -> None:
        self._apart[key] = list(groups)
        if not self._apart[key]:
            del self._apart[key]

    def _runs(self, ack: Acknowledgement) -> RangeMap[RecordAcknowledgement]:
        pending = self._partitions.get(ack.key)
        if pending is None:
            pending = self._partitions[ack.key] = _PendingPartition(ack.topic, RangeMap())
        return pending.runs


class _Room:
    """The bytes that a request still has room for: the sizes are upper bounds by the digits of numbers."""

    def __init__(self, max_bytes: int) -> None:
        self._left_bytes = max_bytes
        self._last: Acknowledgement | None = None

    def takes(self, ack: Acknowledgement) -> bool:
        """Return True if there is room for one more, and for all before it."""
        size = ack.last_offset - ack.first_offset + 1
        self._left_bytes -= _TYPE_BYTES[ack.acknowledge_type] * (size if size <= _LONGEST_TYPED_RUN else 1)
        before, self._last = self._last, ack
        if before is None or not ack.continues(before):
            self._left_bytes -= _RANGE_BYTES + _BYTES_PER_CHARACTER * len(ack.reason)
            self._left_bytes -= 0 if ack.write_version == NO_WRITE else _WRITE_BYTES
            if before is None or before.key != ack.key:
                self._left_bytes -= _PARTITION_BYTES
        return self._left_bytes >= 0


def _taken(key: PartitionKey, pending: _PendingPartition, room: _Room) -> list[Acknowledgement]:
    runs = (run_acknowledgement(key, pending.topic, *run) for run in pending.runs)
    taken = list(takewhile(room.takes, runs))
    if taken:
        pending.runs.drop_below(taken[-1].last_offset + 1)
    return taken


def run_acknowledgement(
    key: PartitionKey, topic: str, first_offset: int, last_offset: int, of_record: RecordAcknowledgement
) -> Acknowledgement:
    """Return the acknowledgement of a run of offsets."""
    acknowledge_type, delay_ms, reason, write_version, is_begun = of_record
    return Acknowledgement(
        *key, first_offset, last_offset, acknowledge_type, reason, topic, delay_ms, write_version, is_begun
    )


def by_partition(acknowledgements: Iterable[Acknowledgement]) -> dict[PartitionKey, list[Acknowledgement]]:
    """Group acknowledgements by partition, in their order."""
    grouped: dict[PartitionKey, list[Acknowledgement]] = {}
    for acknowledgement in acknowledgements:
        grouped.setdefault(acknowledgement.key, []).append(acknowledgement)
    return grouped


def failed(acknowledgements: Iterable[Acknowledgement], error: ApiError) -> list[Acknowledged]:
    """Return one result for each partition: its acknowledgements failed with this error."""
    return [Acknowledged(tuple(of_partition), error) for of_partition in by_partition(acknowledgements).values()]
