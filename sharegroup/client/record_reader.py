"""Reads acquired ranges from the record log, and determines which of their offsets have no record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sharegroup.client.held_records import HeldRange, ReadRange, offset_of, split_after, unread
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.offset_ranges import consecutive, gaps
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.errors import ShareGroupError, UnknownTopicError
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

NO_TOPIC = "the topic does not exist, or was created again"
"""Reason why ranges are returned unread."""
_NO_LEADER = "the partition has no leader"
_NO_RESPONSE = "the leader of the partition does not respond"

_LARGEST_HOLE = 1_000
"""Offsets between two ranges that are read with them and dropped: other members hold them."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The result of one read.

    Attributes:
        rest: ranges for the next read.
        unreadable: ranges to be returned unread: their topic is missing now, or the leader of their partition
            is missing or does not respond.
    """

    ranges: list[ReadRange]
    rest: tuple[HeldRange, ...]
    unreadable: list[ReadRange] = field(default_factory=list)

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
        self._silent: set[PartitionKey] = set()
        """Partitions that did not respond to the last read of them."""

    def read(self, ranges: Iterable[HeldRange], max_records: int) -> Chunk:
        """Read the first ranges, `max_records` offsets at most, all of their partitions at once.

        Partitions that do not respond while others do are left to the next read. From then on they are read without
        others, until they respond.
        """
        first, rest = split_after(ranges, max_records)
        if self._silent and (responding := [held for held in first if held.key not in self._silent]):
            rest += [held for held in first if held.key in self._silent]
            first = responding
        by_topic: dict[tuple[str, str, IsolationLevel], dict[int, list[HeldRange]]] = {}
        for held in first:
            key = held.topic_id, held.topic, held.isolation_level
            by_topic.setdefault(key, {}).setdefault(held.partition, []).append(held)
        partition_count = max(sum(map(len, by_topic.values())), 1)
        max_bytes = max(min(self._max_partition_bytes, self._max_bytes // partition_count), 1)
        read: list[ReadRange] = []
        unreadable: list[ReadRange] = []
        for (topic_id, topic, isolation_level), partitions in by_topic.items():
            spans: dict[int, _Span] = {}
            for partition, of_partition in partitions.items():
                spans[partition], later = _first_span(of_partition)
                rest += later
            try:
                of_topic = self._read_topic(topic, topic_id, spans, max_bytes, isolation_level)
            except UnknownTopicError:
                # One lookup proves nothing, since the metadata of brokers lags: the processor decides.
                unreadable += [_unread(held, NO_TOPIC) for span in spans.values() for held in span.ranges]
                continue
            read += of_topic.ranges
            rest += of_topic.rest
            unreadable += of_topic.unreadable
        return Chunk(read, tuple(rest), unreadable)

    def _read_topic(
        self, topic: str, topic_id: str, spans: dict[int, _Span], max_bytes: int, isolation_level: IsolationLevel
    ) -> Chunk:
        """Read a span of each partition; raise `UnknownTopicError` if the topic is not the acquired one any more."""
        read_spans, silent = self._read_spans(topic, topic_id, spans, max_bytes, isolation_level)
        self._silent.difference_update((topic_id, partition) for partition in spans)
        self._silent.update((topic_id, partition) for partition in silent)
        read: list[ReadRange] = []
        rest: list[HeldRange] = []
        for partition, span in spans.items():
            if (messages := read_spans.get(partition)) is None:
                continue
            for held in span.ranges:
                if held.first_offset < messages.seen_end:
                    read.append(self._read_range(held, messages))
                if held.last_offset >= messages.seen_end:
                    rest.append(held.cut(max(held.first_offset, messages.seen_end), held.last_offset))
        # Described after the reads, not before them: a topic id that still holds now held then, too.
        identity = self._identity(topic, topic_id)
        unreadable: list[ReadRange] = []
        for partition, span in spans.items():
            if partition in read_spans:
                continue
            if partition in identity.leaderless:
                unreadable += [_unread(held, _NO_LEADER) for held in span.ranges]
            elif len(silent) == len(spans):
                unreadable += [_unread(held, _NO_RESPONSE) for held in span.ranges]
            else:
                rest += span.ranges
        return Chunk(read, tuple(rest), unreadable)

    def _read_spans(
        self, topic: str, topic_id: str, spans: dict[int, _Span], max_bytes: int, isolation_level: IsolationLevel
    ) -> tuple[dict[int, _SpanMessages], set[int]]:
        """Return the messages of each partition that has some, or has none for sure; and those that do not respond."""
        wanted = {partition: OffsetSpan(span.start_offset, span.end_offset) for partition, span in spans.items()}
        first = self._log.read_messages(topic, topic_id, wanted, max_bytes, isolation_level)
        read_spans = {partition: _seen(messages) for partition, messages in first.items() if messages}
        if empty := [partition for partition, messages in first.items() if not messages]:
            # Records may come between two reads of a log: only a read after that of the end offset shows holes.
            offsets = self._log.offsets(topic, empty)
            again = {
                partition: _existing(wanted[partition], offsets[partition], isolation_level) for partition in empty
            }
            asked = {partition: span for partition, span in again.items() if span.start_offset < span.end_offset}
            second = self._log.read_messages(topic, topic_id, asked, max_bytes, isolation_level) if asked else {}
            for partition in empty:
                if messages := second.get(partition):
                    read_spans[partition] = _seen(messages)
                elif partition in second or partition not in asked:
                    end = offsets[partition].readable_end(isolation_level)
                    read_spans[partition] = _SpanMessages([], spans[partition].end_offset, end)
        return read_spans, spans.keys() - first.keys()

    def _identity(self, topic: str, topic_id: str) -> TopicIdentity:
        identity = self._log.identify([topic])[topic]
        if isinstance(identity, ShareGroupError):
            raise identity
        if identity.topic_id != topic_id:
            raise UnknownTopicError(f"The topic {topic} was deleted and created again.", "Read the new one.")
        return identity

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
        log_start = self._log.offsets(held.topic, [held.partition])[held.partition].start_offset
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


def _unread(held: HeldRange, reason: str) -> ReadRange:
    return ReadRange(held, [], unread([held], reason))


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
