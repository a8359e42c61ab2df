"""Any row that is lost, repeated or changed is a finding; columns that only the request log can check are listed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharegroup.audit.verification.verify import verify
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import RecordType, StateRow
from tests.audit.recorded_table import Rows
from tests.support.site import BROKER, Site

pytestmark = pytest.mark.slow

COLUMNS: dict[RecordType, tuple[str, ...]] = {
    RecordType.COMMIT_MARKER: ("record_type", "commit_id"),
    RecordType.GROUP_METADATA: ("record_type", "commit_id", "leader_epoch", "request_partition", "time_ms"),
    **dict.fromkeys(
        (RecordType.SHARE_SNAPSHOT, RecordType.SHARE_UPDATE, RecordType.SHARE_TRANSITIONS),
        (
            *("record_type", "commit_id", "leader_epoch", "group_id", "topic_id", "topic", "partition"),
            *("request_partition", "time_ms", "state_epoch", "snapshot_epoch", "start_offset"),
            *("delivery_complete_count", "state_batches", "runs"),
        ),
    ),
    RecordType.TABLE_SNAPSHOT: ("record_type", "time_ms"),
}
"""Columns of which every change is found. Without the request log, these are not:

- `request_offset`, within its cut, and `payload.last_requests`: no other row depends on them;
- `reason`, `time_ms` and `request_offset` of an acknowledgement in `transitions`: as above;
- of the marker: the outbox, and `attempted_offset`;
- of a Fence: process and host;
- the leader epoch of a commit without rows that is the last or first of its processor;
- members' names and other metadata of a group that no later table snapshot repeats.
"""

ENTRY_FIELDS = ("first_offset", "last_offset", "from_state", "to_state", "delivery_count", "cause")


def changed(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case RecordType():
            kinds = (RecordType.SHARE_UPDATE, RecordType.SHARE_TRANSITIONS)
            return kinds[0] if value is not kinds[0] else kinds[1]
        case RecordState():
            return RecordState.ARCHIVED if value is not RecordState.ARCHIVED else RecordState.ACKNOWLEDGED
        case Cause():
            return Cause.RENEW if value is not Cause.RENEW else Cause.ACCEPT
        case None:
            return RecordState.ACQUIRED
        case int():
            return value + 1
        case str():
            return value + "x"
        case list():
            return value[:-1]
    raise TypeError(value)


@st.composite
def tampering(draw: st.DrawFn) -> tuple[str, int, int, int]:
    """A kind of change, and numbers that choose the row, the column and the entry."""
    kind = draw(st.sampled_from(["drop", "repeat", "column", "column", "entry"]))
    return kind, draw(st.integers(0, 10_000)), draw(st.integers(0, 50)), draw(st.integers(0, 50))


def tampered(rows: list[StateRow], change: tuple[str, int, int, int]) -> tuple[list[StateRow], StateRow]:
    """The rows after the change, and the changed row as it was."""
    kind, number, column_number, entry_number = change
    if kind in ("drop", "repeat"):
        index = number % len(rows)
        row = rows[index]
        return [*rows[:index], *([row, row] if kind == "repeat" else []), *rows[index + 1 :]], row
    if kind == "entry":
        with_entries = [i for i, row in enumerate(rows) if row.transitions]
        index = with_entries[number % len(with_entries)]
        row = rows[index]
        entries = list(row.transitions)
        entry_index = entry_number % len(entries)
        field = ENTRY_FIELDS[column_number % len(ENTRY_FIELDS)]
        value = changed(getattr(entries[entry_index], field))
        entries[entry_index] = entries[entry_index].model_copy(update={field: value})
        columns: dict[str, Any] = {"transitions": entries}
    else:
        candidates = [i for i, row in enumerate(rows) if row.record_type in COLUMNS]
        index = candidates[number % len(candidates)]
        row = rows[index]
        names = [n for n in COLUMNS[row.record_type] if not isinstance(getattr(row, n), list) or getattr(row, n)]
        name = names[column_number % len(names)]
        columns = {name: changed(getattr(row, name))}
    return [*rows[:index], row.model_copy(update=columns), *rows[index + 1 :]], row


def is_named(row: StateRow, findings: str) -> bool:
    """True if findings name the commit, the share-partition, or the group of a row."""
    names = [f"commit {row.commit_id} ", "leader epoch", f"table snapshot {row.time_ms}"]
    names += [f"{row.topic}-{row.partition}"] if row.topic else []
    names += [f"group {row.group_id}"] if row.group_id else ["table snapshot of"]
    return any(name in findings for name in names)


@settings(max_examples=150)
@given(change=tampering())
def test_a_change_is_found_and_named(worked_rows: Rows, change: tuple[str, int, int, int]) -> None:
    rows, changed_row = tampered(list(worked_rows), change)
    findings = "; ".join(map(str, verify(rows, BROKER).findings))
    assert findings, f"{change} of a {changed_row.record_type.value} is not found"
    assert is_named(changed_row, findings), findings


@pytest.fixture(scope="module")
def worked_rows(worked: Site) -> Rows:
    """The rows of the site; they hold."""
    rows = Rows(worked.rows())
    assert verify(rows, BROKER).findings == []
    return rows
