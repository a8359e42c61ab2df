"""Rows that another program has removed, as a start detects them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from sharegroup.state.delta_table import open_table
from sharegroup.state.lost_rows import lost_rows, present_commits
from sharegroup.state.maintenance import compact, take_snapshot
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import FAR_FUTURE_MS, keep_up, lose_log
from tests.state.state_rows import BATCH_MS, batch_rows

Change = Callable[[str], object]


def write_commits(path: str, first: int, last: int) -> None:
    writer = StateTableWriter.open(path, {})
    for commit_id in range(first, last + 1):
        writer.append(batch_rows(commit_id, time_ms=BATCH_MS + commit_id), commit_id)


def loss(path: str, accepted_commit_id: int = -1) -> str:
    return lost_rows(path, open_table(path), accepted_commit_id)


def changeable(path: str) -> DeltaTable:
    """The table for a program that insists on changing it."""
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})
    return DeltaTable(path)


def restore(path: str, versions: int = 1) -> None:
    table = DeltaTable(path)
    table.restore(table.version() - versions)


def overwrite(path: str, condition: str) -> None:
    table = changeable(path)
    rows = QueryBuilder().register("state", table).execute(f"SELECT * FROM state WHERE {condition}")
    write_deltalake(DeltaTable(path), pa.table(rows), mode="overwrite")


CHANGES: dict[str, tuple[Change, str]] = {
    "restore": (lambda path: restore(path, 2), r"lacks commits 2 to 3"),
    "overwrite": (lambda path: overwrite(path, "commit_id < 3"), r"lacks commits 3 to 3"),
    "delete of commits": (lambda path: changeable(path).delete("commit_id = 1"), r"lacks commits 1 to 1"),
    "delete of a share-partition": (
        lambda path: changeable(path).delete("partition = 2"),
        r"version \d+, DELETE of another program, has removed rows",
    ),
    "update": (
        lambda path: changeable(path).update(predicate="partition = 2", updates={"start_offset": "0"}),
        r"version \d+, UPDATE of another program, has removed rows",
    ),
}


@pytest.mark.parametrize("is_merged", [False, True], ids=["files of commits", "merged files"])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_another_program_removed_are_missing_until_they_are_restored(
    table_path: str, change: str, is_merged: bool
) -> None:
    write_commits(table_path, 0, 3)
    if is_merged and change != "restore":
        compact(table_path)
    assert loss(table_path) == ""
    version = DeltaTable(table_path).version()
    remove, expected = CHANGES[change]
    remove(table_path)
    if is_merged:
        # Upkeep may go on beside a processor that has ended.
        compact(table_path)
    assert re.search(expected, loss(table_path))
    DeltaTable(table_path).restore(version)
    assert loss(table_path) == ""


def test_a_hole_is_noticed_after_its_log_is_gone(table_path: str) -> None:
    write_commits(table_path, 0, 3)
    compact(table_path)
    changeable(table_path).delete("commit_id = 2")
    lose_log(table_path)
    assert "lacks commits 2 to 2" in loss(table_path)


def test_a_restore_to_a_version_before_the_table_snapshot_is_noticed(table_path: str, reader: StateTableReader) -> None:
    write_commits(table_path, 0, 1)
    take_snapshot(table_path, FAR_FUTURE_MS)
    write_commits(table_path, 2, 3)
    older_ms = reader.last_snapshot_ms()
    version = DeltaTable(table_path).version()
    take_snapshot(table_path, FAR_FUTURE_MS)
    lost_ms = reader.last_snapshot_ms()
    assert loss(table_path) == ""
    DeltaTable(table_path).restore(version - 1)
    assert f"lacks its table snapshot of {lost_ms}" in loss(table_path)
    present = present_commits(table_path, open_table(table_path))
    assert (present.snapshot_ms, present.last_commit_id) == (older_ms, 2)


def test_what_the_product_does_itself_removes_no_rows(table_path: str) -> None:
    for first in (0, 4):
        write_commits(table_path, first, first + 3)
        keep_up(table_path)
    write_commits(table_path, 8, 8)
    assert loss(table_path) == ""
    prune(table_path, BATCH_MS + 3)
    compact(table_path)
    assert loss(table_path) == ""


def test_an_optimize_of_another_program_removes_no_rows(table_path: str) -> None:
    write_commits(table_path, 0, 9)
    DeltaTable(table_path).optimize.compact()
    assert loss(table_path) == ""
    restore(table_path)
    assert loss(table_path) == ""


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_an_accepted_loss_is_accepted_for_good(table_path: str, reader: StateTableReader, has_snapshot: bool) -> None:
    write_commits(table_path, 0, 1)
    version = DeltaTable(table_path).version()
    write_commits(table_path, 2, 3)
    if has_snapshot:
        take_snapshot(table_path, FAR_FUTURE_MS)
    DeltaTable(table_path).restore(version)
    changeable(table_path).delete("commit_id = 0")
    present = present_commits(table_path, open_table(table_path))
    writer = StateTableWriter.open(table_path, {}, transactions=present.transactions())
    for commit_id in (2, 3):
        assert loss(table_path, accepted_commit_id=1) == ""
        writer.append(batch_rows(commit_id), commit_id)
    assert "lacks commits 0 to 0" in loss(table_path)
    marker = reader.last_marker()
    assert marker is not None
    assert marker.commit_id == 3
    take_snapshot(table_path, FAR_FUTURE_MS)
    assert loss(table_path) == ""
