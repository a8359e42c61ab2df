"""The gaps that members reported, checked against the log: an offset without a record never gets one later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.offset_ranges import OffsetRange, consecutive
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log

_OFFSETS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class GapCheck:
    """The result of a check.

    Attributes:
        checked_count: offsets that were read.
        unchecked_count: offsets that cannot be read any more.
        unchecked_reason: why not; "" when all were read.
        with_record: ranges of offsets that do have a record.
    """

    checked_count: int
    unchecked_count: int
    unchecked_reason: str
    with_record: tuple[OffsetRange, ...]


def check_gaps(
    log: Log, topic: str, topic_id: str, partition: int, ranges: Iterable[OffsetRange], level: IsolationLevel
) -> GapCheck:
    """Read the offsets of reported gaps again.

    A record that was there, and was deleted or compacted since, cannot be distinguished from a gap.

    Args:
        topic_id: topic id of the gaps.
        level: isolation level of the group: to a member under read_committed, an aborted record is a gap.
    """
    ranges = list(ranges)
    total = sum(last - first + 1 for first, last in ranges)
    try:
        present_id = log.describe_topic(topic).topic_id
    except UnknownTopicError:
        present_id = ""
    if present_id != topic_id:
        return GapCheck(0, total, "the topic was deleted", ())
    offsets = log.offsets(topic)[partition]
    readable = [r for low, high in ranges for r in _within(low, high, offsets.start_offset, offsets.end_offset - 1)]
    present = [offset for low, high in readable for offset in _present(log, topic, partition, low, high, level)]
    checked = sum(last - first + 1 for first, last in readable)
    reason = f"the log has offsets {offsets.start_offset} to {offsets.end_offset - 1}" if checked < total else ""
    return GapCheck(checked, total - checked, reason, tuple(consecutive(present)))


def _within(first: int, last: int, lowest: int, highest: int) -> Iterator[OffsetRange]:
    if max(first, lowest) <= min(last, highest):
        yield max(first, lowest), min(last, highest)


def _present(log: Log, topic: str, partition: int, first: int, last: int, level: IsolationLevel) -> Iterator[int]:
    """Yield the offsets of a range that have a record; it is read in pieces."""
    for low in range(first, last + 1, _OFFSETS_AT_ONCE):
        end = min(last + 1, low + _OFFSETS_AT_ONCE)
        yield from (record.offset for record in log.read(topic, partition, low, end, isolation_level=level))
