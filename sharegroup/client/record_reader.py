"""Reads acquired ranges from the record log, and determines which of their offsets have no record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sharegroup.client.held_records import HeldRange, ReadRange, offset_of, split_after
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.offset_ranges import consecutive, gaps
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, LogMessage, OffsetSpan, PartitionOffsets, TopicIdentity

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
"""Reasons why an offset has no record, permanently and for now."""

_LARGEST_HOLE = 1_000
"""Offsets between two ranges that are read with them and dropped: other members hold them."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The result of one read: ranges with their records, and the remaining ranges."""

    ranges: list[ReadRange]
    rest: tuple[HeldRange, ...]

    @property
    def missing(self) -> list[Acknowledgement]:
        """Acknowledgements for offsets without a record."""
        return [missing for read_range in self.ranges for missing in read_range.missing]


@dataclass(frozen=True, slots=True)
class _Span:
    """Ranges of one partition that are read together, in the order of their offsets."""

    ranges: list[HeldRange]

    @property
    def start_offset(self) -> int:
        """First offset."""
        return self.ranges[0].first_offset

    @property
    def end_offset(self) -> int:
        """End, exclusive."""
        return self.ranges[-1].last_offset + 1


@dataclass(frozen=True, slots=True)
class _SpanMessages:
    """Messages of a span.

    Attributes:
        seen_end: offset up to which the span was read.
        settled_end: offset below which holes are permanent.
    """

    messages: list[LogMessage]
    seen_end: int
    settled_end: int


