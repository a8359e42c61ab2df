"""Reading the state table: rows, the last marker, and what recovery needs. No call changes the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pydantic import ValidationError

from sharegroup.config.table_location import absolute_address
from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.row_payloads import TableSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import NO_COMMIT
from sharegroup.state.data_file import DataFile
from sharegroup.state.delta_table import (
    data_files,
    highest_leader_epoch,
    last_snapshot_ms,
    newest,
    table_exists,
    translated,
)
from sharegroup.state.fold import CHANGE_TYPES
from sharegroup.state.listed_files import listed_files, read_listed_files
from sharegroup.state.open_storage import storage_of
from sharegroup.state.partition_rows import rows_by_partition
from sharegroup.state.row_filter import RowFilter
from sharegroup.state.schema import (
    ORDER_COLUMNS,
    PARTITION_KEY_COLUMNS,
    STATE_TABLE_SCHEMA,
    StoredRows,
    decoded,
)


@dataclass(frozen=True, slots=True)
class CommitMarkerInfo:
    """The marker of a commit.

    Attributes:
        commit_id: id of the commit; rises for the lifetime of the table.
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
    """All rows that decide the present state of the table's groups.

    Attributes:
        rows: the last table snapshot and what follows it, in fold order; their fold equals the fold of all rows.
        last_marker: marker of the last commit; None when there is none yet.
        snapshot_marker: marker of the last commit in the table snapshot; None when there is no snapshot yet.
        files: paths of the data files that had to be read.
        file_count: data files of the whole table.
    """

    rows: StoredRows
    last_marker: CommitMarkerInfo | None
    snapshot_marker: CommitMarkerInfo | None
    files: tuple[str, ...]
    file_count: int


class _Decisive(NamedTuple):
    """A recovery without its files, whose lookup takes half as long as the reading."""

    rows: StoredRows
    last_marker: CommitMarkerInfo | None
    snapshot_marker: CommitMarkerInfo | None
    snapshot_ms: int | None


