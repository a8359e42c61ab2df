"""Columns of the state table: rows as Arrow columns, and stored columns as rows again.

A row is completed in two places. An actor's row gets its group, message and time from `ActorContext.addressed`; here
each row gets the columns of its commit: id, leader epoch and date.

Stored rows that this package wrote are not validated again: that would take most of the time of a recovery. Only values
that decide the meaning of a row are checked: its record type, states and causes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.messages import Message, constructed, from_fields
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatchEntry, StateRow, TransitionEntry

_STATE_BATCH = pa.struct(
    {
        "first_offset": pa.int64(),
        "last_offset": pa.int64(),
        "delivery_state": pa.int32(),
        "delivery_count": pa.int32(),
    }
)
_TRANSITION = pa.struct(
    {
        "first_offset": pa.int64(),
        "last_offset": pa.int64(),
        "from_state": pa.int32(),
        "to_state": pa.int32(),
        "delivery_count": pa.int32(),
        "member_id": pa.string(),
        "deadline_ms": pa.int64(),
        "cause": pa.string(),
        "is_suspect": pa.bool_(),
        "reason": pa.string(),
        "time_ms": pa.int64(),
        "request_offset": pa.int64(),
        "write_version": pa.int64(),
        "intended": pa.string(),
    }
)
_RUN = pa.struct(
    {
        "first_offset": pa.int64(),
        "last_offset": pa.int64(),
        "state": pa.int32(),
        "delivery_count": pa.int32(),
        "member_id": pa.string(),
        "deadline_ms": pa.int64(),
        "is_suspect": pa.bool_(),
        "write_version": pa.int64(),
        "intended": pa.string(),
    }
)

STATE_TABLE_SCHEMA = pa.schema(
    {
        "record_type": pa.string(),
        "date": pa.string(),
        "commit_id": pa.int64(),
        "leader_epoch": pa.int32(),
        "group_id": pa.string(),
        "topic_id": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "request_partition": pa.int32(),
        "request_offset": pa.int64(),
        "time_ms": pa.int64(),
        "state_epoch": pa.int32(),
        "snapshot_epoch": pa.int32(),
        "start_offset": pa.int64(),
        "delivery_complete_count": pa.int64(),
        "state_batches": pa.list_(_STATE_BATCH),
        "transitions": pa.list_(_TRANSITION),
        "runs": pa.list_(_RUN),
        "payload": pa.string(),
    }
)
"""The columns in order; `StateRow` describes them. `payload` is JSON."""

PARTITION_COLUMN = "date"

ORDER_COLUMNS = (
    "record_type",
    "commit_id",
    "leader_epoch",
    "request_partition",
    "request_offset",
    "state_epoch",
)
"""The columns that the fold order is made of."""

PARTITION_KEY_COLUMNS = ("group_id", "topic_id", "partition")
"""The columns that name a share-partition."""

# A commit has few rows: reading fields and types from the schema would take as long as building the columns.
_OFFSET = pa.int32()
_COLUMNS = [(field.name, field.type) for field in STATE_TABLE_SCHEMA]
_ENTRY_FIELDS = {name: list(kind.value_type) for name, kind in _COLUMNS if pa.types.is_list(kind)}
_NO_ENTRIES = {name: pa.array([], pa.struct(fields)) for name, fields in _ENTRY_FIELDS.items()}

_ROWS_AT_ONCE = 4_096

_STATES: Mapping[Any, RecordState | None] = {None: None, **{state.value: state for state in RecordState}}
_CAUSES: Mapping[Any, Cause] = {cause.value: cause for cause in Cause}
_ENUMERATIONS: Mapping[str, Mapping[Any, Enum | None]] = {
    "record_type": {kind.value: kind for kind in RecordType},
    "delivery_state": _STATES,
    "state": _STATES,
    "from_state": _STATES,
    "to_state": _STATES,
    "cause": _CAUSES,
    "intended": {None: None, **_CAUSES},
}
_ENTRIES: Mapping[str, type[Message]] = {
    "state_batches": StateBatchEntry,
    "transitions": TransitionEntry,
    "runs": RunEntry,
}


def rows_to_table(rows: Sequence[StateRow], commit_id: int | None = None, leader_epoch: int | None = None) -> pa.Table:
    """Return the rows as an Arrow table of `STATE_TABLE_SCHEMA`.

    Args:
        rows: the rows; their date is filled in here.
        commit_id: commit id of all rows; None keeps each row's own.
        leader_epoch: leader epoch of all rows; None keeps each row's own.
    """
    fixed = {"commit_id": commit_id, "leader_epoch": leader_epoch}
    values = [vars(row) for row in rows]
    columns = [
        _column(name, kind, values) if fixed.get(name) is None else pa.array([fixed[name]] * len(rows), kind)
        for name, kind in _COLUMNS
    ]
    return pa.Table.from_arrays(columns, schema=STATE_TABLE_SCHEMA)


def utc_date(time_ms: int) -> str:
    """Return the value of the partition column for a time, epoch ms."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).date().isoformat()


