"""Upkeep in a process of its own: what is due when, beside a writer, and when it fails or its parent ends."""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sharegroup.protocol.rows import RecordType
from sharegroup.state.commit_log import log_folder, versions
from sharegroup.state.delta_table import LOG_RETENTION_MS
from sharegroup.state.file_merge import LiveFiles, merge_small_files
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.upkeep import Upkeep, UpkeepProcess, UpkeepReport
from sharegroup.state.writer import StateTableWriter
from tests.state.share_partition_walk import folded_positions
from tests.state.state_rows import batch_rows
from tests.support.eventually import DEADLINE_S, eventually


class Clock:
    """A clock that stands still."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def upkeep_of(path: str, clock: Clock) -> Upkeep:
    return Upkeep(path, snapshot_interval_ms=300_000, commits_per_round=10, monotonic_s=clock)


class OvertakenFiles(LiveFiles):
    """Live files that a processor adds to while they are merged.

    Args:
        writer: adds a file with each commit.
        commit_ids: its commits during the merge.
    """

    def __init__(self, path: str, writer: StateTableWriter, commit_ids: range) -> None:
        super().__init__(path)
        self._writer = writer
        self._commit_ids = commit_ids

    def follow(self) -> None:
        super().follow()
        for commit_id in self._commit_ids:
            self._writer.append(batch_rows(commit_id), commit_id)


@pytest.mark.slow
def test_a_merge_counts_however_much_is_committed_meanwhile(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(20):
        writer.append(batch_rows(commit_id), commit_id)
    before = StateTableReader(table_path).rows()
    assert merge_small_files(table_path, OvertakenFiles(table_path, writer, range(20, 140))) >= 20
    rows = StateTableReader(table_path).rows()
    assert [row for row in rows if row.commit_id < 20] == before
    assert [row.commit_id for row in rows if row.record_type is RecordType.COMMIT_MARKER] == list(range(140))
    assert len(DeltaTable(table_path).file_uris()) < 130


def test_nothing_is_done_before_enough_commits(table_path: str, clock: Clock) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    for commit_id in range(7):
        writer.append(batch_rows(commit_id), commit_id)
        assert upkeep.run_if_due() is None
    # The table's creation and the fence are commits, too.
    writer.append(batch_rows(7), 7)
    report = upkeep.run_if_due()
    assert report is not None
    assert (report.merged_files, report.snapshot_rows, report.error) == (8, 0, "")
    assert upkeep.run_if_due() is None
    assert list((Path(table_path) / "_delta_log").glob("*.checkpoint.parquet"))


def test_merged_files_are_deleted_although_checkpoints_have_forgotten_them(
    table_path: str, reader: StateTableReader, clock: Clock
) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    for commit_id in range(30):
        writer.append(batch_rows(commit_id), commit_id)
        upkeep.run_if_due()
    DeltaTable(table_path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    DeltaTable(table_path).create_checkpoint()
    clock.now_s += 60
    for commit_id in range(30, 45):
        writer.append(batch_rows(commit_id), commit_id)
        upkeep.run_if_due()
    in_folder = len(list(Path(table_path).glob("date=*/*.parquet")))
    assert in_folder == len(DeltaTable(table_path).file_uris())
    assert {row.commit_id for row in reader.rows()} >= set(range(45))


@pytest.mark.slow
def test_rows_are_merged_a_few_times_only(table_path: str, reader: StateTableReader, clock: Clock) -> None:
    """Eight files of a size become one: a round does not take the result of the last one again."""
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    merged_files = []
    for commit_id in range(100):
        writer.append(batch_rows(commit_id), commit_id)
        report = upkeep.run_if_due()
        if report is not None:
            merged_files.append(report.merged_files)
    # 98 commits, and 7 of the files that they came to, together with what is to be the eighth.
    assert sum(merged_files) == 98 + 7
    assert len(DeltaTable(table_path).file_uris()) < 10
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == list(range(100))


def test_commits_before_an_expired_checkpoint_go_and_younger_ones_stay(
    table_path: str, reader: StateTableReader, clock: Clock
) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    for commit_id in range(8):
        writer.append(batch_rows(commit_id), commit_id)
    assert upkeep.run_if_due() is not None
    assert versions(table_path)[0] == 0
    (checkpoint,) = log_folder(table_path).glob("*.checkpoint.parquet")
    expired_s = time.time() - LOG_RETENTION_MS / 1_000 - 1
    os.utime(checkpoint, (expired_s, expired_s))
    for commit_id in range(8, 18):
        writer.append(batch_rows(commit_id), commit_id)
    assert upkeep.run_if_due() is not None
    assert versions(table_path)[0] == int(checkpoint.name[:20])
    writer.append(batch_rows(18), 18)
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == list(range(19))


def test_a_quiet_table_is_merged_after_few_commits_and_gets_a_snapshot_of_few_rows(
    table_path: str, reader: StateTableReader, clock: Clock
) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = Upkeep(table_path, snapshot_interval_ms=300_000, monotonic_s=clock)
    for commit_id in range(40):
        clock.now_s += 4
        writer.append(batch_rows(commit_id), commit_id)
        assert upkeep.run_if_due() is None
    clock.now_s += 5
    merged = upkeep.run_if_due()
    assert merged is not None
    assert (merged.merged_files, merged.snapshot_rows, merged.error) == (40, 0, "")
    for commit_id in range(40, 100):
        writer.append(batch_rows(commit_id), commit_id)
    assert upkeep.run_if_due() is None
    clock.now_s += 5
    snapshot = upkeep.run_if_due()
    assert snapshot is not None
    assert snapshot.snapshot_rows == 5
    assert reader.recovery().rows.table.num_rows == 4
    # Its own commits make it due no more.
    assert upkeep.run_if_due() is None
    clock.now_s += 5
    assert upkeep.run_if_due() is None


def test_a_table_that_becomes_quiet_gets_a_snapshot_although_its_last_round_was_of_a_busy_one(
    table_path: str, reader: StateTableReader, clock: Clock
) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = Upkeep(table_path, snapshot_interval_ms=300_000, commits_per_round=60, monotonic_s=clock)
    for commit_id in range(70):
        writer.append(batch_rows(commit_id), commit_id)
    busy = upkeep.run_if_due()
    assert busy is not None
    assert (busy.merged_files > 0, busy.snapshot_rows) == (True, 0)
    clock.now_s += 5
    assert upkeep.run_if_due() is None  # its own commits have changed the log
    clock.now_s += 5
    quiet = upkeep.run_if_due()
    assert quiet is not None
    assert quiet.snapshot_rows == 5
    assert reader.recovery().rows.table.num_rows == 4
    # A few more commits are not worth another one.
    writer.append(batch_rows(70), 70)
    for _ in range(2):
        assert upkeep.run_if_due() is None
        clock.now_s += 5


def test_the_log_of_a_table_that_stays_quiet_is_cleaned_up_once_more(table_path: str, clock: Clock) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    for commit_id in range(8):
        writer.append(batch_rows(commit_id), commit_id)
    assert upkeep.run_if_due() is not None
    (checkpoint,) = log_folder(table_path).glob("*.checkpoint.parquet")
    expired_s = time.time() - LOG_RETENTION_MS / 1_000 - 1
    os.utime(checkpoint, (expired_s, expired_s))
    assert versions(table_path)[0] == 0
    clock.now_s += 60
    assert upkeep.run_if_due() is None
    assert versions(table_path)[0] == int(checkpoint.name[:20])


def test_a_table_that_stays_quiet_is_cleaned_up_once_more(table_path: str, clock: Clock) -> None:
    writer = StateTableWriter.open(table_path, {})
    DeltaTable(table_path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    upkeep = upkeep_of(table_path, clock)
    # The last one is the tenth commit of the second round: none is left for a third.
    for commit_id in range(17):
        writer.append(batch_rows(commit_id), commit_id)
        upkeep.run_if_due()
    files = list(Path(table_path).glob("date=*/*.parquet"))
    assert len(files) > len(DeltaTable(table_path).file_uris())
    clock.now_s += 660
    report = upkeep.run_if_due()
    assert report is not None
    assert report.deleted_files == len(files) - len(DeltaTable(table_path).file_uris())
    clock.now_s += 660
    assert upkeep.run_if_due() is None


def test_a_cold_table_gets_a_snapshot_once(table_path: str, reader: StateTableReader, clock: Clock) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    writer.append(batch_rows(0), 0)
    assert upkeep.run_if_due() is None
    clock.now_s += 300
    report = upkeep.run_if_due()
    assert report is not None
    assert report.snapshot_rows == 5
    clock.now_s += 300
    assert upkeep.run_if_due() is None
    assert reader.last_snapshot_ms() is not None


@pytest.mark.slow
def test_a_snapshot_is_due_when_as_many_rows_follow_the_last_one(table_path: str, clock: Clock) -> None:
    writer = StateTableWriter.open(table_path, {})
    rows = [row for number in range(1_000) for row in batch_rows(0, group_id=f"group-{number}")[1:]]
    snapshot_after = []
    upkeep = upkeep_of(table_path, clock)
    for commit_id in range(25):
        writer.append([batch_rows(commit_id)[0], *rows], commit_id)
        if commit_id == 13:
            # A restarted one takes from the table's statistics what it has to know.
            upkeep = upkeep_of(table_path, clock)
        report = upkeep.run_if_due()
        if report is not None and report.snapshot_rows:
            snapshot_after.append(commit_id + 1)
    # 3,001 rows a commit, at least 5,000 rows, a check every tenth commit.
    assert snapshot_after == [8, 24]


class Reports:
    """Reports of an upkeep's process, as they come."""

    def __init__(self) -> None:
        self._queue: queue.Queue[UpkeepReport] = queue.Queue()
        self.add = self._queue.put

    def next(self) -> UpkeepReport:
        return self._queue.get(timeout=DEADLINE_S)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def process(table_path: str, reports: Reports) -> Iterator[UpkeepProcess]:
    """A process that is stopped at the end."""
    upkeep = UpkeepProcess(table_path, commits_per_round=10, on_report=reports.add)
    yield upkeep
    upkeep.stop()


