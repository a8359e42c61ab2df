"""The example job as `make run` starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.environment import claim_folder
from tests.support import leash
from tests.support.eventually import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]

# Each is a process of its own that imports PySpark, even if it ends before Spark starts.
pytestmark = [pytest.mark.spark, pytest.mark.long("programs with JVMs of their own")]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "jobs" / "flights.py"), *arguments]
    # Six members and a processor want more cores than other tests do.
    return leash.run(command, timeout_s=3 * DEADLINE_S, cwd=ROOT)


@pytest.mark.slow
def test_every_flight_is_accounted_for(tmp_path: Path) -> None:
    result = _run("--folder", str(tmp_path / "flights"))
    assert result.returncode == 0, result.stderr
    # Spark warns of a Python worker that a busy machine started too late, and starts another one.
    assert not [line for line in result.stderr.splitlines() if line.startswith("error") or "event=failed" in line]
    figures = {
        cells[0].strip(): cells[1].strip() for line in result.stdout.splitlines() if len(cells := _cells(line)) == 2
    }
    assert figures["accepted"] == "328,521"
    assert figures["rejected"] == "8,255"
    assert figures["rows in the sinks"] == "328,521"
    assert figures["rows twice in the sinks"] == "0"
    assert figures["disagreements"] == "0"
    assert "killed python-consumer-killed (SIGKILL)" in result.stdout


def test_a_folder_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with claim_folder(tmp_path):
        result = _run("--folder", str(tmp_path))
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert str(tmp_path) in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_wrong_key_is_one_clear_line(tmp_path: Path) -> None:
    result = _run("--folder", str(tmp_path), "--set", "group.share.max.sise=7")
    assert result.returncode == 2
    assert "group.share.max.sise" in result.stderr
    assert "group.share.max.size" in result.stderr


def _cells(line: str) -> list[str]:
    return line.strip().strip("│").split("│") if "│" in line else []
