"""Points in the history of a state table: a time, a commit, or a position in the request log.

A point divides the cuts of the processor: those before it, which count, and those after it. A cut is never divided,
since its messages were applied together, and waiting fetches were served at its end.

- **A time**: all cuts whose time is at or before it. A commit may have cuts on both sides. A time after the last commit
  is the state of that commit, up to now; a later one is an error, since it is most likely a mistake in the time.
- **A commit**: all cuts of the commits up to it.
- **A position of the request log**: the cut that applied the message there, and all cuts before it; of the other
  request partitions, all cuts whose time is at or before the time of that cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sharegroup.audit.history.extent import BEFORE_ALL_COMMITS, Base, HistoryExtent, iso_time, read_markers
from sharegroup.audit.history.row_source import RowSource
from sharegroup.errors import ConfigurationError
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.rows import StateRow

LATEST = "latest"
FORMS = "an ISO-8601 time, epoch ms, commit:ID, PARTITION:OFFSET of the request log, or latest"

_CLOCKS_DIFFER_MS = 10_000
"""The clocks of two request partitions, which are those of their brokers, differ by less."""

_LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time that has a date."""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """All cuts at or before a time."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """All commits up to one; None is the last commit."""

    commit_id: int | None


@dataclass(frozen=True, slots=True)
class RequestPoint:
    """The cut that applied a message of the request log, and all cuts before it."""

    partition: int
    offset: int


PointRequest = TimePoint | CommitPoint | RequestPoint


@dataclass(frozen=True, slots=True)
class Point:
    """A point in the history, with all that a fold needs.

    Attributes:
        text: the point as it was asked for.
        time_ms: its time: cuts after it are later, or of later commits; epoch ms.
        commit_id: the last commit that is wholly before it.
        end_offsets: request partition → offset after the last message before the point.
        base: the last base that is not after it.
        through_commit_id: rows of later commits are after the point.
        until_ms: rows of a later time are after the point; None for a commit.
        request_end: request partition and end offset; rows of later messages there are after the point.
    """

    text: str
    time_ms: int
    commit_id: int
    end_offsets: Mapping[int, int]
    base: Base
    through_commit_id: int
    until_ms: int | None = None
    request_end: tuple[int, int] | None = field(default=None)

    def includes(self, row: StateRow) -> bool:
        """Return True if a row of a commit is before the point."""
        if row.commit_id > self.through_commit_id or (self.until_ms is not None and row.time_ms > self.until_ms):
            return False
        partition, end_offset = self.request_end or (None, 0)
        return row.request_partition != partition or row.request_offset < end_offset

    def document(self) -> dict[str, Any]:
        """Return the point as a JSON object."""
        return {
            "point": self.text,
            "time_ms": self.time_ms,
            "time": iso_time(self.time_ms),
            "commit_id": self.commit_id,
            "end_offsets": {str(partition): end for partition, end in sorted(self.end_offsets.items())},
        }


def parse_point(text: str) -> PointRequest:
    """Return the point that a text names.

    Raises:
        ConfigurationError: the text has none of the forms.
    """
    if text == LATEST:
        return CommitPoint(None)
    if commit := re.fullmatch(r"commit:(\d{1,18})", text):
        return CommitPoint(int(commit[1]))
    if position := re.fullmatch(r"(\d{1,9}):(\d{1,18})", text):
        return RequestPoint(int(position[1]), int(position[2]))
    return TimePoint(parse_time(text, FORMS))


def parse_time(text: str, forms: str = "an ISO-8601 time or epoch ms") -> int:
    """Return a time in epoch ms; a time without a zone is in UTC.

    Raises:
        ConfigurationError: the text is neither ISO-8601 nor a number, or before 1970.
    """
    time_ms = int(text) if re.fullmatch(r"\d{1,15}", text) else _iso_ms(text)
    if time_ms is None or not 0 <= time_ms <= _LAST_MS:
        raise ConfigurationError(f"{text!r} is no point in the history.", f"Write {forms}.")
    return time_ms


def _iso_ms(text: str) -> int | None:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000)


def resolve(source: RowSource, extent: HistoryExtent, text: str, now_ms: int) -> Point:
    """Return the point that a text names.

    Args:
        now_ms: the time now; epoch ms.

    Raises:
        ConfigurationError: the text has none of the forms.
        PointOutsideHistoryError: the point is before the first commit, a commit or message after the last one, a time
            in the future, or pruned; the error says what is answerable.
    """
    match parse_point(text):
        case TimePoint(time_ms):
            extent.check_not_future(time_ms, now_ms)
            return _at_time(source, extent, text, time_ms)
        case CommitPoint(commit_id):
            return _at_commit(source, extent, text, extent.last_commit_id if commit_id is None else commit_id)
        case RequestPoint(partition, offset):
            return _at_request(source, extent, text, partition, offset)


def _at_time(source: RowSource, extent: HistoryExtent, text: str, time_ms: int) -> Point:
    commit_id = extent.last_commit_until(time_ms)
    base = extent.base_of(commit_id)
    if base is None:
        raise extent.outside(f"The state at {iso_time(time_ms)} is not in the state table any more.")
    before = _end_offsets(source, extent, commit_id)
    cuts = [cut for cut in _cuts_after(source, extent, commit_id, time_ms) if cut.time_ms <= time_ms]
    if commit_id == BEFORE_ALL_COMMITS and not cuts:
        raise extent.outside(f"There is no commit at or before {iso_time(time_ms)}.")
    return Point(
        text=text,
        time_ms=time_ms,
        commit_id=commit_id,
        end_offsets={**before, **{cut.partition: cut.end_offset for cut in cuts}},
        base=base,
        through_commit_id=extent.last_commit_id,
        until_ms=time_ms,
    )


def _cuts_after(source: RowSource, extent: HistoryExtent, commit_id: int, time_ms: int) -> Iterator[Cut]:
    """Yield the cuts of later commits that may be at or before a time."""
    following = extent.marker_ids_after(commit_id)
    if following:
        last = max(following[0], extent.last_commit_until(time_ms + _CLOCKS_DIFFER_MS))
        for marker in read_markers(source, commit_id, last):
            yield from marker.cuts


def _at_commit(source: RowSource, extent: HistoryExtent, text: str, commit_id: int) -> Point:
    if commit_id > extent.last_commit_id:
        raise extent.outside(f"There is no commit {commit_id} yet.")
    base, time_ms = extent.base_of(commit_id), extent.time_of(commit_id)
    if base is None or time_ms is None:
        raise extent.outside(f"The state after commit {commit_id} is not in the state table any more.")
    return Point(
        text=text,
        time_ms=time_ms,
        commit_id=commit_id,
        end_offsets=_end_offsets(source, extent, commit_id),
        base=base,
        through_commit_id=commit_id,
    )


def _at_request(source: RowSource, extent: HistoryExtent, text: str, partition: int, offset: int) -> Point:
    commit_id, cut = _cut_of(source, extent, partition, offset)
    at_time = _at_time(source, extent, text, cut.time_ms)
    # Of cuts at the same time, only those up to this one count, and a base may hold later ones.
    whole_commit_id = min(at_time.commit_id, commit_id - 1)
    base = extent.base_of(whole_commit_id)
    if base is None:
        raise extent.outside(f"The state at message {partition}:{offset} is not in the state table any more.")
    return Point(
        text=text,
        time_ms=cut.time_ms,
        commit_id=whole_commit_id,
        end_offsets={**at_time.end_offsets, partition: cut.end_offset},
        base=base,
        through_commit_id=extent.last_commit_id,
        until_ms=cut.time_ms,
        request_end=(partition, cut.end_offset),
    )


def _cut_of(source: RowSource, extent: HistoryExtent, partition: int, offset: int) -> tuple[int, Cut]:
    """Return the commit and the cut that applied a message; a bisection reads few of the markers."""
    base = extent.first_base
    commit_ids = extent.marker_ids_after(base.commit_id)
    low, high = 0, len(commit_ids)
    while low < high:
        middle = (low + high) // 2
        if _marker(source, extent, commit_ids[middle]).end_offsets.get(partition, 0) > offset:
            high = middle
        else:
            low = middle + 1
    if low == len(commit_ids):
        raise extent.outside(f"Message {offset} of request partition {partition} is not applied by any commit yet.")
    marker = _marker(source, extent, commit_ids[low])
    cut = next((c for c in marker.cuts if c.partition == partition and c.end_offset > offset), None)
    is_before = low == 0 and _end_offsets(source, extent, base.commit_id).get(partition, 0) > offset
    if cut is None or is_before:
        raise extent.outside(
            f"The commit that applied message {partition}:{offset} is not in the state table any more."
        )
    return commit_ids[low], cut


def _marker(source: RowSource, extent: HistoryExtent, commit_id: int) -> CommitMarkerPayload:
    marker = next(read_markers(source, commit_id - 1, commit_id), None)
    if marker is None:
        raise extent.outside(f"The marker of commit {commit_id} is not in the state table any more.")
    return marker


def _end_offsets(source: RowSource, extent: HistoryExtent, commit_id: int) -> Mapping[int, int]:
    if extent.has_marker(commit_id):
        return _marker(source, extent, commit_id).end_offsets
    return extent.end_offsets_of_base(commit_id)
