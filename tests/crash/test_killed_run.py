"""A test run that is killed leaves no process behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import leash
from tests.support.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.long("a test run of its own")]

_RUN = """
import threading
from pathlib import Path
from tests.crash.deployment import Deployment
from tests.support.recoveries import Recoveries
from tests.crash.workload import workload

def test_that_does_not_end(tmp_path):
    deployment = Deployment(tmp_path, Recoveries())
    deployment.start()
    with workload(deployment, workers=("worker",)) as load:
        ids = [deployment.processor.pid, *(member.pid for member in load.members.values())]
        path = Path({path!r})
        path.with_suffix(".new").write_text(" ".join(map(str, ids)))
        path.with_suffix(".new").rename(path)
        threading.Event().wait()
"""


def test_processors_and_members_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "test_run.py").write_text(_RUN.format(path=str(tmp_path / "ids")))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_run.py"]
    with (tmp_path / "output").open("wb") as output:
        run = leash.start(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=output, stderr=output
        )

    def has_started() -> bool:
        assert run.poll() is None, (tmp_path / "output").read_text()
        return (tmp_path / "ids").exists()

    eventually(has_started, "the run has started its processes")
    sessions = {int(word) for word in (tmp_path / "ids").read_text().split()}
    assert len(sessions) == 4
    assert sessions <= leash.running_sessions()
    run.kill()
    run.wait()
    eventually(lambda: not sessions & leash.running_sessions(), "no process of the run is left")
