"""Upkeep in a process of its own: what is due when, beside a writer, and when it fails or its parent ends."""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.upkeep import UpkeepProcess
from sharegroup.state.upkeep_round import Upkeep, UpkeepReport
from sharegroup.state.writer import StateTableWriter
from tests.state.share_partition_walk import folded_positions
from tests.state.state_rows import batch_rows

TIMEOUT_S = 120
"""Far longer than any test needs; only a failure takes that long."""


class Clock:
    """A clock that stands still."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def upkeep_of(path: str, clock: Clock) -> Upkeep:
    return Upkeep(path, snapshot_interval_ms=300_000, commits_per_round=5, monotonic_s=clock)


def test_nothing_is_done_before_enough_commits(table_path: str, clock: Clock) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    for commit_id in range(2):
        writer.append(batch_rows(commit_id), commit_id)
        assert upkeep.run_if_due() is None
    # The table's creation and the fence are commits, too.
    writer.append(batch_rows(2), 2)
    report = upkeep.run_if_due()
    assert report is not None
    assert (report.merged_files, report.snapshot_rows, report.error) == (3, 0, "")
    assert upkeep.run_if_due() is None
    assert list((Path(table_path) / "_delta_log").glob("*.checkpoint.parquet"))


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


def test_a_snapshot_is_due_when_as_many_rows_follow_the_last_one(table_path: str, clock: Clock) -> None:
    writer = StateTableWriter.open(table_path, {})
    upkeep = upkeep_of(table_path, clock)
    snapshot_after = []
    for commit_id in range(60):
        rows = [row for number in range(20) for row in batch_rows(commit_id, group_id=f"group-{number}")[1:]]
        writer.append([batch_rows(commit_id)[0], *rows], commit_id)
        report = upkeep.run_if_due()
        if report is not None and report.snapshot_rows:
            snapshot_after.append(commit_id + 1)
    # 60 rows a commit, at least 1,000 rows, a look every fifth commit.
    assert len(snapshot_after) == 3
    assert snapshot_after[0] >= 17


class Reports:
    """Reports of an upkeep's process, as they come."""

    def __init__(self) -> None:
        self._queue: queue.Queue[UpkeepReport] = queue.Queue()
        self.add = self._queue.put

    def next(self) -> UpkeepReport:
        return self._queue.get(timeout=TIMEOUT_S)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def process(table_path: str, reports: Reports) -> Iterator[UpkeepProcess]:
    """A process that is stopped at the end."""
    upkeep = UpkeepProcess(table_path, commits_per_round=5, on_report=reports.add)
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
    process_id = process.process_id
    assert process_id is not None
    os.kill(process_id, signal.SIGSTOP)
    for commit_id in range(10):
        writer.append(batch_rows(commit_id), commit_id)
    os.kill(process_id, signal.SIGKILL)
    assert "exit code -9" in reports.next().error
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == list(range(10))


@pytest.mark.slow
def test_the_process_ends_with_its_parent(table_path: str) -> None:
    StateTableWriter.open(table_path, {})
    code = (
        "import sys; from sharegroup.state.upkeep import UpkeepProcess\n"
        f"upkeep = UpkeepProcess({table_path!r}); upkeep.start(); print(upkeep.process_id, flush=True)\n"
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
        assert select.select([handle], [], [], TIMEOUT_S)[0]
