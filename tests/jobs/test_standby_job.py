"""The processor's job with --standby: fenced, it stands by in its session, and works again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sharegroup.config.loader import Settings
from sharegroup.exit_code import ExitCode
from tests.jobs.deployment import SETTINGS, deployed
from tests.support.eventually import eventually
from tests.support.processor_thread import ProcessorThread
from tests.support.working_folder import in_folder

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("programs with JVMs of their own")]


def settings_in(folder: Path) -> Settings:
    """Return the settings of the jobs, for a processor that runs elsewhere."""
    config = SETTINGS.processor
    paths = {
        "log_path": in_folder(folder, config.log_path),
        "state_table_path": str(in_folder(folder, config.state_table_path)),
    }
    return Settings(config.model_copy(update=paths), SETTINGS.broker, {}, {}, {})


def test_a_job_that_is_fenced_stands_by_and_works_again(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        job = deployment.processor("--standby")
        job.await_event("started")
        other = ProcessorThread(settings_in(tmp_path))
        other.start()
        job.await_event("standby_again")
        job.await_event("standing_by")
        other.stop()
        eventually(lambda: len(job.events("started")) == 2, "the job works again")
        job.signal(signal.SIGTERM)
        assert job.exit_code() == ExitCode.OK
        deployment.check_logs()
        deployment.check_audit()
