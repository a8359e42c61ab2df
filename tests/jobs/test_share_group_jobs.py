"""Processor and worker under spark-submit: any order, any end, and exit codes that say which."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.exit_code import ExitCode
from tests.jobs.deployment import Deployment, deployed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("programs with JVMs of their own")]

KILLED = -signal.SIGKILL


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployed(tmp_path) as deployment:
        yield deployment
        deployment.check_logs()


def test_started_fenced_killed_and_scheduled_in_any_order(deployment: Deployment) -> None:
    first_worker = deployment.worker("--client-id", "first")
    first_worker.await_event("waiting_for_processor")
    older = deployment.processor()
    deployment.produce(50)
    deployment.await_drained()

    newer = deployment.processor()
    assert older.exit_code() == ExitCode.FENCED
    deployment.produce(50)
    deployment.await_drained()

    first_worker.signal(signal.SIGTERM)
    assert first_worker.exit_code() == ExitCode.OK
    newer.signal(signal.SIGKILL)
    assert newer.exit_code() == KILLED

    # A scheduled pair takes over, and ends when all is drained.
    deployment.produce(50)
    worker = deployment.worker("--once", "--wait", "300")
    worker.await_event("started")
    processor = deployment.processor("--once", "--wait", "5")
    assert worker.exit_code() == ExitCode.OK
    assert processor.exit_code() == ExitCode.OK
    assert deployment.is_drained()
    assert worker.events("records_acknowledged")
    assert deployment.accepted_count() == 300

    # With nothing left to do, a scheduled processor ends alone.
    assert deployment.processor("--once", "--wait", "1").exit_code() == ExitCode.OK
    deployment.check_audit()


def test_ctrl_c_in_a_terminal_drains(deployment: Deployment) -> None:
    processor, worker = deployment.processor(), deployment.worker()
    deployment.produce(10)
    deployment.await_drained()
    for job in (worker, processor):
        job.signal_group(signal.SIGINT)
        assert job.exit_code() == ExitCode.OK
        assert "signal=SIGINT" in job.events("ended")[0]


def test_a_worker_whose_handler_cannot_be_imported_ends_before_it_joins(deployment: Deployment) -> None:
    deployment.processor().await_event("started")
    deployment.produce(10)
    worker = deployment.worker(handler="broken:accept_all")
    assert worker.exit_code() == ExitCode.USAGE
    (line,) = worker.events("failed")
    assert "ConfigurationError" in line
    assert "import of broken: ZeroDivisionError" in line
    assert worker.events("started") == []
    assert deployment.accepted_count() == 0