class StateTableReader:
    """Reads the newest version of the table with each call.

    Every call raises StateTableError when there is no table or it cannot be read, and
    UnsupportedFormatVersionError when another release wrote it in a format unknown here.

    Args:
        stays_open: open the table once, and follow its log to the newest version with each call, which takes a
            fraction of the time. For callers that read a table several times while nobody replaces it.
    """

    def __init__(self, path: str, *, stays_open: bool = False) -> None:
        self._path = absolute_address(path)
        self._stays_open = stays_open
        self._table: DeltaTable | None = None

    @property
    def path(self) -> str:
        """Return the table's folder."""
        return self._path

    def exists(self) -> bool:
        """Return True if there is a table; the only call that does not raise when there is none."""
        with translated(self._path, "read"):
            return self._table is not None or table_exists(self._path)

    def rows(
        self,
        record_types: Collection[RecordType] | None = None,
        group_id: str | None = None,
        since_ms: int | None = None,
        before_ms: int | None = None,
    ) -> list[StateRow]:
        """Return rows in fold order.

        Args:
            record_types: only rows of these types.
            group_id: only rows of this group.
            since_ms: only rows whose time is this or later.
            before_ms: only rows whose time is earlier than this.
        """
        until_ms = None if before_ms is None else before_ms - 1
        return list(
            self.stored(RowFilter(record_types=record_types, group_id=group_id, since_ms=since_ms, until_ms=until_ms))
        )

    def stored(self, row_filter: RowFilter, without: Collection[str] = ()) -> StoredRows:
        """Return rows in fold order, as columns: each iteration decodes them.

        Args:
            without: data files that are not read, since they are lost; see `lost_files`.
        """
        pieces = list(self._pieces(row_filter, without, ORDER_COLUMNS))
        return StoredRows(pa.concat_tables(pieces) if pieces else _read_schema(row_filter, ORDER_COLUMNS).empty_table())

    def by_partition(self, row_filter: RowFilter, without: Collection[str] = ()) -> Iterator[Iterator[StateRow]]:
        """Yield the rows of each share-partition, in fold order, in memory that does not grow with their number.

        Args:
            row_filter: conditions of the rows; those of no share-partition are left out.
            without: data files that are not read, since they are lost; see `lost_files`.
        """
        with translated(self._path, "read"):
            size_bytes = pc.sum(data_files(self._newest())["size_bytes"]).as_py() or 0
        pieces = self._pieces(row_filter, without, (*ORDER_COLUMNS, *PARTITION_KEY_COLUMNS))
        yield from rows_by_partition(pieces, size_bytes)

    def lost_files(self) -> dict[str, tuple[int, int]]:
        """Return the data files that the table has and the disk does not: path → first and last commit id."""
        with translated(self._path, "read"):
            lost = [file for file in self._files(self._newest()) if not self._is_present(file)]
        return {file.path: (file.lowest_commit_id, file.highest_commit_id) for file in lost}

    def files_without(self, lost: Collection[str]) -> list[str]:
        """Return the paths within the table of all data files but some.

        Args:
            lost: data files that are left out, see `lost_files`.
        """
        files = self._files(self._newest())
        return [file.path for file in files if file.path not in lost]

    def version(self) -> int:
        """Return the newest version of the table: while it is the same, all other calls return the same."""
        return self._newest().version()

    def recovery(self, group_id: str | None = None) -> Recovery:
        """Return all rows that decide the present state: the last table snapshot and the rows after it.

        Args:
            group_id: only rows of this group.
        """
        table = self._newest()
        files = self._files(table)
        decisive = self._decisive(table, files, group_id)
        decisive_files = _recovery_files(files, decisive.snapshot_ms, decisive.snapshot_marker)
        return Recovery(
            rows=decisive.rows,
            last_marker=decisive.last_marker,
            snapshot_marker=decisive.snapshot_marker,
            files=tuple(file.path for file in decisive_files),
            file_count=len(files),
        )

    def recovery_rows(self, group_id: str | None = None) -> list[StateRow]:
        """Return the rows that decide the present state, in fold order: their fold equals the fold of all rows.

        Args:
            group_id: only rows of this group.
        """
        table = self._newest()
        return list(self._decisive(table, self._files(table), group_id).rows)

    def last_marker(self) -> CommitMarkerInfo | None:
        """Return the marker of the last commit; None when there is none yet."""
        table = self._newest()
        files = self._files(table)
        return self._last_marker(files, self._snapshot_marker(files, self._snapshot_ms(table)))

    def last_fence(self) -> StateRow | None:
        """Return the Fence of the last takeover; None when there is none."""
        table = self._newest()
        with translated(self._path, "read"):
            leader_epoch = highest_leader_epoch(table)
        files = [file for file in self._files(table) if file.may_have("leader_epoch", leader_epoch)]
        is_fence = (pc.field("record_type") == RecordType.FENCE.value) & (pc.field("leader_epoch") == leader_epoch)
        # The commit id selects files by their statistics: no commit of a processor has it.
        of_takeovers = [file for file in files if file.may_have("commit_id", NO_COMMIT)]
        fences = list(StoredRows(self._read(of_takeovers, is_fence)))
        return fences[-1] if fences else None

    def last_snapshot_ms(self) -> int | None:
        """Return the time of the last table snapshot, epoch ms; None when there is none yet."""
        return self._snapshot_ms(self._newest())

    def row_count(self) -> int | None:
        """Return the number of rows, from the statistics of the data files; None if a file has none."""
        table = self._newest()
        with translated(self._path, "read"):
            counts = data_files(table)["num_records"]
        return None if counts.null_count else int(pc.sum(counts).as_py() or 0)

    def state_id(self) -> str:
        """Return the id of the table; one that is deleted and created again has another."""
        table = self._newest()
        with translated(self._path, "read"):
            return str(table.metadata().id)

    def leader_epoch(self) -> int:
        """Return the leader epoch of the last takeover; 0 when there is none."""
        table = self._newest()
        with translated(self._path, "read"):
            return highest_leader_epoch(table)

    def _newest(self) -> DeltaTable:
        table = newest(self._table, self._path)
        self._table = table if self._stays_open else None
        return table

    def _decisive(self, table: DeltaTable, files: Sequence[DataFile], group_id: str | None) -> _Decisive:
        snapshot_ms = self._snapshot_ms(table)
        before = self._snapshot_marker(files, snapshot_ms)
        of_group = pc.field("group_id") != "" if group_id is None else pc.field("group_id") == group_id
        is_decisive = pc.field("record_type").isin([kind.value for kind in sorted(CHANGE_TYPES)])
        if before is not None:
            is_decisive &= pc.field("commit_id") > before.commit_id
        if snapshot_ms is not None:
            is_decisive |= _is_snapshot_of(snapshot_ms)
        to_read = _recovery_files(files, snapshot_ms, before)
        if group_id is not None:
            to_read = [file for file in to_read if file.may_have("group_id", group_id)]
        return _Decisive(
            rows=StoredRows(self._read(to_read, is_decisive & of_group)),
            last_marker=self._last_marker(files, before),
            snapshot_marker=before,
            snapshot_ms=snapshot_ms,
        )

    def _files(self, table: DeltaTable) -> list[DataFile]:
        with translated(self._path, "read"):
            return listed_files(table)

    def _read(self, files: Iterable[DataFile], condition: pc.Expression) -> pa.Table:
        with translated(self._path, "read"):
            return read_listed_files(self._path, files, condition)

    def _pieces(self, row_filter: RowFilter, lost: Collection[str], added: Collection[str]) -> Iterator[pa.Table]:
        with translated(self._path, "read"):
            if not lost:
                yield from _scanned(self._newest(), row_filter, added)
                return
            names = _read_schema(row_filter, added).names
            condition = row_filter.expression(pc.field)
            for file in self._files(self._newest()):
                if file.path not in lost:
                    yield self._read([file], pc.scalar(True) if condition is None else condition).select(names)

    def _is_present(self, file: DataFile) -> bool:
        return storage_of(self._path).exists(file.path)

    def _snapshot_ms(self, table: DeltaTable) -> int | None:
        with translated(self._path, "read"):
            return last_snapshot_ms(table)

    def _snapshot_marker(self, files: Sequence[DataFile], snapshot_ms: int | None) -> CommitMarkerInfo | None:
        if snapshot_ms is None:
            return None
        is_first = _is_snapshot_of(snapshot_ms) & (pc.field("group_id") == "")
        files = [file for file in files if file.may_have("time_ms", snapshot_ms) and file.may_have("group_id", "")]
        first = next(decoded(self._read(files, is_first)), None)
        if first is None:
            raise StateTableError(
                f"State table {self._path} lacks its table snapshot of {snapshot_ms}.",
                "Rows were deleted by another program: restore the table from a copy.",
            )
        return self._parsed(first, _snapshot_info)

    def _last_marker(self, files: Sequence[DataFile], before: CommitMarkerInfo | None) -> CommitMarkerInfo | None:
        """Return the last marker: each commit has one, unless it is older than the table snapshot."""
        least = before.commit_id if before is not None else NO_COMMIT
        last: StateRow | None = None
        files = [file for file in files if file.may_have("record_type", RecordType.COMMIT_MARKER)]
        for file in sorted(files, key=lambda file: file.highest_commit_id, reverse=True):
            if file.highest_commit_id <= least:
                break
            is_later = (pc.field("record_type") == RecordType.COMMIT_MARKER.value) & (pc.field("commit_id") > least)
            markers = self._read([file], is_later)
            if markers.num_rows:
                least = pc.max(markers["commit_id"]).as_py()
                (*_, last) = decoded(markers.filter(pc.field("commit_id") == least))
        return before if last is None else self._parsed(last, _marker_info)

    def _parsed(self, row: StateRow, parse: Callable[[StateRow], CommitMarkerInfo]) -> CommitMarkerInfo:
        try:
            return parse(row)
        except ValidationError as error:
            raise UnsupportedFormatVersionError(
                f"The marker of commit {row.commit_id} of leader epoch {row.leader_epoch} cannot be read: {error}.",
                f"Read state table {self._path} with the release that wrote it, or a later one.",
            ) from None


