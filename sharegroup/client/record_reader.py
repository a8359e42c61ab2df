"""Reads acquired ranges from the record log, and finds out which of their offsets have no record."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.client.acquisition import HeldRange
from sharegroup.client.kafka_types import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from sharegroup.client.read_ahead import MAX_RECORDS, ReadAhead, extended
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import LOG_APPEND_TIME, TIMESTAMP_TYPE_CONFIG, Log, LogRecord

MISSING_REASONS = {
    IsolationLevel.READ_UNCOMMITTED: (
        "no record in the log: compacted, or a transaction's marker",
        "not in the log, which ends at offset",
    ),
    IsolationLevel.READ_COMMITTED: (
        "no record in the log: compacted, aborted, or a transaction's marker",
        "not committed yet: the last stable offset is",
    ),
}
"""Why an offset has no record, for ever and for now."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Records of a range, and the type of their timestamps as `Message.timestamp` has it."""

    held: HeldRange
    records: list[LogRecord]
    timestamp_type: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read brought.

    Attributes:
        ranges: what was read, in the order of the ranges.
        missing: acknowledgements for offsets without a record.
        rest: what there was no room for.
        size: bytes of keys and values.
    """

    ranges: list[ReadRange]
    missing: list[Acknowledgement]
    rest: tuple[HeldRange, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    """Records of a range, and where the holes end that are holes for ever.

    What was kept by an earlier read has the type of its timestamps already; what was read beyond the range is `ahead`.
    """

    held: HeldRange
    records: list[LogRecord]
    settled_end: int
    timestamp_type: int | None = None
    ahead: tuple[LogRecord, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return sum(len(record.key or b"") + len(record.value or b"") for record in self.records)


class RecordReader:
    """Reads from a log that holds the acquired records.

    Args:
        log: the log.
        max_bytes: keys and values of one chunk; the record that passes this bound is the last one.
        max_partition_bytes: the same for the records of one partition; None is the bound of the chunk.
    """

    def __init__(self, log: Log, max_bytes: int, max_partition_bytes: int | None = None) -> None:
        self._log = log
        self._max_bytes = max(max_bytes, 1)
        self._max_partition_bytes = self._max_bytes if max_partition_bytes is None else max(max_partition_bytes, 1)
        self._ahead = ReadAhead()

    def read(self, ranges: Iterable[HeldRange], max_records: int, following: Sequence[HeldRange] = ()) -> Chunk:
        """Read ranges in their order until there are `max_records` records.

        Ranges that will be asked for next, `following`, are read along where they go on from these, and kept.
        A range of a topic that was deleted, or created again since, is dropped: the records that were acquired do
        not exist any more.
        """
        rest = deque(ranges)
        full: list[HeldRange] = []
        found: list[_Found] = []
        room, room_bytes = max_records, self._max_bytes
        partition_sizes: Counter[PartitionKey] = Counter()
        while rest and room > 0 and room_bytes > 0:
            held = rest.popleft()
            partition_room_bytes = self._max_partition_bytes - partition_sizes[held.key]
            if partition_room_bytes <= 0:
                full.append(held)
                continue
            try:
                found.append(self._found(held, following, room, min(room_bytes, partition_room_bytes)))
            except UnknownTopicError:
                continue
            seen_to = found[-1].held.last_offset
            if seen_to < held.last_offset:
                rest.appendleft(replace(held, first_offset=seen_to + 1))
            room -= len(found[-1].records)
            room_bytes -= found[-1].size
            partition_sizes[held.key] += found[-1].size
        return replace(self._checked(found, (*full, *rest)), size=self._max_bytes - room_bytes)

    def _found(self, held: HeldRange, following: Sequence[HeldRange], max_records: int, max_bytes: int) -> _Found:
        """The first records of a range: kept ones, or read now, along with what goes on where the range ends."""
        if (kept := self._ahead.take(held)) is not None:
            return _Found(held, kept.records, held.last_offset + 1, kept.timestamp_type)
        wide = extended(held, following)
        records, settled_end = self._read(wide, MAX_RECORDS if wide is not held else max_records, max_bytes)
        # A read that stops early may have met a limit; only one that brings nothing proves that nothing is there.
        seen_to = min(records[-1].offset, held.last_offset) if records else held.last_offset
        own = [record for record in records if record.offset <= held.last_offset]
        return _Found(replace(held, last_offset=seen_to), own, settled_end, ahead=tuple(records[len(own) :]))

    def _read(self, held: HeldRange, max_records: int, max_bytes: int) -> tuple[list[LogRecord], int]:
        """The first records of a range, and the offset below which no other record can come any more."""

        def records() -> list[LogRecord]:
            return self._log.read(
                held.topic,
                held.partition,
                held.first_offset,
                held.last_offset + 1,
                max_records,
                max_bytes,
                held.isolation_level,
            )

        if first := records():
            return first, first[-1].offset + 1
        # Records may come between two looks at a log: only a read after the look at the end says what is not there.
        end_offset = self._log.offsets(held.topic)[held.partition].readable_end(held.isolation_level)
        second = records()
        return second, max(end_offset, second[-1].offset + 1) if second else end_offset

    def _checked(self, found: list[_Found], rest: tuple[HeldRange, ...]) -> Chunk:
        # After the read, not before it: a topic id that still holds now held then, too.
        topics = {read.held.topic for read in found if read.timestamp_type is None}
        timestamp_types = {topic: self._timestamp_types(topic) for topic in topics}
        ranges: list[ReadRange] = []
        missing: list[Acknowledgement] = []
        for read in found:
            held = read.held
            timestamp_type = read.timestamp_type
            if timestamp_type is None:
                timestamp_type = timestamp_types[held.topic].get(held.topic_id)
            if timestamp_type is None:
                continue
            if read.ahead:
                beyond = replace(held, first_offset=held.last_offset + 1, last_offset=read.ahead[-1].offset)
                self._ahead.keep(beyond, read.ahead, timestamp_type)
            ranges.append(ReadRange(held, read.records, timestamp_type))
            if len(read.records) <= held.last_offset - held.first_offset:
                missing += self._missing(read)
        return Chunk(ranges, missing, rest)

    def _timestamp_types(self, topic: str) -> dict[str, int]:
        """Topic id → type of the topic's timestamps; empty when there is no topic of that name."""
        try:
            description = self._log.describe_topic(topic)
        except UnknownTopicError:
            return {}
        is_append_time = description.config.get(TIMESTAMP_TYPE_CONFIG) == LOG_APPEND_TIME
        return {description.topic_id: TIMESTAMP_LOG_APPEND_TIME if is_append_time else TIMESTAMP_CREATE_TIME}

    def _missing(self, read: _Found) -> list[Acknowledgement]:
        held = read.held
        log_start = self._log.offsets(held.topic)[held.partition].start_offset
        end = max(read.settled_end, log_start)
        no_record, not_yet = MISSING_REASONS[held.isolation_level]
        kinds = (
            (0, log_start - 1, AcknowledgeType.GAP, f"deleted: the log starts at offset {log_start}"),
            (log_start, end - 1, AcknowledgeType.GAP, no_record),
            (end, held.last_offset, AcknowledgeType.UNREAD, f"{not_yet} {end}"),
        )
        return [
            replace(held, first_offset=max(first, low), last_offset=min(last, high)).acknowledgement(kind, reason)
            for first, last in _holes(held, read.records)
            for low, high, kind, reason in kinds
            if max(first, low) <= min(last, high)
        ]


def _holes(held: HeldRange, records: list[LogRecord]) -> list[tuple[int, int]]:
    """The (first, last) offsets of the range between its records."""
    bounds = [held.first_offset - 1, *(record.offset for record in records), held.last_offset + 1]
    return [(low + 1, high - 1) for low, high in pairwise(bounds) if low + 1 < high]
