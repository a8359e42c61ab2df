"""Reading the state table: rows, the last marker, and what recovery needs. No call changes the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pydantic import ValidationError

from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.table_snapshot import TableSnapshotPayload
from sharegroup.state.delta_table import highest_leader_epoch, open_table, translated
from sharegroup.state.fold import SHARE_PARTITION_TYPES, fold_order
from sharegroup.state.schema import STATE_TABLE_SCHEMA, table_to_rows, utc_date

SNAPSHOT_TRANSACTION = "sharegroup.table-snapshot"
"""The application transaction whose version is the time of the last table snapshot, in epoch ms."""

_RECOVERY_TYPES = SHARE_PARTITION_TYPES | {
    RecordType.GROUP_METADATA,
    RecordType.GROUP_STATUS,
    RecordType.COMMIT_MARKER,
}


@dataclass(frozen=True, slots=True)
class CommitMarkerInfo:
    """A committed micro-batch.

    Attributes:
        commit_id: its number within its checkpoint.
        leader_epoch: epoch of the processor that committed it.
        commit_time_ms: the batch's time.
        checkpoint_id: the streaming checkpoint that it belongs to.
        end_offsets: request partition → offset after its last applied message.
    """

    commit_id: int
    leader_epoch: int
    commit_time_ms: int
    checkpoint_id: str
    end_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Recovery:
    """All that decides the present state of the table's groups.

    Attributes:
        rows: the last table snapshot and what follows it, in fold order; their fold equals the fold of all rows.
        last_marker: the batch that was committed last; None when there is none yet.
        snapshot_marker: the last batch in the table snapshot; None when there is no snapshot yet.
        files: paths of the data files that had to be read.
        file_count: data files of the whole table.
    """

    rows: list[StateRow]
    last_marker: CommitMarkerInfo | None
    snapshot_marker: CommitMarkerInfo | None
    files: tuple[str, ...]
    file_count: int


class _Decisive(NamedTuple):
    """A recovery without its files, whose look-up takes as long as half of the reading."""

    rows: list[StateRow]
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
        return self._rows(open_table(self._path), conditions)

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
            files=self._recovery_files(table, decisive.snapshot_ms, decisive.snapshot_marker),
            file_count=len(table.file_uris()),
        )

    def recovery_rows(self, group_id: str | None = None) -> list[StateRow]:
        """The rows that decide the present state, in fold order: their fold equals the fold of all rows.

        Args:
            group_id: only rows of this group.
        """
        return self._decisive(open_table(self._path), group_id).rows

    def last_marker(self) -> CommitMarkerInfo | None:
        """The batch that was committed last; None when there is none yet."""
        return self._decisive(open_table(self._path), group_id="").last_marker

    def last_fence(self) -> StateRow | None:
        """The Fence of the processor that took the table over last; None when none has."""
        table = open_table(self._path)
        with translated(self._path, "read"):
            leader_epoch = highest_leader_epoch(table)
        is_fence = _is_any_of("record_type", [RecordType.FENCE])
        # The batch id tells the statistics of files apart: a batch never has it.
        fences = self._rows(table, [is_fence, f"leader_epoch = {leader_epoch}", "commit_id = -1"])
        return fences[-1] if fences else None

    def last_snapshot_ms(self) -> int | None:
        """The time of the last table snapshot; None when there is none yet."""
        return self._snapshot_ms(open_table(self._path))

    def leader_epoch(self) -> int:
        """The epoch of the processor that took the table over last; 0 when none has."""
        table = open_table(self._path)
        with translated(self._path, "read"):
            return highest_leader_epoch(table)

    def _decisive(self, table: DeltaTable, group_id: str | None) -> _Decisive:
        snapshot_ms = self._snapshot_ms(table)
        of_group = "" if group_id is None else f"group_id IN ('', {_literal(group_id)})"
        snapshot = [] if snapshot_ms is None else self._rows(table, [_is_snapshot_of(snapshot_ms), of_group])
        before = self._snapshot_marker(snapshot, snapshot_ms)
        following = self._rows(table, [_is_any_of("record_type", _RECOVERY_TYPES), _follows(before), of_group])
        rows = [row for row in (*snapshot, *following) if row.group_id]
        markers = [row for row in following if row.record_type is RecordType.COMMIT_MARKER]
        last = max(markers, key=lambda row: (row.leader_epoch, row.commit_id), default=None)
        return _Decisive(
            rows=sorted(rows, key=fold_order),
            last_marker=before if last is None else self._marker_info(last),
            snapshot_marker=before,
            snapshot_ms=snapshot_ms,
        )

    def _rows(self, table: DeltaTable, conditions: Sequence[str]) -> list[StateRow]:
        with translated(self._path, "read"):
            batches = list(_scan(table, conditions))
        return sorted((row for batch in batches for row in table_to_rows(batch)), key=fold_order)

    def _snapshot_ms(self, table: DeltaTable) -> int | None:
        with translated(self._path, "read"):
            return table.transaction_version(SNAPSHOT_TRANSACTION)

    def _snapshot_marker(self, snapshot: Sequence[StateRow], snapshot_ms: int | None) -> CommitMarkerInfo | None:
        if snapshot_ms is None:
            return None
        first = next((row for row in snapshot if not row.group_id), None)
        if first is None:
            raise StateTableError(
                f"State table {self._path} lacks its table snapshot of {snapshot_ms}.",
                "Rows were deleted by another program: restore the table from a copy.",
            )
        return self._parsed(first, _snapshot_info)

    def _marker_info(self, marker: StateRow) -> CommitMarkerInfo:
        return self._parsed(marker, _marker_info)

    def _parsed(self, row: StateRow, parse: Callable[[StateRow], CommitMarkerInfo]) -> CommitMarkerInfo:
        try:
            return parse(row)
        except ValidationError as error:
            raise UnsupportedFormatVersionError(
                f"The marker of batch {row.commit_id} of leader epoch {row.leader_epoch} cannot be read: {error}.",
                f"Read state table {self._path} with the release that wrote it, or a later one.",
            ) from None

    def _recovery_files(
        self, table: DeltaTable, snapshot_ms: int | None, before: CommitMarkerInfo | None
    ) -> tuple[str, ...]:
        """The files whose statistics say that they may hold a row of the recovery."""
        with translated(self._path, "read"):
            files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return tuple(file["path"] for file in files if _may_hold(file, snapshot_ms, before))


def _scan(table: DeltaTable, conditions: Sequence[str]) -> Iterator[pa.RecordBatch]:
    predicate = " AND ".join(f"({condition})" for condition in conditions if condition) or None
    yield from pa.RecordBatchReader.from_stream(table.scan(columns=STATE_TABLE_SCHEMA.names, predicate=predicate))


def _is_any_of(column: str, values: Collection[str]) -> str:
    return f"{column} IN ({', '.join(map(_literal, sorted(values)))})" if values else "FALSE"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_snapshot_of(snapshot_ms: int) -> str:
    date = _literal(utc_date(snapshot_ms))
    return f"date = {date} AND time_ms = {snapshot_ms} AND record_type = {_literal(RecordType.TABLE_SNAPSHOT)}"


def _follows(before: CommitMarkerInfo | None) -> str:
    """Rows of later batches: leader epochs never fall, and batch ids rise within one."""
    if before is None:
        return ""
    same = f"leader_epoch = {before.leader_epoch} AND commit_id > {before.commit_id}"
    return f"leader_epoch > {before.leader_epoch} OR ({same})"


def _may_hold(file: Mapping[str, Any], snapshot_ms: int | None, before: CommitMarkerInfo | None) -> bool:
    names = ("max.leader_epoch", "max.commit_id", "min.time_ms", "max.time_ms")
    statistics = [file.get(name) for name in names]
    if before is None or snapshot_ms is None or None in statistics:
        return True
    leader_epoch, commit_id, earliest_ms, latest_ms = map(int, statistics)  # type: ignore[arg-type]  # none is None
    if leader_epoch == before.leader_epoch and commit_id > before.commit_id:
        return True
    return leader_epoch > before.leader_epoch or earliest_ms <= snapshot_ms <= latest_ms


def _marker_info(row: StateRow) -> CommitMarkerInfo:
    payload = CommitMarkerPayload.model_validate(row.payload)
    return CommitMarkerInfo(row.commit_id, row.leader_epoch, row.time_ms, payload.checkpoint_id, payload.end_offsets)


def _snapshot_info(row: StateRow) -> CommitMarkerInfo:
    payload = TableSnapshotPayload.model_validate(row.payload)
    marker = payload.marker
    return CommitMarkerInfo(
        payload.commit_id, payload.leader_epoch, payload.commit_time_ms, marker.checkpoint_id, marker.end_offsets
    )