def _recovery_files(
    files: Iterable[DataFile], snapshot_ms: int | None, before: CommitMarkerInfo | None
) -> list[DataFile]:
    """Return the files that, by their statistics, may hold a row of the recovery."""
    if before is None or snapshot_ms is None:
        return list(files)
    return [
        file for file in files if file.highest_commit_id > before.commit_id or file.may_have("time_ms", snapshot_ms)
    ]


def _is_snapshot_of(snapshot_ms: int) -> pc.Expression:
    return (pc.field("record_type") == RecordType.TABLE_SNAPSHOT.value) & (pc.field("time_ms") == snapshot_ms)


def _marker_info(row: StateRow) -> CommitMarkerInfo:
    payload = CommitMarkerPayload.model_validate(row.payload)
    return CommitMarkerInfo(row.commit_id, row.leader_epoch, row.time_ms, payload)


def _snapshot_info(row: StateRow) -> CommitMarkerInfo:
    payload = TableSnapshotPayload.model_validate(row.payload)
    return CommitMarkerInfo(payload.commit_id, payload.leader_epoch, payload.commit_time_ms, payload.marker)


def _scanned(table: DeltaTable, row_filter: RowFilter, added: Collection[str]) -> Iterator[pa.Table]:
    """Yield the rows that fulfil the conditions in pieces, in any order.

    Args:
        added: columns that are read in any case.
    """
    schema = _read_schema(row_filter, added)
    for batch in pa.RecordBatchReader.from_stream(table.scan(columns=schema.names, predicate=row_filter.sql())):
        if batch.num_rows:
            yield pa.Table.from_batches([batch]).cast(schema)


def _read_schema(row_filter: RowFilter, added: Collection[str]) -> pa.Schema:
    """Return the columns that a filter asks for and others, in the table's order."""
    names = (*(STATE_TABLE_SCHEMA.names if row_filter.columns is None else row_filter.columns), *added)
    return pa.schema([field for field in STATE_TABLE_SCHEMA if field.name in names])