@pytest.mark.slow
def test_upkeep_beside_a_writer_changes_nothing_but_files(
    table_path: str, reader: StateTableReader, process: UpkeepProcess, reports: Reports
) -> None:
    writer = StateTableWriter.open(table_path, {})
    process.start()
    for commit_id in range(60):
        writer.append(batch_rows(commit_id), commit_id)
    assert reports.next().error == ""
    process.stop()
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == list(range(60))
    assert len(DeltaTable(table_path).file_uris()) < 60
    assert folded_positions(fold(reader.recovery().rows)) == folded_positions(fold(reader.rows()))


@pytest.mark.slow
def test_a_failing_upkeep_is_reported_and_the_writer_goes_on(
    table_path: str, reader: StateTableReader, process: UpkeepProcess, reports: Reports
) -> None:
    """Also when it takes longer than an append may: it is not in the append's way."""
    process.start()
    assert "cannot be read" in reports.next().error
    writer = StateTableWriter.open(table_path, {})
    process_id = eventually(lambda: process.process_id, "the process is there")
    os.kill(process_id, signal.SIGSTOP)
    for commit_id in range(10):
        writer.append(batch_rows(commit_id), commit_id)
    os.kill(process_id, signal.SIGKILL)
    assert "exit code -9" in reports.next().error
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == list(range(10))


