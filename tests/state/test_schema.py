"""Rows to Arrow and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import fold_order
from sharegroup.state.schema import STATE_TABLE_SCHEMA, StoredRows, decoded, rows_to_table, utc_date
from tests.state.state_rows import ANY_ROWS, batch_rows


@given(rows=ANY_ROWS)
def test_rows_come_back_as_they_were(rows: list[StateRow]) -> None:
    assert list(decoded(rows_to_table(rows))) == rows


@given(rows=ANY_ROWS)
def test_stored_rows_are_in_fold_order(rows: list[StateRow]) -> None:
    assert list(StoredRows(rows_to_table(rows))) == sorted(rows, key=fold_order)


def test_every_field_of_a_row_is_a_column() -> None:
    assert set(STATE_TABLE_SCHEMA.names) == set(StateRow.model_fields)


def test_a_record_type_of_a_later_release_is_refused_by_name() -> None:
    table = rows_to_table(batch_rows(0))
    later = pa.array(["ShareMerge"] * table.num_rows)
    with pytest.raises(UnsupportedFormatVersionError, match=r"record_type.*ShareMerge"):
        list(decoded(table.set_column(0, "record_type", later)))


@pytest.mark.parametrize(
    ("time_ms", "date"), [(0, "1970-01-01"), (1_767_225_599_999, "2025-12-31"), (1_767_225_600_000, "2026-01-01")]
)
def test_a_day_begins_at_midnight_utc(time_ms: int, date: str) -> None:
    assert utc_date(time_ms) == date
