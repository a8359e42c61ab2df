"""The maintenance program: what it says, what it leaves, how it ends; without a JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.state_rows import BATCH_MS, batch_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DAY_MS = 86_400_000


def maintained(table_path: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the program with the configuration for one machine, without a log; no Java can be found."""
    command = [sys.executable, str(ROOT / "jobs" / "state_maintenance.py"), "--config", str(ROOT / "conf/local.yaml")]
    return subprocess.run(
        [*command, "--set", f"state.table.path={table_path}", "--set", f"log.path={table_path}.db", *flags],
        env={"PATH": "/nonexistent", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def line(output: str, step: str) -> str:
    return next(line for line in output.splitlines() if line.startswith(f"{step}: "))


def test_it_says_what_it_does_and_does_it_once(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(6):
        writer.append(batch_rows(commit_id, time_ms=BATCH_MS + commit_id * DAY_MS // 2), commit_id)
    rows = reader.rows()

    trial = maintained(table_path, "--dry-run")
    assert (trial.returncode, trial.stderr) == (0, "")
    assert line(trial.stdout, "merged") == "merged: 6 files"
    assert reader.rows() == rows

    done = maintained(table_path)
    assert line(done.stdout, "snapshot") == "snapshot: 5 rows written"
    assert line(done.stdout, "pruned") == (
        "pruned: 24 rows of 2026-01-01 to 2026-01-03: CommitMarker 6, ShareSnapshot 18"
    )
    assert line(done.stdout, "before").startswith("before: live 7 files, ")
    assert line(done.stdout, "after").startswith("after: live ")
    assert list(reader.recovery().rows) == reader.rows(group_id="group-1")

    assert list((Path(table_path) / "_delta_log").glob("*.checkpoint.parquet"))

    again = maintained(table_path)
    assert [line(again.stdout, step) for step in ("snapshot", "pruned", "merged")] == [
        "snapshot: 0 rows written",
        "pruned: 0 rows",
        "merged: 0 files",
    ]


def test_the_audit_retention_keeps_rows(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    before = reader.rows()
    done = maintained(table_path, "--set", "audit.retention.ms=3153600000000")
    assert line(done.stdout, "pruned") == "pruned: 0 rows"
    assert len(reader.rows()) == len(before) + 5


@pytest.mark.parametrize(
    ("flags", "exit_code", "words"),
    [
        pytest.param((), 1, "There is no state table at", id="no table"),
        pytest.param(("--set", "audit.retention.ms=-1"), 2, "audit.retention.ms", id="wrong configuration"),
        pytest.param(("--verbos",), 2, "unrecognized arguments: --verbos", id="wrong flag"),
    ],
)
def test_it_fails_with_a_reason(table_path: str, flags: tuple[str, ...], exit_code: int, words: str) -> None:
    failed = maintained(table_path, *flags)
    assert (failed.returncode, words in failed.stderr) == (exit_code, True), failed.stderr


def test_its_help_has_an_example() -> None:
    helped = maintained("unused", "--help")
    assert helped.returncode == 0
    assert "python jobs/state_maintenance.py --config conf/local.yaml" in helped.stdout
