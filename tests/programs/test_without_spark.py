"""The programs where PySpark is not installed: they say how to install it, and what runs without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.exit_code import ExitCode

WITHOUT_PYSPARK = """
import sys

sys.modules["pyspark"] = None
from sharegroup.programs.main import main

main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["processor"], ["worker", "handler:handle"]])
def test_the_extra_is_named(tmp_path: Path, arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr.startswith("error: PySpark is not installed. Install it: pip install 'sharegroup[spark]'.")
    assert "run without Spark" in ended.stderr
