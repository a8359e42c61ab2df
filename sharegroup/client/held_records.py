"""The records that a member holds: acquired ranges of offsets under one lock deadline. No I/O, no clock.

A fetch acquires ranges of several share-partitions together: they have one lock deadline, and with a sink one write.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.offset_ranges import consecutive, subtract
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.core.run import NO_WRITE
from sharegroup.logs.port import LogMessage
from sharegroup.protocol.share_fetch import ShareFetchResponse
from sharegroup.protocol.sink_writes import Sink

offset_of = cast(Callable[[LogMessage], int], LogMessage.offset)
"""offset_of(message): the offset of a message that was read."""


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Records of one partition that the member holds.

    Attributes:
        topic_id: topic id; compare it before you use records, since a topic can be deleted and created again.
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        delivery_count: deliveries of each record, this one included.
        isolation_level: isolation level of reads: under read_committed, offsets of aborted records have no record.
        write: the write for their results; None without a sink.
    """

    topic_id: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    write: HeldWrite | None = None

    @property
    def key(self) -> PartitionKey:
        """The partition."""
        return self.topic_id, self.partition

    @property
    def record_count(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1

    @property
    def write_version(self) -> int:
        """Version of its write; NO_WRITE without one."""
        return NO_WRITE if self.write is None else self.write.version

    def cut(self, first_offset: int, last_offset: int) -> HeldRange:
        """Return the range with other offsets."""
        if (first_offset, last_offset) == (self.first_offset, self.last_offset):
            return self
        return replace(self, first_offset=first_offset, last_offset=last_offset)

    def acknowledgement(
        self,
        acknowledge_type: AcknowledgeType,
        reason: str = "",
        redelivery_delay_ms: int | None = None,
        *,
        is_begun: bool = False,
    ) -> Acknowledgement:
        """Return an acknowledgement of the whole range.

        Args:
            is_begun: True if a run of its write has begun, or still may.
        """
        return Acknowledgement(
            self.topic_id,
            self.partition,
            self.first_offset,
            self.last_offset,
            acknowledge_type,
            reason,
            self.topic,
            redelivery_delay_ms,
            self.write_version,
            is_begun and self.write is not None,
        )


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A range with its records.

    Attributes:
        records: its records, by offset.
        missing: acknowledgements for its offsets without a record.
    """

    held: HeldRange
    records: list[LogMessage]
    missing: Sequence[Acknowledgement] = ()

    def part(self, first_index: int, end_index: int) -> ReadRange:
        """Return a part of the records, with the offsets around them that have none."""
        if first_index <= 0 and end_index >= len(self.records):
            return self
        first, last = self.held.first_offset, self.held.last_offset
        if first_index > 0:
            first = offset_of(self.records[first_index])
        if end_index < len(self.records):
            last = offset_of(self.records[end_index]) - 1
        missing = [ack for ack in self.missing if first <= ack.first_offset and ack.last_offset <= last]
        return ReadRange(self.held.cut(first, last), self.records[first_index:end_index], missing)

    def between(self, first_offset: int, last_offset: int) -> ReadRange:
        """Return the records between two offsets, inclusive."""
        start = bisect_left(self.records, first_offset, key=offset_of)
        end = bisect_right(self.records, last_offset, lo=start, key=offset_of)
        return self.part(start, end) if start < end else ReadRange(self.held, [])

    def runs(self) -> list[tuple[int, int]]:
        """Return first and last offset of each run of records without a hole."""
        if len(self.records) == self.held.record_count:
            return [(self.held.first_offset, self.held.last_offset)]
        return list(consecutive(map(offset_of, self.records)))


@dataclass(frozen=True, slots=True)
class Acquisition:
    """The records that one fetch acquired.

    Attributes:
        ranges: the ranges, in the leader's order.
        lock_deadline_ms: end of the locks, in ms of the member's monotonic clock.
        lock_timeout_ms: duration of the locks from the acquisition on.
        number: rises with each acquisition of a member.
        excess_count: records beyond the requested number, because they were returned together with others.
        is_handed_out: True if the application has some of its records, which have one write with the rest: it waits
            for the application until its locks end.
    """

    ranges: tuple[HeldRange, ...]
    lock_deadline_ms: int
    lock_timeout_ms: int
    requested_count: int = 0
    number: int = 0
    excess_count: int = 0
    is_handed_out: bool = False

    @property
    def record_count(self) -> int:
        """The number of offsets."""
        return sum(held.record_count for held in self.ranges)

    @property
    def write(self) -> HeldWrite | None:
        """The write for the results of all its records; None without a sink."""
        return self.ranges[0].write if self.ranges else None

    def has(self, part: HeldRange) -> bool:
        """Return True if all of these records are in the acquisition."""
        return any(
            held.key == part.key and held.first_offset <= part.first_offset and part.last_offset <= held.last_offset
            for held in self.ranges
        )

    def without(self, other: HeldRange) -> Acquisition:
        """Return the acquisition without some of its records."""
        bounds = [(other.first_offset, other.last_offset)]
        first = self.ranges[0]
        is_first = (first.key, first.first_offset) == (other.key, other.first_offset)
        if is_first and other.last_offset <= first.last_offset:
            # Most often they are taken in order, and an acquisition may have thousands of ranges.
            return replace(self, ranges=(*subtract(first, bounds), *self.ranges[1:]))
        kept: list[HeldRange] = []
        for held in self.ranges:
            is_apart = other.last_offset < held.first_offset or held.last_offset < other.first_offset
            kept += [held] if is_apart or held.key != other.key else subtract(held, bounds)
        return replace(self, ranges=tuple(kept))

    def is_over(self, now_ms: int) -> bool:
        """Return True if the locks have ended, so that other members may hold the records."""
        return now_ms >= self.lock_deadline_ms

    @property
    def stale_at_ms(self) -> int:
        """The time when half of the locks' duration is over; the rest may be too short to process records."""
        return self.lock_deadline_ms - (0 if self.is_handed_out else self.lock_timeout_ms // 2)


def acquired_ranges(
    response: ShareFetchResponse, topic_names: Mapping[str, str], sink: Sink | None = None
) -> tuple[HeldRange, ...]:
    """Return the ranges that a response acquires for the member.

    Args:
        topic_names: topic id → topic name.
        sink: the table that the fetch named.
    """
    write = None
    if response.write is not None and sink is not None:
        acquired_count = sum(
            acquired.last_offset - acquired.first_offset + 1
            for topic in response.responses
            for partition in topic.partitions
            for acquired in partition.acquired_records
        )
        write = HeldWrite.of(response.write, sink, acquired_count)
    return tuple(
        HeldRange(
            topic.topic_id,
            topic_names.get(topic.topic_id, ""),
            partition.partition_index,
            acquired.first_offset,
            acquired.last_offset,
            acquired.delivery_count,
            response.isolation_level,
            write,
        )
        for topic in response.responses
        for partition in topic.partitions
        for acquired in partition.acquired_records
    )


def remaining_lock_ms(response: ShareFetchResponse, published_ms: int) -> int:
    """Return how long the locks of a response's records went on when it was published, ms; 0 if they were over.

    Args:
        published_ms: time of the request partition then, in which the deadline is; -1 is unknown.
    """
    whole_ms = response.acquisition_lock_timeout_ms
    remaining_ms = whole_ms if published_ms < 0 else response.lock_deadline_ms - published_ms
    return max(min(remaining_ms, whole_ms), 0)


def split_after(ranges: Iterable[HeldRange], record_count: int) -> tuple[list[HeldRange], list[HeldRange]]:
    """Split ranges, in order, after a number of offsets."""
    first: list[HeldRange] = []
    rest: list[HeldRange] = []
    room = record_count
    for held in ranges:
        if room >= held.record_count:
            first.append(held)
        elif room > 0:
            first.append(held.cut(held.first_offset, held.first_offset + room - 1))
            rest.append(held.cut(held.first_offset + room, held.last_offset))
        else:
            rest.append(held)
        room -= held.record_count
    return first, rest


def unread(
    ranges: Iterable[HeldRange], reason: str, redelivery_delay_ms: int | None = None, *, is_begun: bool = False
) -> list[Acknowledgement]:
    """Return acknowledgements that take back the delivery of records: it is no failure of theirs.

    Args:
        redelivery_delay_ms: how long the records stay unavailable; None returns them at once.
        is_begun: True if a run of their write has begun, or still may.
    """
    return [
        held.acknowledgement(AcknowledgeType.UNREAD, reason, redelivery_delay_ms, is_begun=is_begun) for held in ranges
    ]
