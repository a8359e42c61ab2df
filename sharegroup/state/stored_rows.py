"""Rows as they are stored: Arrow columns, made into `StateRow` one after the other.

Rows that this package wrote are not validated again: that would take most of the time of a recovery. Only what decides
how a row is understood is checked: its record type, states and causes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatchEntry, StateRow, TransitionEntry

_ROWS_AT_ONCE = 4_096

_Model = TypeVar("_Model", bound=Message)

_STATES: Mapping[Any, RecordState | None] = {None: None, **{state.value: state for state in RecordState}}
_ENUMERATIONS: Mapping[str, Mapping[Any, Enum | None]] = {
    "record_type": {kind.value: kind for kind in RecordType},
    "delivery_state": _STATES,
    "state": _STATES,
    "from_state": _STATES,
    "to_state": _STATES,
    "cause": {cause.value: cause for cause in Cause},
}
_ENTRIES: Mapping[str, type[Message]] = {
    "state_batches": StateBatchEntry,
    "transitions": TransitionEntry,
    "runs": RunEntry,
}


class StoredRows:
    """Rows in fold order; each iteration makes them anew, so that they need not be in memory together.

    Args:
        table: rows with the columns of `STATE_TABLE_SCHEMA`, in any order.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = _in_fold_order(table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[StateRow]:
        return decoded(self._table)

    @property
    def table(self) -> pa.Table:
        """Return the rows as Arrow columns, in fold order."""
        return self._table


def decoded(table: pa.Table) -> Iterator[StateRow]:
    """Yield the rows of a table in its order; columns that it lacks have their default.

    Raises:
        UnsupportedFormatVersionError: a value is none that this release knows.
    """
    names = table.column_names
    lacking = {
        name: field.get_default(call_default_factory=True)
        for name, field in StateRow.model_fields.items()
        if name not in names
    }
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        piece = table.slice(start, _ROWS_AT_ONCE)
        columns = [_values(name, piece.column(name)) for name in names]
        for values in zip(*columns, strict=True):
            yield _made(StateRow, {**lacking, **dict(zip(names, values, strict=True))})


def _in_fold_order(table: pa.Table) -> pa.Table:
    is_table_snapshot = pc.equal(table["record_type"], RecordType.TABLE_SNAPSHOT.value)
    keys = pa.table(
        {
            "request_partition": table["request_partition"],
            "request_offset": table["request_offset"],
            "is_table_snapshot": pc.cast(is_table_snapshot, pa.int8()),
            "leader_epoch": table["leader_epoch"],
            "commit_id": table["commit_id"],
        }
    )
    return table.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    if name in _ENTRIES:
        return _entries(name, _ENTRIES[name], column)
    values = column.to_pylist()
    if name == "payload":
        return [json.loads(value) for value in values]
    return _members(name, values) if name in _ENUMERATIONS else values


def _entries(name: str, model: type[Message], column: pa.ChunkedArray) -> list[Any]:
    """Make the entries of all rows at once, then give each row its own."""
    array = column.combine_chunks()
    flat = array.flatten()
    fields = [field.name for field in flat.type]
    columns = []
    for field in fields:
        values = flat.field(field).to_pylist()
        columns.append(_members(f"{name}.{field}", values) if field in _ENUMERATIONS else values)
    made = [_made(model, dict(zip(fields, values, strict=True))) for values in zip(*columns, strict=True)]
    rows: list[Any] = []
    start = 0
    for length in pc.list_value_length(array).to_pylist():
        rows.append(made[start : start + length])
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


def _made(model: type[_Model], values: dict[str, Any]) -> _Model:
    """Make a model of values that were validated when they were written; several times faster than its constructor."""
    made = model.__new__(model)
    object.__setattr__(made, "__dict__", values)
    object.__setattr__(made, "__pydantic_fields_set__", _FIELD_NAMES[model])
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


_MODELS: tuple[type[Message], ...] = (StateRow, *_ENTRIES.values())
_FIELD_NAMES: Mapping[type[Message], set[str]] = {model: set(model.model_fields) for model in _MODELS}
