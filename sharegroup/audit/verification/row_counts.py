"""The rows of commits as counts: what the checks of the commits need of all rows but markers.

Rows of one commit that are alike are one count. They are checked over columns: counts that certainly agree with their
marker are left out, and `commits` judges the doubtful ones and names what is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.audit.verification.row_columns import Flags, Numbers
from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA, utc_date

WITHOUT_COMMIT = frozenset({RecordType.FENCE, RecordType.TABLE_SNAPSHOT, RecordType.PRUNED})
"""Types of rows that belong to no commit of a processor."""


ALIKE_COLUMNS = ("commit_id", "leader_epoch", "record_type", "group_id", "request_partition", "time_ms")
"""Columns in which the rows of one count are alike, beside that of a wrong date."""

WRONG_DATE = "wrong_date"

DAY_MS = 86_400_000
_LARGEST = 1 << 62
_KINDS = {kind.value: kind for kind in RecordType}


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of the commits, by a marker, or by the table snapshot at the start of a pruned table."""

    commit_id: int
    leader_epoch: int
    end_offsets: Mapping[int, int]
    unapplied_groups: Mapping[str, int] = field(default_factory=dict)


BEGINNING = Position(-1, 0, {})
"""The position before the first commit."""


class Commit(NamedTuple):
    """A commit by its marker.

    Attributes:
        before: the position before it; None when it is not known.
    """

    marker: StateRow
    payload: CommitMarkerPayload
    before: Position | None


class RowCount(NamedTuple):
    """Rows of one commit that are alike.

    Attributes:
        leader_epoch: epoch of the processor in the rows.
        group_id: their group; "" for markers.
        time_ms: their time; epoch ms.
        wrong_date: their value of the partition column, if it is not the date of their time; else "".
        first_offset: the lowest message that one of them reflects.
        last_offset: the highest one.
    """

    commit_id: int
    leader_epoch: int
    record_type: RecordType
    group_id: str
    request_partition: int
    time_ms: int
    wrong_date: str
    row_count: int
    first_offset: int
    last_offset: int


_SCHEMA = pa.schema(
    [
        *(STATE_TABLE_SCHEMA.field(name) for name in ALIKE_COLUMNS),
        pa.field(WRONG_DATE, pa.string()),
        *(pa.field(name, pa.int64()) for name in ("row_count", "first_offset", "last_offset")),
    ]
)


def is_of_commit(offset: Any, start: Any, end: Any) -> Any:
    """Return true if a commit has applied a message; of numbers or of columns."""
    return (start <= offset) & (offset < end)


def has_time_of_cut(time_ms: Any, earliest_ms: Any, latest_ms: Any) -> Any:
    """Return true if a row has the time of its cut; of numbers or of columns."""
    return (earliest_ms <= time_ms) & (time_ms <= latest_ms)