@pytest.mark.slow
def test_upkeep_starts_again_after_a_start_that_failed(
    table_path: str, reports: Reports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setattr("sharegroup.state.upkeep._PAUSE_AFTER_FAILURE_S", 0.5)
    writer = StateTableWriter.open(table_path, {})
    process = UpkeepProcess(table_path, commits_per_round=10, on_report=reports.add)
    away = interpreter.rename(tmp_path / "away")
    process.start()
    try:
        assert "cannot be started" in reports.next().error
        away.rename(interpreter)
        process_id = eventually(lambda: process.process_id, "the process is there")
        away = interpreter.rename(tmp_path / "away")
        os.kill(process_id, signal.SIGKILL)
        assert "exit code -9" in reports.next().error
        assert "cannot be started" in reports.next().error
        away.rename(interpreter)
        for commit_id in range(20):
            writer.append(batch_rows(commit_id), commit_id)
        report = reports.next()
        assert (report.error, report.merged_files > 0) == ("", True)
    finally:
        process.stop()


@pytest.mark.slow
def test_the_process_ends_with_its_parent(table_path: str) -> None:
    StateTableWriter.open(table_path, {})
    code = (
        "import sys\n"
        "from sharegroup.state.upkeep import UpkeepProcess\n"
        "from tests.support.eventually import eventually\n"
        f"upkeep = UpkeepProcess({table_path!r}); upkeep.start()\n"
        "print(eventually(lambda: upkeep.process_id, 'the process is there'), flush=True)\n"
        "sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    with parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    with os.fdopen(child) as handle:
        assert select.select([handle], [], [], DEADLINE_S)[0]