class RecordReader:
    """Reads from a log that holds the acquired records.

    Args:
        max_bytes: maximum bytes of the values of one chunk.
        max_partition_bytes: maximum of one partition in a chunk, one record at least; None is the bound of the chunk.
    """

    def __init__(self, log: Log, max_bytes: int, max_partition_bytes: int | None = None) -> None:
        self._log = log
        self._max_bytes = max_bytes
        self._max_partition_bytes = max_bytes if max_partition_bytes is None else max_partition_bytes

    def read(self, ranges: Iterable[HeldRange], max_records: int) -> Chunk:
        """Read the first ranges, `max_records` offsets at most, all of their partitions at once.

        A range of a topic that was deleted, or created again since, is dropped: the acquired records no longer
        exist.
        """
        first, rest = split_after(ranges, max_records)
        by_topic: dict[tuple[str, str, IsolationLevel], dict[int, list[HeldRange]]] = {}
        for held in first:
            key = held.topic_id, held.topic, held.isolation_level
            by_topic.setdefault(key, {}).setdefault(held.partition, []).append(held)
        partition_count = max(sum(map(len, by_topic.values())), 1)
        max_bytes = max(min(self._max_partition_bytes, self._max_bytes // partition_count), 1)
        read: list[ReadRange] = []
        for (topic_id, topic, isolation_level), partitions in by_topic.items():
            spans: dict[int, _Span] = {}
            for partition, of_partition in partitions.items():
                spans[partition], later = _first_span(of_partition)
                rest += later
            try:
                read_spans = self._read(topic, topic_id, spans, max_bytes, isolation_level)
            except UnknownTopicError:
                continue
            # Checked after the read, not before it: a topic id that still holds now held then, too.
            if not self._is_topic(topic, topic_id):
                continue
            for partition, span in spans.items():
                for held in span.ranges:
                    if held.first_offset < read_spans[partition].seen_end:
                        read.append(self._read_range(held, read_spans[partition]))
                    if held.last_offset >= read_spans[partition].seen_end:
                        rest.append(held.cut(max(held.first_offset, read_spans[partition].seen_end), held.last_offset))
        return Chunk(read, tuple(rest))

    def _read(
        self, topic: str, topic_id: str, spans: dict[int, _Span], max_bytes: int, isolation_level: IsolationLevel
    ) -> dict[int, _SpanMessages]:
        wanted = {partition: OffsetSpan(span.start_offset, span.end_offset) for partition, span in spans.items()}
        first = self._log.read_messages(topic, topic_id, wanted, max_bytes, isolation_level)
        read_spans = {partition: _seen(messages) for partition, messages in first.items() if messages}
        if empty := [partition for partition in spans if partition not in read_spans]:
            # Records may come between two reads of a log: only a read after that of the end offset shows holes.
            offsets = self._log.offsets(topic)
            again = {
                partition: _existing(wanted[partition], offsets[partition], isolation_level) for partition in empty
            }
            asked = {partition: span for partition, span in again.items() if span.start_offset < span.end_offset}
            second = self._log.read_messages(topic, topic_id, asked, max_bytes, isolation_level) if asked else {}
            for partition in empty:
                messages = second.get(partition)
                end = offsets[partition].readable_end(isolation_level)
                read_spans[partition] = (
                    _seen(messages) if messages else _SpanMessages([], spans[partition].end_offset, end)
                )
        return read_spans

    def _is_topic(self, topic: str, topic_id: str) -> bool:
        identity = self._log.identify([topic])[topic]
        if isinstance(identity, TopicIdentity):
            return identity.topic_id == topic_id
        if isinstance(identity, UnknownTopicError):
            return False
        raise identity

    def _read_range(self, held: HeldRange, span: _SpanMessages) -> ReadRange:
        seen = held.cut(held.first_offset, min(held.last_offset, span.seen_end - 1))
        messages = span.messages
        if messages and (offset_of(messages[0]) < seen.first_offset or offset_of(messages[-1]) > seen.last_offset):
            start = bisect_left(messages, seen.first_offset, key=offset_of)
            messages = messages[start : bisect_right(messages, seen.last_offset, lo=start, key=offset_of)]
        if len(messages) == seen.record_count:
            return ReadRange(seen, messages)
        return ReadRange(seen, messages, self._missing(seen, messages, span.settled_end))

    def _missing(self, held: HeldRange, messages: Sequence[LogMessage], settled_end: int) -> list[Acknowledgement]:
        log_start = self._log.offsets(held.topic)[held.partition].start_offset
        end = max(settled_end, log_start)
        no_record, not_yet = MISSING_REASONS[held.isolation_level]
        kinds = (
            (0, log_start - 1, AcknowledgeType.GAP, f"deleted: the log starts at offset {log_start}"),
            (log_start, end - 1, AcknowledgeType.GAP, no_record),
            (end, held.last_offset, AcknowledgeType.UNREAD, f"{not_yet} {end}"),
        )
        return [
            held.cut(max(first, low), min(last, high)).acknowledgement(kind, reason)
            for first, last in gaps(held.first_offset, held.last_offset, consecutive(map(offset_of, messages)))
            for low, high, kind, reason in kinds
            if max(first, low) <= min(last, high)
        ]


def _first_span(ranges: list[HeldRange]) -> tuple[_Span, list[HeldRange]]:
    """Split the ranges of a partition, by offset, at the first large hole."""
    ordered = sorted(ranges, key=lambda held: held.first_offset)
    for index, (before, after) in enumerate(pairwise(ordered), start=1):
        if after.first_offset - before.last_offset > _LARGEST_HOLE:
            return _Span(ordered[:index]), ordered[index:]
    return _Span(ordered), []


def _existing(span: OffsetSpan, offsets: PartitionOffsets, isolation_level: IsolationLevel) -> OffsetSpan:
    end = min(span.end_offset, offsets.readable_end(isolation_level))
    return OffsetSpan(max(span.start_offset, offsets.start_offset), end, known_end_offset=end)


def _seen(messages: list[LogMessage]) -> _SpanMessages:
    # A read that stops early may have reached a limit; only an empty read proves that there are no records.
    end = offset_of(messages[-1]) + 1
    return _SpanMessages(messages, end, end)
