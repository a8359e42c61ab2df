"""Upkeep moves rows between files and changes nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sharegroup.errors import StateTableError
from sharegroup.state import file_merge
from sharegroup.state.commit_log import try_commit_merge
from sharegroup.state.file_merge import reorganizing
from sharegroup.state.fold import fold
from sharegroup.state.maintenance import clean_log, compact, vacuum
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import lose_log
from tests.state.state_rows import BATCH_MS, batch_rows

DAY_MS = 86_400_000


def data_files(table_path: str) -> set[Path]:
    return set(Path(table_path).rglob("*.parquet"))


def test_compaction_leaves_one_file_a_day_and_the_same_rows(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(12):
        writer.append(batch_rows(commit_id, time_ms=BATCH_MS + (commit_id % 3) * DAY_MS), commit_id)
    before = reader.rows()
    fence_files = 1
    assert compact(table_path) == 12
    assert len(DeltaTable(table_path).file_uris()) == 3 + fence_files
    assert reader.rows() == before
    assert fold(reader.rows()).groups.keys() == {"group-1"}
    assert compact(table_path) == 0
    writer.append(batch_rows(12), 12)
    assert len(reader.rows()) == len(before) + len(batch_rows(12))


def test_a_compaction_goes_on_when_the_log_of_its_begin_is_gone(
    table_path: str, reader: StateTableReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(6):
        writer.append(batch_rows(commit_id, time_ms=BATCH_MS + (commit_id % 3) * DAY_MS), commit_id)
    before = reader.rows()

    def merge_and_lose_log(*arguments: Any, **options: Any) -> bool:
        is_merged = try_commit_merge(*arguments, **options)
        lose_log(table_path)
        return is_merged

    monkeypatch.setattr(file_merge, "try_commit_merge", merge_and_lose_log)
    assert compact(table_path) == 6
    assert reader.rows() == before


def test_files_that_a_reader_may_still_need_outlive_a_vacuum(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(5):
        writer.append(batch_rows(commit_id), commit_id)
    before = data_files(table_path)
    compact(table_path)
    assert vacuum(table_path).files == 0
    assert before < data_files(table_path)


def age(table_path: str) -> None:
    """Make all files of the log older than its retention."""
    for file in Path(table_path, "_delta_log").iterdir():
        os.utime(file, (0, 0))


def test_a_reader_that_listed_the_log_before_its_clean_up_can_read_what_it_listed(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(5):
        writer.append(batch_rows(commit_id), commit_id)
    clean_log(table_path)
    for commit_id in range(5, 10):
        writer.append(batch_rows(commit_id), commit_id)
    age(table_path)
    checkpoint = max(log_files(table_path, "*.checkpoint.parquet"))
    since = {name for name in log_files(table_path, "*.json") if name[:20] >= checkpoint[:20]}
    clean_log(table_path)
    assert {checkpoint, *since} <= log_files(table_path, "*")
    assert min(log_files(table_path, "*.json")) == f"{checkpoint[:20]}.json"
    age(table_path)
    writer.append(batch_rows(10), 10)
    clean_log(table_path)
    assert not ({checkpoint, *since} - {max(since)}) & log_files(table_path, "*")


def log_files(table_path: str, pattern: str) -> set[str]:
    return {file.name for file in Path(table_path, "_delta_log").glob(pattern)}


def test_a_vacuum_deletes_what_no_version_needs(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(5):
        writer.append(batch_rows(commit_id), commit_id)
    rows = reader.rows()
    compact(table_path)
    DeltaTable(table_path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    assert vacuum(table_path).files == 5
    assert len(data_files(table_path)) == len(DeltaTable(table_path).file_uris())
    assert reader.rows() == rows
    writer.append(batch_rows(5), 5)


def test_a_vacuum_goes_by_the_time_of_removal_or_of_writing_when_no_commit_names_the_file(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(5):
        writer.append(batch_rows(commit_id), commit_id)
    for file in data_files(table_path):
        os.utime(file, (0, 0))
    compact(table_path)
    needed = data_files(table_path)
    folder = next(Path(table_path).glob("date=*"))
    of_a_running_commit, of_a_killed_process = folder / "young.parquet", folder / "old.parquet"
    for file in (of_a_running_commit, of_a_killed_process):
        file.write_bytes(b"rows")
    os.utime(of_a_killed_process, (0, 0))
    assert vacuum(table_path).files == 1
    assert data_files(table_path) == needed | {of_a_running_commit}


@pytest.mark.parametrize("upkeep", [compact, vacuum])
def test_upkeep_of_a_missing_table_is_an_error(table_path: str, upkeep: object) -> None:
    assert callable(upkeep)
    with pytest.raises(StateTableError, match="no state table"):
        upkeep(table_path)


def test_a_vacuum_leaves_the_files_of_a_rewrite_that_takes_long(table_path: str) -> None:
    StateTableWriter.open(table_path, {}).append(batch_rows(0), 0)
    unnamed = next(Path(table_path).glob("date=*")) / "rewritten.parquet"
    unnamed.write_bytes(b"not committed yet")
    long_ago_s = time.time() - 3_600
    os.utime(unnamed, (long_ago_s, long_ago_s))
    with reorganizing(table_path) as is_mine:
        assert is_mine
        assert vacuum(table_path).files == 0
    assert vacuum(table_path).files == 1
    assert not unnamed.exists()


def test_two_never_merge_the_same_files(table_path: str, reader: StateTableReader) -> None:
    """The second would do it in vain, and give up when it commits."""
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(5):
        writer.append(batch_rows(commit_id), commit_id)
    rows = reader.rows()
    with reorganizing(table_path) as is_mine:
        assert is_mine
        assert compact(table_path, patience_s=0) == 0
        with pytest.raises(StateTableError, match="reorganized by another process"):
            prune(table_path, BATCH_MS, patience_s=0)
    assert compact(table_path) == 5
    assert reader.rows() == rows
