"""Appends and fences."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from hypothesis import HealthCheck, given, settings

from sharegroup.errors import FencedProcessorError, ForeignCommitError, StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold_order
from sharegroup.state.local_storage import TEMPORARY_PREFIX
from sharegroup.state.maintenance import compact, take_snapshot, vacuum
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import lose_log
from tests.state.state_rows import ANY_ROWS, BATCH_MS, batch_rows, marker_row
from tests.support.eventually import DEADLINE_S
from tests.support.examples import examples

IDENTITY = {"request_topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "request_topic_partitions": 4}


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
    stored = [row for row in StateTableReader(path).rows() if "pid" not in row.payload]
    written = [row.model_copy(update={"leader_epoch": writer.leader_epoch, "commit_id": 7}) for row in rows]
    assert sorted(stored, key=str) == sorted(written, key=str)
    assert list(map(fold_order, stored)) == sorted(map(fold_order, written))


def test_an_append_is_one_commit_even_across_midnight(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    before = DeltaTable(table_path).version()
    writer.append([marker_row(1, 1, time_ms=BATCH_MS - 1), marker_row(1, 2, time_ms=BATCH_MS)], 1)
    assert DeltaTable(table_path).version() == before + 1
    rows = reader.rows([RecordType.COMMIT_MARKER])
    assert {(row.date, row.leader_epoch) for row in rows} == {("2025-12-31", 1), ("2026-01-01", 1)}


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


def test_a_fence_holds_when_the_log_of_its_commit_is_gone(table_path: str, reader: StateTableReader) -> None:
    older = StateTableWriter.open(table_path, IDENTITY)
    newer = StateTableWriter.open(table_path, IDENTITY)
    newer.append(batch_rows(0), 0)
    lose_log(table_path)
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


def test_a_conflict_without_a_fence_is_repeated(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
        compact(table_path)
        DeltaTable(table_path).alter.set_table_properties({"delta.checkpointInterval": str(10 + commit_id)})
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0, 1, 2]


def changeable(table: DeltaTable) -> DeltaTable:
    """A table whose properties refuse changes, for somebody who insists on them."""
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    return DeltaTable(table.table_uri)


def rows_of(table: DeltaTable) -> pa.Table:
    return pa.table(table.scan())


FOREIGN_COMMITS: dict[str, tuple[str, Callable[[DeltaTable], object]]] = {
    "restore": ("RESTORE", lambda table: table.restore(1)),
    "delete": ("DELETE", lambda table: changeable(table).delete("commit_id = 1")),
    "update": ("UPDATE", lambda table: changeable(table).update({"start_offset": "0"}, predicate="commit_id = 1")),
    "overwrite": ("WRITE", lambda table: write_deltalake(changeable(table), rows_of(table), mode="overwrite")),
    "append": ("WRITE", lambda table: write_deltalake(table, rows_of(table), mode="append")),
}


@pytest.mark.parametrize("change", FOREIGN_COMMITS)
def test_a_writer_stops_when_another_program_has_changed_rows(table_path: str, change: str) -> None:
    operation, make = FOREIGN_COMMITS[change]
    writer = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    make(DeltaTable(table_path))
    version = DeltaTable(table_path).version()
    for _ in range(2):
        with pytest.raises(
            ForeignCommitError, match=rf"^Version {version} of .* was made by {operation} .*Restore version"
        ):
            writer.append(batch_rows(3), 3)
    assert DeltaTable(table_path).version() == version


def test_a_writer_stops_when_another_program_has_rewritten_files(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    DeltaTable(table_path).optimize.compact()
    version = DeltaTable(table_path).version()
    with pytest.raises(
        ForeignCommitError, match=rf"^Version {version} of .* was made by OPTIMIZE .*the rows are the same"
    ):
        writer.append(batch_rows(3), 3)
    assert DeltaTable(table_path).version() == version


def test_a_writer_stops_when_the_log_of_a_restored_version_is_gone(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    table = DeltaTable(table_path)
    table.restore(table.version() - 1)
    compact(table_path)
    lose_log(table_path)
    version = DeltaTable(table_path).version()
    with pytest.raises(ForeignCommitError, match=r"lacks the rows of commits 2 to 2: .*DESCRIBE HISTORY"):
        writer.append(batch_rows(3), 3)
    assert DeltaTable(table_path).version() == version


def test_a_fenced_writer_does_not_mind_what_was_removed_before_the_fence(table_path: str) -> None:
    older = StateTableWriter.open(table_path, IDENTITY)
    older.append(batch_rows(0), 0)
    table = DeltaTable(table_path)
    table.restore(table.version() - 1)
    StateTableWriter.open(table_path, IDENTITY)
    with pytest.raises(FencedProcessorError):
        older.append(batch_rows(1), 1)


class Clock:
    """A clock that goes on by a step with each reading."""

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
    lose_log(table_path)
    clock.now_s += 600
    writer.append(batch_rows(3), 3)
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0, 1, 2, 3]


def test_a_late_commit_that_is_in_the_table_succeeded(table_path: str, reader: StateTableReader) -> None:
    clock = Clock()
    writer = StateTableWriter.open(table_path, IDENTITY, commit_timeout_ms=5_000, monotonic_s=clock)
    clock.step_s = 6.0
    for commit_id in range(2):
        writer.append(batch_rows(commit_id), commit_id)
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0, 1]


def test_a_commit_whose_outcome_is_unknown_is_in_once(
    table_path: str, reader: StateTableReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses after the commit has its name, then before it has."""
    writer = StateTableWriter.open(table_path, IDENTITY, sleep=lambda _: None)
    link = os.link
    failures = ["after", "before", "after"]

    def failing_link(*paths: str) -> None:
        when = failures.pop(0) if failures else ""
        if when != "before":
            link(*paths)
        if when:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", failing_link)
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    assert not failures
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0, 1, 2]


