"""Columns of the state table, and rows as Arrow columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa
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


def rows_to_table(rows: Sequence[StateRow], commit_id: int | None = None, leader_epoch: int | None = None) -> pa.Table:
    """Return the rows as an Arrow table of `STATE_TABLE_SCHEMA`.

    Args:
        rows: the rows; their date is filled in here.
        commit_id: commit id of all rows; None leaves each its own.
        leader_epoch: leader epoch of all rows; None leaves each its own.
    """
    fixed = {"commit_id": commit_id, "leader_epoch": leader_epoch}
    values = [vars(row) for row in rows]
    columns = [
        _column(field, values)
        if fixed.get(field.name) is None
        else pa.array([fixed[field.name]] * len(rows), field.type)
        for field in STATE_TABLE_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=STATE_TABLE_SCHEMA)


def utc_date(time_ms: int) -> str:
    """The value of the partition column for a time."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).date().isoformat()


def _column(field: pa.Field, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    if field.name == PARTITION_COLUMN:
        return pa.array([utc_date(row["time_ms"]) for row in rows], field.type)
    values = [row[field.name] for row in rows]
    if field.name == "payload":
        return pa.array([json.dumps(value) for value in values], field.type)
    if not pa.types.is_list(field.type):
        return pa.array(values, field.type)
    entries = [vars(entry) for value in values for entry in value]
    if not entries:
        return pa.array([[]] * len(rows), field.type)
    offsets = pa.array(list(accumulate(map(len, values), initial=0)), pa.int32())
    entry_fields = list(field.type.value_type)
    columns = [pa.array([entry[f.name] for entry in entries], f.type) for f in entry_fields]
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(columns, fields=entry_fields))
