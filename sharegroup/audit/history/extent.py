"""The extent of a table's history: its commits, and the bases from which its state can be folded.

A base is the beginning of the table, or a table snapshot, which has the state of all groups in one commit. A state is
known at a base, and at each point after it with no commit missing in between. A pruning deletes the rows of all commits
up to that of a table snapshot, so a pruned table begins with a base.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sharegroup.audit.history.row_source import RowSource
from sharegroup.errors import PointOutsideHistoryError
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.row_payloads import TableSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.row_filter import RowFilter

BEFORE_ALL_COMMITS = -1
"""Commit id of the base at the beginning of the table; the first commit has id 0."""


@dataclass(frozen=True, slots=True, order=True)
class Base:
    """A state from which a fold can begin.

    Attributes:
        commit_id: the last commit in it; BEFORE_ALL_COMMITS at the beginning of the table.
        time_ms: time of that commit; epoch ms.
        snapshot_ms: time of the rows of the table snapshot; None without one: the fold begins with nothing.
        end_offsets: request partition → offset after the last message in it.
    """

    commit_id: int
    time_ms: int
    snapshot_ms: int | None = None
    end_offsets: Mapping[int, int] = field(default_factory=dict, compare=False)

    @property
    def is_state(self) -> bool:
        """Return True if the state of all groups is known; else rows before it are missing."""
        return self.snapshot_ms is not None or self.commit_id == BEFORE_ALL_COMMITS


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """The start of the history that a table has, for people and documents.

    Attributes:
        commit_id: the first commit whose state is known.
        time_ms: its time; epoch ms.
        time: its time; ISO-8601, UTC.
        is_whole: True if the table has all its rows.
    """

    commit_id: int
    time_ms: int
    time: str
    is_whole: bool


class HistoryExtent:
    """The commits of a table, and its bases.

    Args:
        markers: (commit id, time) of each CommitMarker, in the order of the commits.
        snapshots: the bases of its table snapshots.

    Raises:
        PointOutsideHistoryError: the table has no commit.
    """

    def __init__(self, markers: Iterable[tuple[int, int]], snapshots: Iterable[Base]) -> None:
        self._commit_ids, self._times_ms = array("q"), array("q")
        latest_ms = 0
        for commit_id, time_ms in markers:
            # The clocks of request partitions differ: of two commits the later one may have the lower time.
            latest_ms = max(latest_ms, time_ms)
            self._commit_ids.append(commit_id)
            self._times_ms.append(latest_ms)
        self._bases = sorted(snapshots)
        if not self._commit_ids and not self._bases:
            raise no_commit()
        if self._commit_ids and self._commit_ids[0] == BEFORE_ALL_COMMITS + 1:
            self._bases.insert(0, Base(BEFORE_ALL_COMMITS, self._times_ms[0]))

    @property
    def last_commit_id(self) -> int:
        """Return the id of the last commit."""
        last_base = self._bases[-1].commit_id if self._bases else BEFORE_ALL_COMMITS
        return max(last_base, self._commit_ids[-1]) if self._commit_ids else last_base

    @property
    def last_ms(self) -> int:
        """Return the latest time of any commit."""
        last_base_ms = self._bases[-1].time_ms if self._bases else 0
        return max(last_base_ms, self._times_ms[-1]) if self._times_ms else last_base_ms

    def has_marker(self, commit_id: int) -> bool:
        """Return True if the marker of a commit is there."""
        index = bisect_left(self._commit_ids, commit_id)
        return index < len(self._commit_ids) and self._commit_ids[index] == commit_id

    def marker_ids_after(self, commit_id: int) -> array[int]:
        """Return the ids of the later commits whose markers are there, ascending."""
        return self._commit_ids[bisect_right(self._commit_ids, commit_id) :]

    def time_of(self, commit_id: int) -> int | None:
        """Return the latest time of a commit and those before it, epoch ms; None if the commit is not there."""
        if self.has_marker(commit_id):
            return self._times_ms[bisect_left(self._commit_ids, commit_id)]
        return next((base.time_ms for base in self._bases if base.commit_id == commit_id), None)

    def last_commit_until(self, time_ms: int) -> int:
        """Return the last commit that is wholly at or before a time; BEFORE_ALL_COMMITS for none."""
        index = bisect_right(self._times_ms, time_ms)
        of_markers = self._commit_ids[index - 1] if index else BEFORE_ALL_COMMITS
        of_bases = max((b.commit_id for b in self._bases if b.time_ms <= time_ms), default=BEFORE_ALL_COMMITS)
        return max(of_markers, of_bases)

    def end_offsets_of_base(self, commit_id: int) -> Mapping[int, int]:
        """Return the end offsets of the base at a commit; nothing if there is none."""
        return next((base.end_offsets for base in self._bases if base.commit_id == commit_id), {})

    def base_of(self, commit_id: int) -> Base | None:
        """Return the last base from which the state after a commit can be folded; None if there is none."""
        usable = (b for b in reversed(self._bases) if b.commit_id <= commit_id and self._is_gapless(b, commit_id))
        return next(usable, None)

    @property
    def first_base(self) -> Base:
        """Return the base from which all that follows is there; it is no state if rows are missing after all bases."""
        for base in self._bases:
            if self._is_gapless(base, self.last_commit_id):
                return base
        index = len(self._commit_ids) - 1
        while index and self._commit_ids[index - 1] == self._commit_ids[index] - 1:
            index -= 1
        return Base(self._commit_ids[index] - 1, self._times_ms[index])

    @property
    def start(self) -> HistoryStart:
        """Return from where on the table can answer."""
        base = self.first_base
        commit_id = max(base.commit_id, 0) if base.is_state else base.commit_id + 1
        return HistoryStart(commit_id, base.time_ms, iso_time(base.time_ms), base.commit_id == BEFORE_ALL_COMMITS)

    @property
    def answerable(self) -> list[tuple[int, int]]:
        """Return the ranges of commits whose state can be folded: first and last commit id of each."""
        ranges: list[tuple[int, int]] = []
        for base in self._bases:
            first, last = max(base.commit_id, BEFORE_ALL_COMMITS + 1), self._gapless_end(base)
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        return ranges

    def outside(self, problem: str) -> PointOutsideHistoryError:
        """Return the error about a point whose state cannot be folded, which names the points that can."""
        spans = [f"from {self._named(first)} to {self._named(last)}" for first, last in self.answerable]
        remedy = f"Answerable are the points {', and '.join(spans)}." if spans else "No point is answerable."
        return PointOutsideHistoryError(problem, remedy)

    def check_not_future(self, time_ms: int, now_ms: int) -> None:
        """Check that a time is not after the last commit and after now: what happens then is not known.

        Between the two nothing happened, so the state is that of the last commit. The clock of the log may be ahead.

        Raises:
            PointOutsideHistoryError: the time is after both.
        """
        if time_ms > max(now_ms, self.last_ms):
            raise self.outside(
                f"The time {iso_time(time_ms)} is in the future: it is {iso_time(now_ms)} now, and the last commit is "
                f"of {iso_time(self.last_ms)}."
            )

    def check_gapless(self, first: int, last: int) -> None:
        """Check that the rows of all commits after one, up to another one, are there.

        Raises:
            PointOutsideHistoryError: some are not.
        """
        if first < last and not self._is_gapless(Base(first, 0), last):
            raise self.outside(f"Rows of commits between {first} and {last} are not in the state table any more.")

    def _named(self, commit_id: int) -> str:
        time_ms = self.time_of(commit_id)
        return f"commit {commit_id}" if time_ms is None else f"commit {commit_id} ({iso_time(time_ms)})"

    def _is_gapless(self, base: Base, commit_id: int) -> bool:
        """Return True if no commit is missing after a base, up to another commit."""
        return commit_id <= self._gapless_end(base)

    def _gapless_end(self, base: Base) -> int:
        """Return the last commit before the first one that is missing after a base."""
        first = bisect_right(self._commit_ids, base.commit_id)
        # The difference between a commit's id and its index rises where commits are missing.
        expected = base.commit_id + 1 - first
        end = bisect_right(range(len(self._commit_ids)), expected, lo=first, key=lambda i: self._commit_ids[i] - i)
        return base.commit_id + end - first


def no_commit() -> PointOutsideHistoryError:
    """Return the error about a table that has no history yet."""
    return PointOutsideHistoryError(
        "The state table has no commit yet.", "It gets one with the first request of a group."
    )


def read_extent(source: RowSource) -> HistoryExtent:
    """Return the extent of a table's history.

    Raises:
        PointOutsideHistoryError: the table has no commit.
    """
    index = ("commit_id", "time_ms")
    markers = source.rows(RowFilter(record_types=(RecordType.COMMIT_MARKER,), columns=index))
    snapshots = source.rows(RowFilter(record_types=(RecordType.TABLE_SNAPSHOT,), group_id=""))
    whole = ((row.commit_id, row.time_ms) for row in markers if not _is_lost(source, row.commit_id))
    return HistoryExtent(whole, (base for row in snapshots if not _is_lost(source, (base := _base(row)).commit_id)))


def read_markers(source: RowSource, after: int, through: int) -> Iterator[CommitMarkerPayload]:
    """Yield the payloads of the markers of all commits after one, up to another one."""
    of_commits = RowFilter(
        record_types=(RecordType.COMMIT_MARKER,),
        after_commit_id=after,
        through_commit_id=through,
        columns=("commit_id", "payload"),
    )
    yield from (CommitMarkerPayload.model_validate(row.payload) for row in source.rows(of_commits))


def iso_time(time_ms: int) -> str:
    """Return a time as ISO-8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_lost(source: RowSource, commit_id: int) -> bool:
    """Return True if rows of a commit, or of the table snapshot after it, may be lost."""
    return any(first <= commit_id <= last for first, last in source.lost_commits)


def _base(row: StateRow) -> Base:
    payload = TableSnapshotPayload.model_validate(row.payload)
    return Base(payload.commit_id, payload.commit_time_ms, row.time_ms, payload.marker.end_offsets)
