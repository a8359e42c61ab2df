"""One description of a data file, wherever it comes from: its writer, its commit, or the list of the table."""

from __future__ import annotations

from sharegroup.state.commit_log import read_commit
from sharegroup.state.data_file import DataFile
from sharegroup.state.data_files import write_data_files
from sharegroup.state.delta_table import create_or_open_table, open_table
from sharegroup.state.listed_files import listed_files
from sharegroup.state.schema import rows_to_table
from sharegroup.state.writer import StateTableWriter
from tests.state.state_rows import BATCH_MS, batch_rows

LONG_NAME = "g" * 100


def test_the_writer_the_log_and_the_list_describe_a_file_alike(table_path: str) -> None:
    create_or_open_table(table_path)
    (new,) = write_data_files(table_path, rows_to_table(batch_rows(3), 3, 1))
    assert DataFile.of_action(new.add_action()["add"]) == new.file
    assert (new.file.row_count, new.file.lowest_commit_id, new.file.highest_commit_id) == (4, 3, 3)
    assert new.file.leader_epoch == 1
    StateTableWriter.open(table_path, {}).append(batch_rows(0), 0)
    table = open_table(table_path)
    (added,) = read_commit(table_path, table.version()).added
    assert added in listed_files(table)


def test_a_file_without_statistics_may_have_any_row() -> None:
    file = DataFile.of_action({"path": "date%3D2026-01-01/a.parquet", "size": 5})
    assert file == DataFile("date=2026-01-01/a.parquet", "", 5, None, {})
    assert file.lowest_commit_id < 0 < file.highest_commit_id
    assert file.leader_epoch is None
    assert file.may_have("time_ms", BATCH_MS)


def test_a_long_maximum_is_left_out_and_bounds_nothing(table_path: str) -> None:
    create_or_open_table(table_path)
    (new,) = write_data_files(table_path, rows_to_table(batch_rows(0, group_id=LONG_NAME)[1:], 0, 1))
    assert "max.group_id" not in new.file.bounds
    assert new.file.may_have("group_id", LONG_NAME)
    assert not new.file.may_have("group_id", "a")
    assert DataFile.of_action(new.add_action()["add"]) == new.file
