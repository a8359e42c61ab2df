"""Reading the state table: rows, the last marker, and what recovery needs. No call changes the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pydantic import ValidationError

from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.marker import BatchMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.delta_table import highest_leader_epoch, open_table, translated
from sharegroup.state.fold import SHARE_PARTITION_TYPES, fold_order
from sharegroup.state.schema import STATE_TABLE_SCHEMA, table_to_rows, utc_date

_ORDER_COLUMNS = ("request_partition", "request_offset", "leader_epoch", "batch_id")
_KEY_COLUMNS = ("group_id", "topic_id", "partition")

_Order = tuple[int, ...]
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class BatchMarkerInfo:
    """A committed micro-batch.

    Attributes:
        batch_id: its number within its checkpoint.
        leader_epoch: epoch of the processor that committed it.
        batch_time_ms: the batch's time.
        checkpoint_id: the streaming checkpoint that it belongs to.
        end_offsets: request partition → offset after its last applied message.
    """

    batch_id: int
    leader_epoch: int
    batch_time_ms: int
    checkpoint_id: str
    end_offsets: Mapping[int, int]


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

    def recovery_rows(self, group_id: str | None = None) -> list[StateRow]:
        """The rows that decide the present state, in fold order: their fold equals the fold of all rows.

        Of a share-partition these are its last ShareSnapshot and what follows it.

        Args:
            group_id: only rows of this group.
        """
        table = open_table(self._path)
        of_group = [] if group_id is None else [f"group_id = {_literal(group_id)}"]
        last_snapshots = self._last_snapshots(table, of_group)

        def is_needed(key: _Key, order: _Order) -> bool:
            return order >= last_snapshots.get(key, ())

        others = [RecordType.GROUP_METADATA, RecordType.GROUP_STATUS]
        found = self._rows(table, [*of_group, _is_any_of("record_type", others)])
        if last_snapshots:
            since = _at_or_after_any(last_snapshots.values())
            found += self._rows(table, [*of_group, _is_any_of("record_type", SHARE_PARTITION_TYPES), since], is_needed)
        return sorted(found, key=fold_order)

    def last_marker(self) -> BatchMarkerInfo | None:
        """The batch that was committed last; None when there is none yet."""
        table = open_table(self._path)
        is_marker = _is_any_of("record_type", [RecordType.BATCH_MARKER])
        batches = self._tuples(table, ("leader_epoch", "batch_id"), [is_marker])
        if not batches:
            return None
        leader_epoch, batch_id = max(batches)
        row = self._rows(table, [is_marker, f"leader_epoch = {leader_epoch}", f"batch_id = {batch_id}"])[-1]
        try:
            payload = BatchMarkerPayload.model_validate(row.payload)
        except ValidationError as error:
            raise UnsupportedFormatVersionError(
                f"The marker of batch {batch_id} of leader epoch {leader_epoch} cannot be read: {error}.",
                f"Read state table {self._path} with the release that wrote it, or a later one.",
            ) from None
        return BatchMarkerInfo(row.batch_id, row.leader_epoch, row.time_ms, payload.checkpoint_id, payload.end_offsets)

    def leader_epoch(self) -> int:
        """The epoch of the processor that took the table over last; 0 when none has."""
        table = open_table(self._path)
        with translated(self._path, "read"):
            return highest_leader_epoch(table)

    def _rows(
        self,
        table: DeltaTable,
        conditions: Sequence[str],
        is_needed: Callable[[_Key, _Order], bool] | None = None,
    ) -> list[StateRow]:
        with translated(self._path, "read"):
            batches = []
            for batch in _scan(table, STATE_TABLE_SCHEMA.names, conditions):
                if is_needed is not None:
                    needed = map(is_needed, _tuples(batch, _KEY_COLUMNS), _tuples(batch, _ORDER_COLUMNS))
                    # Arrow cannot filter the library's string views.
                    batch = batch.cast(STATE_TABLE_SCHEMA).filter(pa.array(list(needed), pa.bool_()))
                batches.append(batch)
        rows = [row for batch in batches for row in table_to_rows(batch)]
        return sorted(rows, key=fold_order)

    def _last_snapshots(self, table: DeltaTable, conditions: Sequence[str]) -> dict[_Key, _Order]:
        last: dict[_Key, _Order] = {}
        is_snapshot = _is_any_of("record_type", [RecordType.SHARE_SNAPSHOT])
        for values in self._tuples(table, _KEY_COLUMNS + _ORDER_COLUMNS, [*conditions, is_snapshot]):
            key, order = values[: len(_KEY_COLUMNS)], values[len(_KEY_COLUMNS) :]
            last[key] = max(last.get(key, order), order)
        return last

    def _tuples(self, table: DeltaTable, columns: Sequence[str], conditions: Sequence[str]) -> list[tuple[Any, ...]]:
        with translated(self._path, "read"):
            return [values for batch in _scan(table, columns, conditions) for values in _tuples(batch, columns)]


def _scan(table: DeltaTable, columns: Sequence[str], conditions: Sequence[str]) -> Iterator[pa.RecordBatch]:
    predicate = " AND ".join(f"({condition})" for condition in conditions) or None
    yield from pa.RecordBatchReader.from_stream(table.scan(columns=list(columns), predicate=predicate))


def _tuples(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


def _is_any_of(column: str, values: Collection[str]) -> str:
    return f"{column} IN ({', '.join(map(_literal, sorted(values)))})" if values else "FALSE"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _at_or_after_any(orders: Iterable[_Order]) -> str:
    lowest: dict[int, int] = {}
    for request_partition, request_offset, *_ in orders:
        lowest[request_partition] = min(lowest.get(request_partition, request_offset), request_offset)
    return " OR ".join(f"(request_partition = {p} AND request_offset >= {o})" for p, o in lowest.items())
