"""Processor and worker under spark-submit: any order, any end, and exit codes that say which."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.exit_code import ExitCode
from sharegroup.logs.local import LocalLog
from tests.jobs.deployment import GROUP, SETTINGS, Deployment, deployed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLED = -signal.SIGKILL


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployed(tmp_path) as deployment:
        yield deployment
        deployment.check_logs()


def test_started_killed_and_restarted_in_any_order(deployment: Deployment) -> None:
    first_worker = deployment.worker("--client-id", "first")
    first_worker.await_event("waiting_for_processor")
    first_processor = deployment.processor()
    deployment.produce(50)
    deployment.await_drained()

    first_processor.signal(signal.SIGKILL)
    assert first_processor.exit_code() == KILLED
    deployment.produce(50)
    processor = deployment.processor()
    deployment.await_drained()

    first_worker.signal(signal.SIGKILL)
    assert first_worker.exit_code() == KILLED
    deployment.produce(50)
    worker = deployment.worker("--client-id", "second")
    deployment.await_drained()

    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == ExitCode.OK
    processor.await_event("member_removed")
    processor.signal_group(signal.SIGTERM)
    assert processor.exit_code() == ExitCode.OK
    assert [line.partition(" event=")[2] for job in (worker, processor) for line in job.events("ended")] == [
        "ended exit_code=0 signal=SIGTERM"
    ] * 2
    assert deployment.accepted_count() == 300
    deployment.check_audit()


def test_an_older_processor_is_fenced_and_says_so(deployment: Deployment) -> None:
    older = deployment.processor()
    older.await_event("started")
    newer = deployment.processor()
    newer.await_event("started")
    with LocalLog(deployment.folder / SETTINGS.processor.log_path) as log:
        AdminClient(log).alter_group_config(GROUP, {"share.auto.offset.reset": "latest"}, timeout=300)
    assert older.exit_code() == ExitCode.FENCED
    newer.signal(signal.SIGTERM)
    assert newer.exit_code() == ExitCode.OK


def test_a_scheduled_pair_drains_and_ends_and_a_second_run_finds_nothing(deployment: Deployment) -> None:
    alone = deployment.processor("--once", "--wait", "1")
    assert alone.exit_code() == ExitCode.OK
    deployment.produce(100)
    for run in range(2):
        worker = deployment.worker("--once", "--wait", "300")
        worker.await_event("started")
        processor = deployment.processor("--once", "--wait", "5")
        assert worker.exit_code() == ExitCode.OK
        assert processor.exit_code() == ExitCode.OK
        assert deployment.is_drained()
        assert bool(worker.events("records_acknowledged")) == (run == 0)
    assert deployment.accepted_count() == 200
    deployment.check_audit()


def test_a_scheduled_worker_that_no_processor_answers_ends(deployment: Deployment) -> None:
    worker = deployment.worker("--once", "--wait", "2")
    assert worker.exit_code() == ExitCode.TRY_AGAIN
    assert "No processor answered within 2 s." in worker.output