def _column(name: str, kind: pa.DataType, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    if name == PARTITION_COLUMN:
        dates = {time_ms: utc_date(time_ms) for time_ms in {row["time_ms"] for row in rows}}
        return pa.array([dates[row["time_ms"]] for row in rows], kind)
    values = [row[name] for row in rows]
    if name == "payload":
        return pa.array([json.dumps(value) if value else "{}" for value in values], kind)
    if name not in _ENTRY_FIELDS:
        return pa.array(values, kind)
    entries = [vars(entry) for value in values for entry in value]
    if not entries:
        return pa.ListArray.from_arrays(pa.array([0] * (len(rows) + 1), _OFFSET), _NO_ENTRIES[name])
    offsets = pa.array(list(accumulate(map(len, values), initial=0)), _OFFSET)
    fields = _ENTRY_FIELDS[name]
    columns = [pa.array([entry[field.name] for entry in entries], field.type) for field in fields]
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(columns, fields=fields))


class StoredRows:
    """Rows in fold order; each iteration decodes them again, so that they need not be in memory together.

    Args:
        table: rows with the columns of `STATE_TABLE_SCHEMA`, in any order.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = in_fold_order(table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[StateRow]:
        return decoded(self._table)

    @property
    def table(self) -> pa.Table:
        """Return the rows as Arrow columns, in fold order."""
        return self._table


def partition_key(row: StateRow) -> tuple[str, str, int]:
    """Return the share-partition of a row, as `PARTITION_KEY_COLUMNS`."""
    return row.group_id, row.topic_id, row.partition


def decoded(table: pa.Table) -> Iterator[StateRow]:
    """Yield the rows of a table in its order; missing columns have their default.

    Raises:
        UnsupportedFormatVersionError: a value is unknown to this release.
    """
    names = table.column_names
    lacking = {name: default for name, default in vars(constructed(StateRow)).items() if name not in names}
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        piece = table.slice(start, _ROWS_AT_ONCE)
        columns = [_values(name, piece.column(name)) for name in names]
        for values in zip(*columns, strict=True):
            fields = dict(zip(names, values, strict=True))
            yield from_fields(StateRow, lacking | fields if lacking else fields)


def in_fold_order(table: pa.Table, before: Iterable[str] = ()) -> pa.Table:
    """Return rows in fold order.

    Args:
        table: rows with `ORDER_COLUMNS`, in any order.
        before: columns by which they are ordered first.
    """
    is_table_snapshot = pc.equal(table["record_type"], RecordType.TABLE_SNAPSHOT.value)
    is_tombstone = pc.equal(table["record_type"], RecordType.SHARE_TOMBSTONE.value)
    keys = pa.table(
        {
            **{name: table[name] for name in before},
            "request_partition": table["request_partition"],
            "request_offset": table["request_offset"],
            "is_table_snapshot": pc.cast(is_table_snapshot, pa.int8()),
            "leader_epoch": table["leader_epoch"],
            "commit_id": table["commit_id"],
            "state_epoch": pc.if_else(is_table_snapshot, 0, table["state_epoch"]),
            "is_tombstone": pc.cast(is_tombstone, pa.int8()),
        }
    )
    return table.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    if name in _ENTRIES:
        return _entries(name, _ENTRIES[name], column)
    values = column.to_pylist()
    if name == "payload":
        # Most rows have no entries.
        return [json.loads(value) if value != "{}" else {} for value in values]
    return _members(name, values) if name in _ENUMERATIONS else values


def _entries(name: str, model: type[Message], column: pa.ChunkedArray) -> list[Any]:
    """Build the entries of all rows at once, then assign them to their rows."""
    array = column.combine_chunks()
    flat = array.flatten()
    fields = [field.name for field in flat.type]
    columns = []
    for field in fields:
        values = flat.field(field).to_pylist()
        columns.append(_members(f"{name}.{field}", values) if field in _ENUMERATIONS else values)
    lacking = {field: info.default for field, info in model.model_fields.items() if field not in fields}
    entries = [
        from_fields(model, {**lacking, **dict(zip(fields, values, strict=True))})
        for values in zip(*columns, strict=True)
    ]
    rows: list[Any] = []
    start = 0
    for length in pc.list_value_length(array).to_pylist():
        rows.append(entries[start : start + length])
        start += length
    return rows


def _members(name: str, values: list[Any]) -> list[Any]:
    members = _ENUMERATIONS[name.rpartition(".")[2]]
    try:
        return [members[value] for value in values]
    except KeyError as error:
        raise UnsupportedFormatVersionError(
            f"State table column {name} has {error.args[0]!r}, which this release does not know.",
            "Read the table with the release that wrote it, or a later one.",
        ) from None
