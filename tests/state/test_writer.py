"""Appends and fences."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from hypothesis import HealthCheck, given, settings

from sharegroup.errors import FencedProcessorError, StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold_order
from sharegroup.state.maintenance import compact
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.state_rows import ANY_ROWS, BATCH_MS, batch_rows, marker_row
from tests.support.examples import examples

IDENTITY = {"request_topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "request_topic_partitions": 4}


def clean_log(table_path: str) -> None:
    """What the library does with log files whose time is over."""
    table = DeltaTable(table_path)
    table.create_checkpoint()
    for version in range(table.version()):
        (Path(table_path) / "_delta_log" / f"{version:020}.json").unlink()


def test_opening_takes_the_next_leader_epoch_and_leaves_a_fence(table_path: str, reader: StateTableReader) -> None:
    assert [StateTableWriter.open(table_path, IDENTITY).leader_epoch for _ in range(3)] == [1, 2, 3]
    fences = reader.rows([RecordType.FENCE])
    assert [fence.leader_epoch for fence in fences] == [1, 2, 3]
    assert fences[0].payload.items() >= IDENTITY.items()
    assert {"pid", "host"} <= fences[0].payload.keys()


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ANY_ROWS)
def test_what_was_appended_is_read_back(tmp_path: Path, rows: list[StateRow]) -> None:
    path = str(tmp_path / "any")
    shutil.rmtree(path, ignore_errors=True)
    writer = StateTableWriter.open(path, IDENTITY)
    writer.append(rows, 7)
    found = [row for row in StateTableReader(path).rows() if "pid" not in row.payload]
    written = [row.model_copy(update={"leader_epoch": writer.leader_epoch, "commit_id": 7}) for row in rows]
    assert sorted(found, key=str) == sorted(written, key=str)
    assert list(map(fold_order, found)) == sorted(map(fold_order, written))


def test_an_append_is_one_commit_even_across_midnight(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    before = DeltaTable(table_path).version()
    writer.append([marker_row(1, 1, time_ms=BATCH_MS - 1), marker_row(1, 2, time_ms=BATCH_MS)], 1)
    assert DeltaTable(table_path).version() == before + 1
    rows = reader.rows([RecordType.COMMIT_MARKER])
    assert [(row.date, row.leader_epoch) for row in rows] == [("2025-12-31", 1), ("2026-01-01", 1)]


@pytest.mark.parametrize(("commits_before", "commits_of_the_successor"), [(0, 0), (0, 3), (1, 0), (51, 3)])
def test_a_fenced_writer_writes_nothing_more(
    table_path: str, reader: StateTableReader, commits_before: int, commits_of_the_successor: int
) -> None:
    older = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(commits_before):
        older.append([marker_row(commit_id, commit_id)], commit_id)
    newer = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(commits_of_the_successor):
        newer.append(batch_rows(commits_before + commit_id), commits_before + commit_id)
    before = reader.rows()
    for _ in range(2):
        with pytest.raises(FencedProcessorError, match=r"leader epoch 2; this processor has 1.*Stop this processor"):
            older.append(batch_rows(99), 99)
    assert reader.rows() == before
    newer.append(batch_rows(100), 100)


def test_a_fenced_writer_that_compacts_first_writes_nothing_more(table_path: str, reader: StateTableReader) -> None:
    older = StateTableWriter.open(table_path, IDENTITY)
    older.append(batch_rows(0), 0)
    StateTableWriter.open(table_path, IDENTITY)
    with pytest.raises(FencedProcessorError):
        older.append(batch_rows(1), 1)
    assert reader.last_marker() is not None
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0]


def test_a_fence_holds_when_the_log_of_its_commit_is_gone(table_path: str, reader: StateTableReader) -> None:
    older = StateTableWriter.open(table_path, IDENTITY)
    newer = StateTableWriter.open(table_path, IDENTITY)
    newer.append(batch_rows(0), 0)
    clean_log(table_path)
    with pytest.raises(FencedProcessorError):
        older.append(batch_rows(1), 1)
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0]


@pytest.mark.parametrize("missing", ["all statistics", "the statistic of the leader epoch"])
def test_a_fence_holds_when_the_statistics_of_its_file_are_missing(table_path: str, missing: str) -> None:
    older = StateTableWriter.open(table_path, IDENTITY)
    newer = StateTableWriter.open(table_path, IDENTITY)
    commit = Path(table_path) / "_delta_log" / f"{DeltaTable(table_path).version():020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for add in (action["add"] for action in actions if "add" in action):
        statistics = json.loads(add.pop("stats"))
        if missing != "all statistics":
            del statistics["maxValues"]["leader_epoch"]
            add["stats"] = json.dumps(statistics)
    commit.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(FencedProcessorError):
        older.append(batch_rows(0), 0)
    assert StateTableWriter.open(table_path, IDENTITY).leader_epoch == newer.leader_epoch + 1


@pytest.mark.parametrize("commits_missed", [1, 5])
def test_the_library_commits_at_the_version_after_the_handle_or_not_at_all(
    table_path: str, commits_missed: int
) -> None:
    """What every fence rests on."""
    StateTableWriter.open(table_path, IDENTITY)
    stale = DeltaTable(table_path)
    for _ in range(commits_missed):
        StateTableWriter.open(table_path, IDENTITY)
    before = DeltaTable(table_path).version()
    with pytest.raises(CommitFailedError):
        write_deltalake(
            stale, stale.to_pyarrow_table(), mode="append", commit_properties=CommitProperties(max_commit_retries=0)
        )
    assert DeltaTable(table_path).version() == before


def test_a_conflict_without_a_fence_is_repeated(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
        compact(table_path)
        DeltaTable(table_path).alter.set_table_properties({"delta.checkpointInterval": str(10 + commit_id)})
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0, 1, 2]


class Clock:
    """A clock that goes on by a step with each look at it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def test_an_idle_writer_survives_that_the_log_of_its_version_is_cleaned_up(
    table_path: str, reader: StateTableReader
) -> None:
    clock = Clock()
    writer = StateTableWriter.open(table_path, IDENTITY, monotonic_s=clock)
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    compact(table_path)
    clean_log(table_path)
    clock.now_s += 600
    writer.append(batch_rows(3), 3)
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0, 1, 2, 3]


def test_a_commit_that_took_too_long_is_not_trusted(table_path: str) -> None:
    clock = Clock()
    writer = StateTableWriter.open(table_path, IDENTITY, commit_timeout_ms=5_000, monotonic_s=clock)
    clock.step_s = 6.0
    with pytest.raises(StateTableError, match=r"longer than 5000 ms.*start the processor again"):
        writer.append(batch_rows(0), 0)


def test_appends_compact_the_table_now_and_then(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(25):
        writer.append(batch_rows(commit_id), commit_id)
    assert len(DeltaTable(table_path).file_uris()) < 15
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == list(range(25))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateTableError, match=r"file/state cannot be created: .*part of this path is a file"):
        StateTableWriter.open(str(tmp_path / "file" / "state"), IDENTITY)


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "other")
    write_deltalake(path, pa.table({"record_type": ["x"], "colour": ["red"]}))
    with pytest.raises(UnsupportedFormatVersionError, match="colour"):
        StateTableWriter.open(path, IDENTITY)
    assert DeltaTable(path).version() == 0


def test_a_table_that_is_removed_under_a_writer_is_an_error(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    shutil.rmtree(table_path)
    with pytest.raises(StateTableError, match="no state table"):
        writer.append(batch_rows(0), 0)
