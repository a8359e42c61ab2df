"""Columns of the state table, and rows to and from Arrow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.rows import StateRow

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
        "reason": pa.string(),
        "time_ms": pa.int64(),
        "request_offset": pa.int64(),
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
"""The columns in order; `StateRow` says what each holds. `payload` is JSON."""

PARTITION_COLUMN = "date"

_ROWS = TypeAdapter(list[StateRow])


def rows_to_table(rows: Sequence[StateRow]) -> pa.Table:
    """The rows as an Arrow table of `STATE_TABLE_SCHEMA`."""
    return pa.table([_column(field, rows) for field in STATE_TABLE_SCHEMA], schema=STATE_TABLE_SCHEMA)


def table_to_rows(table: pa.Table) -> list[StateRow]:
    """The rows that `rows_to_table` wrote, in the table's order.

    Raises:
        UnsupportedFormatVersionError: a value is none that this release knows.
    """
    names = table.column_names
    columns = [_values(name, table.column(name)) for name in names]
    try:
        return _ROWS.validate_python([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise UnsupportedFormatVersionError(
            f"State table row {field}: {fault['msg']}; it is {fault['input']!r}.",
            "Read the table with the release that wrote it, or a later one.",
        ) from None


def utc_date(time_ms: int) -> str:
    """The value of the partition column for a time."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).date().isoformat()


def _column(field: pa.Field, rows: Sequence[StateRow]) -> pa.Array:
    values = [getattr(row, field.name) for row in rows]
    if field.name == "payload":
        return pa.array([json.dumps(value) for value in values], field.type)
    if not pa.types.is_list(field.type):
        return pa.array(values, field.type)
    offsets = pa.array(list(accumulate(map(len, values), initial=0)), pa.int32())
    entries = [entry for value in values for entry in value]
    entry_fields = list(field.type.value_type)
    columns = [pa.array([getattr(entry, f.name) for entry in entries], f.type) for f in entry_fields]
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(columns, fields=entry_fields))


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    values = column.to_pylist()
    return [json.loads(value) for value in values] if name == "payload" else values
