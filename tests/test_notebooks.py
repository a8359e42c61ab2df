"""The notebooks are in the source format of Databricks, and run from top to bottom on a plain session."""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support import leash
from tests.support.eventually import DEADLINE_S

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
CELL = "\n# COMMAND ----------\n"
MARKDOWN = "# MAGIC %md\n"

OUTPUTS = {
    "quickstart": """\
ACCEPT 27
REJECT 3
orders 0 start offset 10 lag 0
orders 1 start offset 10 lag 0
orders 2 start offset 10 lag 0
""",
    "worker": "sales 2700\n",
    "exactly_once": """\
the consumer holds 10
in doubt 10
by_python not-written
rows 0
the query failed, in doubt 10
rows 10
rows 30
open writes 0
records 30
accepted 30 rows 30 findings 0
""",
    "audit": """\
orders 0 start offset 20
delivery 1 to anna release AVAILABLE
delivery 2 to anna release AVAILABLE
delivery 3 to anna release ARCHIVED
order 3 ACQUIRED 3 to ARCHIVED
deliveries per record {'1': 19, '3': 1}
archived at the limit: offsets 3 to 3
accept 18
acquire 22
reject 1
release 3
findings 0
findings of the replay 0
deliveries 22 with the limit of 3, 21 with 2
undecided 1 of 22
report 4 MB
""",
    "migrate_from_kafka": """\
20 rows, 0 unread
findings 0
rec-a 0 start offset 0 runs {'AVAILABLE': 11, 'ACKNOWLEDGED': 10}
rec-a 1 start offset 0 runs {'AVAILABLE': 7, 'ACKNOWLEDGED': 7}
rec-a 0 accepted 90
rec-a 1 accepted 60
rec-a 0 changed ranges 21
rec-a 1 changed ranges 14
not imported []
deliveries by their number {1: 432, 2: 4, 3: 4, 4: 5, 5: 2, 6: 3}
""",
}
"""Notebook → what its cells print."""

PROGRAM = "quickstart"
"""The notebook that also runs as a program; the others run in the session of the tests, as in a workspace's."""
IN_A_SESSION = [
    # Spark Connect has no sinks.
    pytest.param(name, marks=[pytest.mark.classic] if name == "exactly_once" else [])
    for name in sorted(OUTPUTS.keys() - {PROGRAM})
]


@pytest.mark.core
@pytest.mark.long("a program with a JVM of its own")
@pytest.mark.spark
@pytest.mark.slow
def test_a_notebook_runs_as_a_program(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SHAREGROUP_")}
    result = leash.run(
        [sys.executable, str(NOTEBOOKS / f"{PROGRAM}.py")],
        timeout_s=DEADLINE_S,
        cwd=tmp_path,
        env={**environment, "TMPDIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == OUTPUTS[PROGRAM]


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_A_SESSION)
def test_a_notebook_runs_from_top_to_bottom_in_a_session(
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runpy.run_path(str(NOTEBOOKS / f"{name}.py"))
    assert capsys.readouterr().out == OUTPUTS[name]
    assert spark.streams.active == []


def test_every_notebook_has_an_output() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.py")} == {*OUTPUTS}


@pytest.mark.parametrize("name", OUTPUTS)
def test_databricks_reads_the_file_as_a_notebook(name: str) -> None:
    text = (NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
    header, _, body = text.partition("\n")
    assert header == "# Databricks notebook source"
    for cell in body.split(CELL):
        is_markdown = cell.strip().startswith(MARKDOWN)
        magic_lines = [line.startswith("# MAGIC") for line in cell.strip().splitlines()]
        assert magic_lines, "an empty cell"
        assert all(magic_lines) if is_markdown else not any(magic_lines)
