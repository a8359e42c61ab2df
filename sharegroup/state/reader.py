"""Reading the state table: rows, the last marker, and what recovery needs. No call changes the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pydantic import ValidationError

from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.table_snapshot import TableSnapshotPayload
from sharegroup.state.commit import SNAPSHOT_TRANSACTION
from sharegroup.state.delta_table import NO_LEADER_EPOCH, highest_leader_epoch, open_table, translated
from sharegroup.state.fold import SHARE_PARTITION_TYPES
from sharegroup.state.schema import STATE_TABLE_SCHEMA, utc_date
from sharegroup.state.stored_rows import StoredRows, decoded

_RECOVERY_TYPES = SHARE_PARTITION_TYPES | {
    RecordType.GROUP_METADATA,
    RecordType.GROUP_STATUS,
}


@dataclass(frozen=True, slots=True)
class CommitMarkerInfo:
    """The marker of a commit.

    Attributes:
        commit_id: id of the commit; rises for the table's life.
        leader_epoch: epoch of the processor that committed it.
        time_ms: time of its last cut; epoch ms.
        payload: end offsets, cuts, outbox and the rest of the marker.
    """

    commit_id: int
    leader_epoch: int
    time_ms: int
    payload: CommitMarkerPayload

    @property
    def end_offsets(self) -> Mapping[int, int]:
        """Return request partition → offset after its last applied message."""
        return self.payload.end_offsets


@dataclass(frozen=True, slots=True)
class Recovery:
    """All that decides the present state of the table's groups.

    Attributes:
        rows: the last table snapshot and what follows it, in fold order; their fold equals the fold of all rows.
        last_marker: marker of the last commit; None when there is none yet.
        snapshot_marker: marker of the last commit in the table snapshot; None when there is no snapshot yet.
        takeovers_since_marker: Fence rows that follow the last marker, or that there are without a marker.
        files: paths of the data files that had to be read.
        file_count: data files of the whole table.
    """

    rows: StoredRows
    last_marker: CommitMarkerInfo | None
    snapshot_marker: CommitMarkerInfo | None
    takeovers_since_marker: int
    files: tuple[str, ...]
    file_count: int


class _Decisive(NamedTuple):
    """A recovery without its files, whose look-up takes as long as half of the reading."""

    rows: StoredRows
    last_marker: CommitMarkerInfo | None
    snapshot_marker: CommitMarkerInfo | None
    snapshot_ms: int | None


class StateTableReader:
    """Reads the newest version of the table, anew with each call.

    Every call raises StateTableError when there is no table or it cannot be read, and
    UnsupportedFormatVersionError when another release wrote it in a way unknown here.

    Args:
        path: the table's folder.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def path(self) -> str:
        """Return the table's folder."""
        return self._path

    def exists(self) -> bool:
        """Whether there is a table; the only call that does not raise when there is none."""
        with translated(self._path, "read"):
            return DeltaTable.is_deltatable(self._path)

    def rows(
        self,
        record_types: Collection[RecordType] | None = None,
        group_id: str | None = None,
        since_ms: int | None = None,
        before_ms: int | None = None,
    ) -> list[StateRow]:
        """Rows in fold order.

        Args:
            record_types: only rows of these types.
            group_id: only rows of this group.
            since_ms: only rows whose time is this or later.
            before_ms: only rows whose time is earlier than this.
        """
        conditions = []
        if record_types is not None:
            conditions.append(_is_any_of("record_type", record_types))
        if group_id is not None:
            conditions.append(f"group_id = {_literal(group_id)}")
        if since_ms is not None:
            conditions.append(f"time_ms >= {since_ms} AND date >= {_literal(utc_date(since_ms))}")
        if before_ms is not None:
            conditions.append(f"time_ms < {before_ms} AND date <= {_literal(utc_date(before_ms))}")
        return list(StoredRows(self._scanned(open_table(self._path), conditions)))

    def recovery(self, group_id: str | None = None) -> Recovery:
        """All that decides the present state: the last table snapshot and what follows it.

        Args:
            group_id: only rows of this group.
        """
        table = open_table(self._path)
        decisive = self._decisive(table, group_id)
        return Recovery(
            rows=decisive.rows,
            last_marker=decisive.last_marker,
            snapshot_marker=decisive.snapshot_marker,
            takeovers_since_marker=self._takeovers_since(table, decisive.last_marker),
            files=self._recovery_files(table, decisive.snapshot_ms, decisive.snapshot_marker),
            file_count=len(table.file_uris()),
        )

    def recovery_rows(self, group_id: str | None = None) -> list[StateRow]:
        """The rows that decide the present state, in fold order: their fold equals the fold of all rows.

        Args:
            group_id: only rows of this group.
        """
        return list(self._decisive(open_table(self._path), group_id).rows)

    def last_marker(self) -> CommitMarkerInfo | None:
        """Return the marker of the last commit; None when there is none yet."""
        table = open_table(self._path)
        snapshot_ms = self._snapshot_ms(table)
        return self._last_marker(table, self._snapshot_marker(table, snapshot_ms))

    def last_fence(self) -> StateRow | None:
        """The Fence of the processor that took the table over last; None when none has."""
        table = open_table(self._path)
        with translated(self._path, "read"):
            leader_epoch = highest_leader_epoch(table)
        is_fence = _is_any_of("record_type", [RecordType.FENCE])
        # The commit id tells the statistics of files apart: no commit of a processor has it.
        fences = list(StoredRows(self._scanned(table, [is_fence, f"leader_epoch = {leader_epoch}", "commit_id = -1"])))
        return fences[-1] if fences else None

    def last_snapshot_ms(self) -> int | None:
        """The time of the last table snapshot; None when there is none yet."""
        return self._snapshot_ms(open_table(self._path))

    def row_counts(self) -> tuple[int, int]:
        """Return how many rows the last table snapshot has, and how many of those that recovery needs follow it."""
        table = open_table(self._path)
        snapshot_ms = self._snapshot_ms(table)
        following = [_is_any_of("record_type", _RECOVERY_TYPES), _follows(self._snapshot_marker(table, snapshot_ms))]
        count = self._scanned(table, following, ["commit_id"]).num_rows
        if snapshot_ms is None:
            return 0, count
        return self._scanned(table, [_is_snapshot_of(snapshot_ms)], ["commit_id"]).num_rows, count

    def leader_epoch(self) -> int:
        """The epoch of the processor that took the table over last; 0 when none has."""
        table = open_table(self._path)
        with translated(self._path, "read"):
            return highest_leader_epoch(table)

    def _decisive(self, table: DeltaTable, group_id: str | None) -> _Decisive:
        snapshot_ms = self._snapshot_ms(table)
        before = self._snapshot_marker(table, snapshot_ms)
        of_group = "group_id <> ''" if group_id is None else f"group_id = {_literal(group_id)}"
        following = self._scanned(table, [_is_any_of("record_type", _RECOVERY_TYPES), _follows(before), of_group])
        parts = [following]
        if snapshot_ms is not None:
            parts.append(self._scanned(table, [_is_snapshot_of(snapshot_ms), of_group]))
        return _Decisive(
            rows=StoredRows(pa.concat_tables(parts)),
            last_marker=self._last_marker(table, before),
            snapshot_marker=before,
            snapshot_ms=snapshot_ms,
        )

    def _scanned(self, table: DeltaTable, conditions: Sequence[str], columns: Sequence[str] = ()) -> pa.Table:
        names = list(columns) or STATE_TABLE_SCHEMA.names
        predicate = " AND ".join(f"({condition})" for condition in conditions if condition) or None
        with translated(self._path, "read"):
            batches = pa.RecordBatchReader.from_stream(table.scan(columns=names, predicate=predicate))
            schema = pa.schema([STATE_TABLE_SCHEMA.field(name) for name in names])
            return batches.read_all().cast(schema)

    def _snapshot_ms(self, table: DeltaTable) -> int | None:
        with translated(self._path, "read"):
            return table.transaction_version(SNAPSHOT_TRANSACTION)

    def _snapshot_marker(self, table: DeltaTable, snapshot_ms: int | None) -> CommitMarkerInfo | None:
        if snapshot_ms is None:
            return None
        first = next(decoded(self._scanned(table, [_is_snapshot_of(snapshot_ms), "group_id = ''"])), None)
        if first is None:
            raise StateTableError(
                f"State table {self._path} lacks its table snapshot of {snapshot_ms}.",
                "Rows were deleted by another program: restore the table from a copy.",
            )
        return self._parsed(first, _snapshot_info)

    def _last_marker(self, table: DeltaTable, before: CommitMarkerInfo | None) -> CommitMarkerInfo | None:
        """Return the last marker; only its own payload is read, since a marker may have megabytes of answers."""
        is_marker = _is_any_of("record_type", [RecordType.COMMIT_MARKER])
        commit_ids = self._scanned(table, [is_marker, _follows(before)], ["commit_id"])["commit_id"]
        if not len(commit_ids):
            return before
        last = max(commit_ids.to_pylist())
        (*_, marker) = decoded(self._scanned(table, [is_marker, f"commit_id = {last}"]))
        return self._parsed(marker, _marker_info)

    def _takeovers_since(self, table: DeltaTable, marker: CommitMarkerInfo | None) -> int:
        """Return how many Fences follow a marker: each takes the leader epoch above the one before."""
        with translated(self._path, "read"):
            return highest_leader_epoch(table) - (marker.leader_epoch if marker is not None else NO_LEADER_EPOCH)

    def _parsed(self, row: StateRow, parse: Callable[[StateRow], CommitMarkerInfo]) -> CommitMarkerInfo:
        try:
            return parse(row)
        except ValidationError as error:
            raise UnsupportedFormatVersionError(
                f"The marker of commit {row.commit_id} of leader epoch {row.leader_epoch} cannot be read: {error}.",
                f"Read state table {self._path} with the release that wrote it, or a later one.",
            ) from None

    def _recovery_files(
        self, table: DeltaTable, snapshot_ms: int | None, before: CommitMarkerInfo | None
    ) -> tuple[str, ...]:
        """The files whose statistics say that they may hold a row of the recovery."""
        with translated(self._path, "read"):
            files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return tuple(file["path"] for file in files if _may_hold(file, snapshot_ms, before))


