"""The processor's job with --no-spark: on a machine without Java."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sharegroup.exit_code import ExitCode
from sharegroup.logs.local import LocalLog
from tests.conftest import ROOT
from tests.jobs.deployment import CONFIG, SETTINGS
from tests.support import leash
from tests.support.eventually import DEADLINE_S

pytestmark = pytest.mark.slow


def test_it_serves_without_java_until_nothing_is_left(tmp_path: Path) -> None:
    without_java = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    ended = leash.run(
        [
            sys.executable,
            str(ROOT / "jobs" / "share_group_processor.py"),
            *("--config", str(CONFIG), "--no-spark", "--once", "--wait", "0.5"),
        ],
        timeout_s=DEADLINE_S,
        cwd=tmp_path,
        env={**without_java, "PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == ExitCode.OK, ended.stderr
    assert " event=started" in ended.stderr
    assert SETTINGS.processor.log_path is not None
    with LocalLog(tmp_path / SETTINGS.processor.log_path.relative_to(Path.cwd())) as log:
        assert SETTINGS.processor.request_topic_name in {topic.name for topic in log.topics()}
