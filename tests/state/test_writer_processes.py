"""Several processes at one table; a process that is killed; a disk that refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from deltalake import DeltaTable

from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.processor_process import TURNS
from tests.state.state_rows import batch_rows
from tests.support.eventually import DEADLINE_S

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(table_path: str) -> Iterator[Start]:
    """Starts a process that waits for a line; kills what is left at the end."""
    with ExitStack() as stack:

        def started(behaviour: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.state.processor_process", table_path, behaviour],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            return process

        yield started


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.long("many processes that race")
@pytest.mark.slow
def test_racing_processors_get_different_epochs_and_none_writes_past_a_fence(
    table_path: str, reader: StateTableReader, start: Start
) -> None:
    processes = [start("take-turns") for _ in range(4)]
    for process in processes:
        go(process)
    committed = [tuple(pair) for p in processes for pair in json.loads(p.communicate(timeout=DEADLINE_S)[0])]
    markers = [(row.leader_epoch, row.commit_id) for row in reader.rows([RecordType.COMMIT_MARKER])]
    assert sorted(markers) == sorted(committed)
    epochs = [row.leader_epoch for row in reader.rows([RecordType.FENCE])]
    assert sorted(epochs) == list(range(1, len(processes) * TURNS + 1))
    history = [commit for commit in DeltaTable(table_path).history() if commit["operation"] == "WRITE"]
    by_version = [commit["leaderEpoch"] for commit in sorted(history, key=lambda commit: commit["version"])]
    assert by_version == sorted(by_version)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [1, 6, 40])
def test_a_killed_writer_leaves_whole_commits(
    table_path: str, reader: StateTableReader, start: Start, commits: int
) -> None:
    process = start("append")
    go(process)
    assert process.stdout is not None
    reported = [int(process.stdout.readline()) for _ in range(commits)]
    process.kill()
    process.wait(DEADLINE_S)

    successor = StateTableWriter.open(table_path, {})
    marker = reader.last_marker()
    assert marker is not None
    assert marker.commit_id >= reported[-1]
    successor.append(batch_rows(marker.commit_id + 1), marker.commit_id + 1)

    def in_batch(rows: list[StateRow]) -> Counter[tuple[int, RecordType]]:
        others = (RecordType.FENCE, RecordType.TABLE_SNAPSHOT)
        return Counter((row.commit_id, row.record_type) for row in rows if row.record_type not in others)

    whole = [row for commit_id in range(marker.commit_id + 2) for row in batch_rows(commit_id)]
    assert in_batch(reader.rows()) == in_batch(whole)


@pytest.mark.slow
def test_a_disk_that_refuses_leaves_the_table_as_it_was(reader: StateTableReader, start: Start) -> None:
    process = start("limited-files")
    message = process.communicate("go\n", timeout=DEADLINE_S)[0]
    assert "cannot be written" in message
    assert "File too large" in message
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])] == [1]