def _is_any_of(column: str, values: Collection[str]) -> str:
    return f"{column} IN ({', '.join(map(_literal, sorted(values)))})" if values else "FALSE"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_snapshot_of(snapshot_ms: int) -> str:
    date = _literal(utc_date(snapshot_ms))
    return f"date = {date} AND time_ms = {snapshot_ms} AND record_type = {_literal(RecordType.TABLE_SNAPSHOT)}"


def _follows(before: CommitMarkerInfo | None) -> str:
    """Return the condition of rows of later commits."""
    return "" if before is None else f"commit_id > {before.commit_id}"


def _may_hold(file: Mapping[str, Any], snapshot_ms: int | None, before: CommitMarkerInfo | None) -> bool:
    statistics = [file.get(name) for name in ("max.commit_id", "min.time_ms", "max.time_ms")]
    if before is None or snapshot_ms is None or None in statistics:
        return True
    commit_id, earliest_ms, latest_ms = map(int, statistics)  # type: ignore[arg-type]  # none is None
    return commit_id > before.commit_id or earliest_ms <= snapshot_ms <= latest_ms


def _marker_info(row: StateRow) -> CommitMarkerInfo:
    payload = CommitMarkerPayload.model_validate(row.payload)
    return CommitMarkerInfo(row.commit_id, row.leader_epoch, row.time_ms, payload)


def _snapshot_info(row: StateRow) -> CommitMarkerInfo:
    payload = TableSnapshotPayload.model_validate(row.payload)
    return CommitMarkerInfo(payload.commit_id, payload.leader_epoch, payload.commit_time_ms, payload.marker)
