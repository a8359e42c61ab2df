"""Rows of the state table as lists of plain values, and back, for the live auditor's JSON.

Pydantic's JSON of a row takes ten times as long, and each row goes to a Python worker and back. The rows were validated
when they were written; a list without a name for each value is only read by the release that made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.messages import from_fields
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatchEntry, StateRow, TransitionEntry

_ROW = tuple(StateRow.model_fields)
_BATCH = tuple(StateBatchEntry.model_fields)
_TRANSITION = tuple(TransitionEntry.model_fields)
_RUN = tuple(RunEntry.model_fields)
_row_values = itemgetter(*_ROW)
_batch_values = itemgetter(*_BATCH)
_transition_values = itemgetter(*_TRANSITION)
_run_values = itemgetter(*_RUN)
_TYPES = {kind.value: kind for kind in RecordType}
_CAUSES = {cause.value: cause for cause in Cause}
_INTENDED: dict[str | None, Cause | None] = {None: None, **{cause.value: cause for cause in Cause}}
_STATES: dict[int | None, RecordState | None] = {None: None, **{state.value: state for state in RecordState}}
_BATCHES_AT, _TRANSITIONS_AT, _RUNS_AT = (_ROW.index(name) for name in ("state_batches", "transitions", "runs"))


def fields_of(row: StateRow) -> list[Any]:
    """Return a row as a list for JSON."""
    fields = list(_row_values(vars(row)))
    fields[_BATCHES_AT] = [_batch_values(vars(entry)) for entry in row.state_batches]
    fields[_TRANSITIONS_AT] = [_transition_values(vars(entry)) for entry in row.transitions]
    fields[_RUNS_AT] = [_run_values(vars(entry)) for entry in row.runs]
    return fields


def row_of(fields: Sequence[Any]) -> StateRow:
    """Return the row of a list from JSON."""
    values = dict(zip(_ROW, fields, strict=True))
    values["record_type"] = _TYPES[values["record_type"]]
    values["state_batches"] = [_batch(entry) for entry in values["state_batches"]]
    values["transitions"] = [_transition(entry) for entry in values["transitions"]]
    values["runs"] = [_run(entry) for entry in values["runs"]]
    return from_fields(StateRow, values)


def _batch(fields: Sequence[Any]) -> StateBatchEntry:
    values = dict(zip(_BATCH, fields, strict=True))
    values["delivery_state"] = _STATES[values["delivery_state"]]
    return from_fields(StateBatchEntry, values)


def _transition(fields: Sequence[Any]) -> TransitionEntry:
    values = dict(zip(_TRANSITION, fields, strict=True))
    values["from_state"] = _STATES[values["from_state"]]
    values["to_state"] = _STATES[values["to_state"]]
    values["cause"] = _CAUSES[values["cause"]]
    values["intended"] = _INTENDED[values["intended"]]
    return from_fields(TransitionEntry, values)


def _run(fields: Sequence[Any]) -> RunEntry:
    values = dict(zip(_RUN, fields, strict=True))
    values["state"] = _STATES[values["state"]]
    values["intended"] = _INTENDED[values["intended"]]
    return from_fields(RunEntry, values)