def test_a_disk_that_keeps_refusing_is_an_error_after_the_deadline(
    table_path: str, reader: StateTableReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    pauses_s: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses_s.append(pause_s)
        clock.now_s += pause_s

    def refuse(*_: str) -> None:
        raise OSError(28, "No space left on device")

    writer = StateTableWriter.open(table_path, IDENTITY, monotonic_s=clock, sleep=sleep)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(StateTableError, match=r"cannot be written: .*No space left.*Free space on the disk"):
            writer.append(batch_rows(0), 0)
    assert 18 < sum(pauses_s) <= 20
    writer.append(batch_rows(1), 1)
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [1]


def test_the_last_commit_id_is_an_application_transaction(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    assert DeltaTable(table_path).transaction_version("sharegroup.commit") is None
    writer.append(batch_rows(4), 4)
    assert DeltaTable(table_path).transaction_version("sharegroup.commit") == 4


def test_a_file_has_statistics_by_which_readers_pass_it_over(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    long_name = "g" * 300
    writer.append(batch_rows(7, group_id=long_name), 7)
    added = pa.table(DeltaTable(table_path).get_add_actions(flatten=True)).to_pylist()[0]
    names = ("record_type", "commit_id", "leader_epoch", "request_partition", "request_offset", "time_ms")
    assert [added[f"min.{name}"] for name in names] == ["CommitMarker", 7, 1, -1, -1, BATCH_MS]
    assert [added[f"max.{name}"] for name in names] == ["ShareSnapshot", 7, 1, 0, 7, BATCH_MS]
    assert (added["min.group_id"], added["max.group_id"]) == ("", None)
    assert StateTableReader(table_path).rows(group_id=long_name)


def test_a_table_with_a_feature_that_this_release_does_not_write_is_refused(table_path: str) -> None:
    StateTableWriter.open(table_path, IDENTITY)
    DeltaTable(table_path).alter.add_feature([TableFeatures.DeletionVectors], allow_protocol_versions_increase=True)
    expected = r"writer version 7 .*for its features deletionVectors\..*DROP FEATURE"
    for use in (lambda: StateTableWriter.open(table_path, IDENTITY), StateTableReader(table_path).last_marker):
        with pytest.raises(UnsupportedFormatVersionError, match=expected):
            use()


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
    writer = StateTableWriter.open(table_path, IDENTITY, commit_timeout_ms=1)
    shutil.rmtree(table_path)
    with pytest.raises(StateTableError, match="cannot be written"):
        writer.append(batch_rows(0), 0)


def test_a_table_that_an_older_processor_writes_all_the_time_is_taken_over(table_path: str) -> None:
    older = StateTableWriter.open(table_path, IDENTITY)
    failures: list[BaseException] = []
    began = threading.Event()

    def write() -> None:
        try:
            for commit_id in itertools.count(1):
                older.append([marker_row(1, commit_id)], commit_id)
                began.set()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert began.wait(DEADLINE_S)
        younger = StateTableWriter.open(table_path, IDENTITY, commit_timeout_ms=3_000)
    finally:
        # Whatever became of the younger one, this ends the older one.
        StateTableWriter.open(table_path, IDENTITY)
        thread.join(DEADLINE_S)
    assert younger.leader_epoch == 2
    assert [type(failure) for failure in failures] == [FencedProcessorError]


class StandStill:
    """A pause of ten minutes, in which a vacuum deletes all files that no commit names.

    Args:
        table_path: the table's folder.
        monkeypatch: sets the clock.
    """

    def __init__(self, table_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._table_path = table_path
        self._monkeypatch = monkeypatch
        self.deleted_files: list[int] = []

    def pause(self, _: object = None) -> None:
        pause_ns = 600 * 10**9
        for file in Path(self._table_path).glob("date=*/*.parquet"):
            modified_ns = file.stat().st_mtime_ns - pause_ns
            os.utime(file, ns=(modified_ns, modified_ns))
        self.deleted_files.append(vacuum(self._table_path).files)
        time_ns = time.time_ns
        self._monkeypatch.setattr(time, "time_ns", lambda: time_ns() + pause_ns)

    def pause_once_before(self, function: str, part: str) -> None:
        """Pause at the next call of a function of `os` for a file."""
        called = getattr(os, function)

        def paused(path: Any, *arguments: Any) -> Any:
            if part in str(path) and not self.deleted_files:
                self.pause()
            return called(path, *arguments)

        self._monkeypatch.setattr(os, function, paused)


@pytest.fixture
def stand_still(table_path: str, monkeypatch: pytest.MonkeyPatch) -> StandStill:
    return StandStill(table_path, monkeypatch)


MOMENTS = pytest.mark.parametrize("function", ["open", "link"])
"""Before the commit is prepared, and when it gets its name."""


@MOMENTS
def test_a_commit_has_its_rows_although_the_writer_stood_still(
    table_path: str, reader: StateTableReader, stand_still: StandStill, function: str
) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY)
    writer.append(batch_rows(0), 0)
    stand_still.pause_once_before(function, TEMPORARY_PREFIX)
    writer.append([marker_row(1, 1, time_ms=BATCH_MS - 1), marker_row(1, 2, time_ms=BATCH_MS)], 1)
    writer.append(batch_rows(2), 2)
    assert stand_still.deleted_files == [2]
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0, 1, 1, 2]
    assert reader.lost_files() == {}


def test_a_commit_is_tried_again_with_new_files_when_the_writer_stood_still(
    table_path: str, reader: StateTableReader, stand_still: StandStill, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StateTableWriter.open(table_path, IDENTITY, sleep=stand_still.pause)
    link = os.link
    failures = [OSError(5, "Input/output error")]

    def failing_link(*paths: str) -> None:
        if failures:
            raise failures.pop()
        link(*paths)

    monkeypatch.setattr(os, "link", failing_link)
    writer.append(batch_rows(0), 0)
    assert stand_still.deleted_files == [1]
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [0]


@MOMENTS
def test_a_fence_has_its_row_although_the_processor_stood_still(
    table_path: str, reader: StateTableReader, stand_still: StandStill, function: str
) -> None:
    StateTableWriter.open(table_path, IDENTITY)
    stand_still.pause_once_before(function, TEMPORARY_PREFIX)
    assert StateTableWriter.open(table_path, IDENTITY).leader_epoch == 2
    assert stand_still.deleted_files == [1]
    assert [fence.leader_epoch for fence in reader.rows([RecordType.FENCE])] == [1, 2]


@MOMENTS
def test_a_snapshot_has_its_rows_although_upkeep_stood_still(
    table_path: str, reader: StateTableReader, stand_still: StandStill, function: str
) -> None:
    StateTableWriter.open(table_path, IDENTITY).append(batch_rows(0), 0)
    stand_still.pause_once_before(function, TEMPORARY_PREFIX)
    row_count = take_snapshot(table_path, BATCH_MS * 2) or take_snapshot(table_path, BATCH_MS * 2)
    assert stand_still.deleted_files == [1]
    recovery = reader.recovery()
    assert recovery.snapshot_marker == recovery.last_marker
    assert row_count > 0
