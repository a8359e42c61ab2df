"""The audits of large histories under spark-submit: the same document as without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroup.exit_code import ExitCode
from sharegroup.programs.main import program
from tests.actor.group_harness import GROUP_ID, group_with
from tests.audit.conftest import work
from tests.audit.recorded_table import recorded_table
from tests.conftest import ROOT
from tests.jobs.deployment import CONFIG, Job

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("programs with JVMs of their own")]


def test_a_job_prints_the_document_of_the_command(tmp_path: Path) -> None:
    table = recorded_table(tmp_path / "state", group_with(60), work)
    question = ["verify", "--config", str(CONFIG), "--state-table", table.path, "--group", GROUP_ID, "--output", "json"]
    job = Job(tmp_path, str(ROOT / "jobs" / "replay_audit.py"), *question)
    try:
        assert job.exit_code() == ExitCode.OK, job.output
    finally:
        job.close()
    printed = job.output[job.output.index("\n{") : job.output.rindex("\n}") + 2]
    assert json.loads(printed) == json.loads(CliRunner().invoke(program, ["audit", *question]).stdout)