class RowCounts:
    """Counts of rows.

    Args:
        table: a row for each count, with the fields of `RowCount` as columns.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table.select(_SCHEMA.names).combine_chunks()
        self._commit_id = self._numbers("commit_id")

    @classmethod
    def of_rows(cls, rows: Iterable[StateRow]) -> RowCounts:
        """Count rows; those that belong to no commit are left out."""
        names = [*ALIKE_COLUMNS, PARTITION_COLUMN, "request_offset"]
        of_commits = [row for row in rows if row.record_type not in WITHOUT_COMMIT]
        columns = {name: [getattr(row, name) for row in of_commits] for name in names}
        columns["record_type"] = [row.record_type.value for row in of_commits]
        schema = pa.schema([STATE_TABLE_SCHEMA.field(name) for name in names])
        return cls(counted_rows(pa.table(columns, schema)))

    def by_chunk(self, size: int) -> Iterator[tuple[int, RowCounts]]:
        """Yield the counts of chunks of commits, by the number of the chunk."""
        chunks = self._commit_id // size
        order = np.argsort(chunks, kind="stable")
        ordered = self._table.take(pa.array(order))
        numbers, begin = np.unique(chunks[order], return_index=True)
        for number, first, end in zip(numbers, begin, np.append(begin, len(order))[1:], strict=True):
            yield int(number), RowCounts(ordered.slice(first, end - first))

    def totals(self) -> dict[int, int]:
        """Return the number of rows of each commit."""
        totals: dict[int, int] = defaultdict(int)
        ids, position = np.unique(self._commit_id, return_inverse=True)
        sums = np.zeros(len(ids), np.int64)
        np.add.at(sums, position, self._numbers("row_count"))
        totals.update(zip(ids.tolist(), sums.tolist(), strict=True))
        return totals

    def leader_epochs(self) -> dict[int, int]:
        """Return the leader epoch of the first row of each commit."""
        ids, first = np.unique(self._commit_id, return_index=True)
        return dict(zip(ids.tolist(), self._numbers("leader_epoch")[first].tolist(), strict=True))

    def doubtful(self, commits: Sequence[Commit]) -> dict[int, list[RowCount]]:
        """Return the counts that may not agree with their marker, by commit.

        Args:
            commits: commits with a marker, in the order of their ids.
        """
        of_commits: dict[int, list[RowCount]] = defaultdict(list)
        if not commits:
            return of_commits
        ids = np.array([commit.marker.commit_id for commit in commits])
        position = np.minimum(np.searchsorted(ids, self._commit_id), len(ids) - 1)
        has_marker = ids[position] == self._commit_id
        is_doubtful = has_marker & ~(self._are_dated() & self._agree(commits, position))
        for row in self._table.filter(pa.array(is_doubtful)).to_pylist():
            if row["record_type"] not in _KINDS:
                raise UnsupportedFormatVersionError(
                    f"State table column record_type has {row['record_type']!r}, which this release does not know.",
                    "Read the table with the release that wrote it, or a later one.",
                )
            row["record_type"] = _KINDS[row["record_type"]]
            of_commits[row["commit_id"]].append(RowCount(**row))
        return of_commits

    def _agree(self, commits: Sequence[Commit], position: Numbers) -> Flags:
        """Return the counts that agree with the marker at a position."""
        first, last, time_ms = (self._numbers(name) for name in ("first_offset", "last_offset", "time_ms"))
        partitions, partition = np.unique(self._numbers("request_partition"), return_inverse=True)
        bounds = _Bounds(commits, partitions.tolist())
        at = (position, partition)
        agrees = self._numbers("leader_epoch") == bounds.leader_epoch[position]
        is_marker = self._is_of(RecordType.COMMIT_MARKER)
        is_known = pc.is_in(self._table["record_type"], pa.array(list(_KINDS))).to_numpy()
        start, end = bounds.start[at], bounds.end[at]
        is_right = is_of_commit(first, start, end) & is_of_commit(last, start, end) & bounds.is_usual[position]
        cut_ms = bounds.cut_times_ms(position, partition, last)
        has_cut = cut_ms >= 0
        earliest_ms = np.where(self._is_of(RecordType.GROUP_STATUS), 0, cut_ms)
        latest_ms = np.maximum(cut_ms, bounds.message_ms[at])
        is_right &= ~has_cut | has_time_of_cut(time_ms, earliest_ms, latest_ms)
        agrees_all: Flags = is_known & agrees & (is_marker | is_right)
        return agrees_all

    def _are_dated(self) -> Flags:
        """Return the counts that have no wrong date."""
        flags: Flags = pc.equal(self._table[WRONG_DATE], "").to_numpy()
        return flags

    def _is_of(self, kind: RecordType) -> Flags:
        flags: Flags = pc.equal(self._table["record_type"], kind.value).to_numpy()
        return flags

    def _numbers(self, name: str) -> Numbers:
        values: Numbers = self._table[name].to_numpy().astype(np.int64, copy=False)
        return values


class _Bounds:
    """The bounds that markers set for the rows of their commits, as columns by commit and request partition."""

    def __init__(self, commits: Sequence[Commit], partitions: Sequence[int]) -> None:
        befores = [commit.before or BEGINNING for commit in commits]
        payloads = [commit.payload for commit in commits]
        ids = [commit.marker.commit_id for commit in commits]
        self._width = len(partitions)
        self.leader_epoch = np.array([commit.marker.leader_epoch for commit in commits])
        self.start = np.array([[before.end_offsets.get(p, 0) for p in partitions] for before in befores])
        self.end = np.array([[payload.end_offsets.get(p, 0) for p in partitions] for payload in payloads])
        self.message_ms = np.array([[payload.message_times_ms.get(p, -1) for p in partitions] for payload in payloads])
        # A group that was rebuilt has bounds and cuts of its own; of a commit that is there twice, one is wrong.
        self.is_usual = np.array(
            [
                not before.unapplied_groups and not payload.group_cuts and ids.count(commit_id) == 1
                for before, payload, commit_id in zip(befores, payloads, ids, strict=True)
            ]
        )
        numbers = {partition: number for number, partition in enumerate(partitions)}
        cuts = [
            (at * self._width + numbers[cut.partition], cut.end_offset, cut.time_ms)
            for at, payload in enumerate(payloads)
            for cut in payload.cuts
            if cut.partition in numbers
        ]
        # Cuts that do not ascend are a finding of their own.
        cuts.sort()
        columns = np.array(cuts, np.int64).reshape(-1, 3).T
        self._cell, ends, self._cut_ms = columns
        self._low = int(ends.min(initial=0)) - 1
        self._span = int(ends.max(initial=0)) - self._low + 1
        self._is_narrow = self._span * (len(commits) * self._width + 1) < _LARGEST
        self._ends = self._cell * self._span + (ends - self._low) if self._is_narrow else ends

    def cut_times_ms(self, position: Numbers, partition: Numbers, last_offset: Numbers) -> Numbers:
        """Return the time of the cut with a message; -1 when no cut has it."""
        if not len(self._cell):
            return np.full(len(position), -1)
        cell = position * self._width + partition
        offset = np.clip(last_offset, self._low, self._low + self._span - 1) - self._low
        at = np.searchsorted(self._ends, cell * self._span + offset, side="right")
        is_known = at < len(self._cell)
        at = np.where(is_known, at, 0)
        return np.where(is_known & (self._cell[at] == cell), self._cut_ms[at], -1)


def counted_rows(rows: pa.Table) -> pa.Table:
    """Return the rows of commits as counts, with the fields of `RowCount` as columns."""
    of_no_commit = pc.is_in(rows["record_type"], pa.array([kind.value for kind in sorted(WITHOUT_COMMIT)]))
    rows = rows.filter(pc.invert(of_no_commit))
    alike = rows.select([*ALIKE_COLUMNS, "request_offset"]).append_column(WRONG_DATE, _wrong_dates(rows))
    grouped = alike.group_by([*ALIKE_COLUMNS, WRONG_DATE], use_threads=False)
    offsets = [("request_offset", "count"), ("request_offset", "min"), ("request_offset", "max")]
    return (
        grouped.aggregate(offsets)
        .select([*ALIKE_COLUMNS, WRONG_DATE, "request_offset_count", "request_offset_min", "request_offset_max"])
        .rename_columns(_SCHEMA.names)
    )


def _wrong_dates(rows: pa.Table) -> pa.ChunkedArray:
    """Return the date of each row; "" where it is that of its time, or not known."""
    time_ms, wrong = rows["time_ms"], rows[PARTITION_COLUMN]
    for date in pc.unique(wrong).to_pylist():
        begin_ms = _begin_ms(date)
        if begin_ms is not None:
            is_of_day = pc.and_(pc.greater_equal(time_ms, begin_ms), pc.less(time_ms, begin_ms + DAY_MS))
            wrong = pc.if_else(pc.and_(pc.equal(wrong, date), is_of_day), "", wrong)
    return wrong


def _begin_ms(date: str) -> int | None:
    """Return when the day of a value of the partition column begins, epoch ms; None when it is no date."""
    try:
        begin = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    begin_ms = 1_000 * int(begin.timestamp())
    return begin_ms if utc_date(begin_ms) == date else None
