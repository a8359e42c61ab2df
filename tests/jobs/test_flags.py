"""Wrong flags and configuration: one clear line and exit code 2, before Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.exit_code import MEANINGS, ExitCode
from tests.conftest import ROOT

CONFIG = str(ROOT / "conf" / "local.yaml")
PROCESSOR = "share_group_processor.py"
WORKER = "share_worker.py"
MEMBER = ("--group", "orders", "--topic", "orders")

# Each is a process of its own that imports PySpark, even if it ends before Spark starts.
pytestmark = pytest.mark.spark


def run(folder: Path, program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """The program in a folder, where it finds no Java to start."""
    environment = {**os.environ, "JAVA_HOME": str(folder / "no-java")}
    command = [sys.executable, str(ROOT / "jobs" / program), *flags]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("program", "flags", "complaint"),
    [
        (PROCESSOR, [], "--config"),
        (PROCESSOR, ["--config", "missing.yaml"], "missing.yaml"),
        (PROCESSOR, ["--config", CONFIG, "--set", "shuffle.partition=1"], "Did you mean shuffle.partitions?"),
        (PROCESSOR, ["--config", CONFIG, "--set", "shuffle.partitions=0"], "at least 1"),
        (WORKER, ["--config", CONFIG, *MEMBER], "--handler"),
        (WORKER, ["--config", CONFIG, "--topic", "orders", "--handler", "handlers:work"], "group.id"),
        (WORKER, ["--config", CONFIG, "--group", "orders", "--handler", "handlers:work"], "topics"),
        (WORKER, ["--config", CONFIG, *MEMBER, "--handler", "handlers"], "package.module:function"),
        (WORKER, ["--config", CONFIG, *MEMBER, "--handler", "nowhere:work"], "No module named 'nowhere'"),
        (WORKER, ["--config", CONFIG, *MEMBER, "--handler", "broken:work"], "ZeroDivisionError"),
        (WORKER, ["--config", CONFIG, *MEMBER, "--handler", "handlers:wrok"], "handlers.py has no wrok"),
        (WORKER, ["--config", CONFIG, *MEMBER, "--handler", "handlers:NUMBER"], "not callable: NUMBER"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, program: str, flags: list[str], complaint: str) -> None:
    (tmp_path / "handlers.py").write_text("NUMBER = 5\ndef work(records): ...\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    result = run(tmp_path, program, *flags)
    assert result.returncode == ExitCode.USAGE
    assert complaint in result.stderr
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("program", [PROCESSOR, WORKER])
def test_help_tells_every_exit_code(tmp_path: Path, program: str) -> None:
    text = run(tmp_path, program, "--help").stdout
    assert [code for code, meaning in MEANINGS.items() if f"{code.value:<4} {meaning}" not in text] == []
