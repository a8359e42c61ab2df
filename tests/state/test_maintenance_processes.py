"""Maintenance beside a writer, in a process of its own, which is killed in the middle of what it does."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import keep_up
from tests.state.share_partition_walk import MEMBERS, Operation, Walk, folded_positions
from tests.state.state_rows import marker_row

ROUNDS = 7
"""Maintenance processes that are killed one after the other."""
KINDS = ("acquire", "acquire", "acknowledge", "acknowledge", "close")


@contextmanager
def maintenance(path: str) -> Iterator[subprocess.Popen[str]]:
    """A maintenance process at work; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.state.maintenance_process", path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        yield process
        process.kill()


def operations(seed: random.Random) -> list[Operation]:
    return [
        Operation(
            seed.choice(KINDS),
            (seed.choice(("group-1", "group-2")), seed.randrange(2)),
            seed.choice(MEMBERS),
            seed.randrange(30),
            seed.randrange(1, 20),
            AcknowledgeType.ACCEPT,
        )
        for _ in range(4)
    ]


@pytest.mark.long("many kills of maintenance")
@pytest.mark.slow
def test_maintenance_that_is_killed_at_any_moment_costs_a_writer_no_row(
    table_path: str, reader: StateTableReader
) -> None:
    writer = StateTableWriter.open(table_path, {})
    seed = random.Random(7)
    walk = Walk()
    commit_id = 0
    for round_number in range(ROUNDS):
        with maintenance(table_path) as process:
            for _ in range(20 + 3 * round_number):
                rows = walk.batch(operations(seed))
                writer.append([marker_row(commit_id, walk.end_offset), *rows], commit_id)
                if commit_id % 25 == 24:
                    keep_up(table_path)
                commit_id += 1
            assert process.poll() is None, process.stderr and process.stderr.read()
            if round_number == ROUNDS - 1:
                # All others may have been killed before they had pruned anything.
                assert process.stdout is not None
                assert process.stdout.readline() == "0\n"
        recovery = reader.recovery()
        assert folded_positions(fold(recovery.rows)) == walk.positions()
        assert recovery.last_marker is not None
        assert recovery.last_marker.commit_id == commit_id - 1
    assert folded_positions(fold(reader.rows())) == walk.positions()
    markers = [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])]
    assert sorted(markers) == list(range(min(markers), commit_id))
    assert reader.rows([RecordType.PRUNED])
