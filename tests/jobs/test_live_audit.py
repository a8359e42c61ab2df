"""The live auditor's program: with --once it checks all commits, and ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sharegroup.audit.live.result_tables import FINDINGS
from tests.audit.conftest import worked_on
from tests.conftest import ROOT
from tests.support.site import BROKER
from tests.support.stored_commit import store

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.long("programs with JVMs of their own")]


def command(folder: Path) -> list[str]:
    """The program on the log and the table of a folder."""
    paths = {"log.path": "log.db", "state.table.path": "state", "checkpoint.path": "checkpoint"}
    settings = [word for key, name in paths.items() for word in ("--set", f"{key}={folder / name}")]
    program = [sys.executable, str(ROOT / "jobs" / "live_audit.py"), "--config", str(ROOT / "conf" / "local.yaml")]
    return [*program, *settings, "--output", str(folder / "audit")]


ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}


def test_a_signal_ends_it_while_it_waits_for_the_state_table(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*command(tmp_path), "--wait", "600"], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any("event=waiting_for_state_table" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate()
    assert process.returncode == 0, rest
    assert "exit_code=0 signal=SIGTERM" in rest


def test_it_ends_when_it_has_checked_all_commits(tmp_path: Path) -> None:
    rows = worked_on(BROKER)
    wrong = rows[-1].model_copy(update={"request_offset": rows[-1].request_offset + 100, "delivery_complete_count": 99})
    store(str(tmp_path / "state"), [*rows, wrong])
    ended = subprocess.run(
        [*command(tmp_path), "--once"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "event=live_audit_finding" in ended.stderr + ended.stdout
    findings = DeltaTable(str(tmp_path / "audit" / FINDINGS)).to_pyarrow_table()
    assert "row_agrees_with_its_replay" in findings["invariant"].to_pylist()
