"""Two processors on one state table: the older one stops, and nothing of it comes after the younger one's fence."""

from __future__ import annotations

import threading

import pytest
from sharegroup.spark.committer import CommitPoint

from sharegroup.protocol.rows import RecordType, StateRow
from tests.crash.deployment import Deployment
from tests.crash.processor_process import ProcessorProcess
from tests.crash.workload import workload

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_BEYOND_EVERY_TIMEOUT_S = 6.0
_TIMEOUTS = {"share_record_lock_duration_ms": "3000", "share_session_timeout_ms": "4000"}


def test_the_older_of_two_processors_stops(deployment: Deployment) -> None:
    with workload(deployment, share_record_lock_duration_ms="15000") as load:
        older, epoch = deployment.processor, leader_epoch(deployment)
        with deployment.recovering("a second processor takes over"):
            deployment.spawn("another-checkpoint")
            assert_fenced(deployment, older, epoch)
        load.check()


def test_a_processor_that_was_paused_beyond_every_timeout_goes_on(deployment: Deployment) -> None:
    with workload(deployment, **_TIMEOUTS) as load:
        with deployment.recovering("SIGSTOP for 6 s"):
            deployment.processor.pause()
            pass_by(_BEYOND_EVERY_TIMEOUT_S)
            deployment.processor.resume()
        load.check()


def test_a_processor_that_was_paused_beyond_every_timeout_finds_its_successor(deployment: Deployment) -> None:
    with workload(deployment, **_TIMEOUTS) as load:
        older, epoch = deployment.processor, leader_epoch(deployment)
        with deployment.recovering("SIGSTOP, and a second processor takes over"):
            older.pause()
            deployment.spawn("a-third-checkpoint")
        pass_by(_BEYOND_EVERY_TIMEOUT_S)
        deployment.await_batches(2)
        before = rows_of(deployment, epoch)
        older.resume()
        assert_fenced(deployment, older, epoch)
        assert rows_of(deployment, epoch) == before
        load.check()


def assert_fenced(deployment: Deployment, older: ProcessorProcess, epoch: int) -> None:
    """The older processor ends with a clear error, has told all that it committed, and nothing else."""
    deployment.until(lambda: leader_epoch(deployment) > epoch, "there is a fence", 0.3)
    written = rows_of(deployment, epoch)
    assert older.await_end() == 1
    assert f"belongs to leader epoch {epoch + 1}; this processor has {epoch}" in older.output
    assert rows_of(deployment, epoch) == written
    passed = older.points_passed()
    assert passed.count(CommitPoint.EVERYONE_TOLD) == passed.count(CommitPoint.ROWS_COMMITTED)


def leader_epoch(deployment: Deployment) -> int:
    return max(row.leader_epoch for row in deployment.site.rows(None, RecordType.FENCE))


def rows_of(deployment: Deployment, epoch: int) -> list[StateRow]:
    """All rows that a processor has written."""
    return [row for row in deployment.site.rows() if row.leader_epoch == epoch]


def pass_by(seconds: float) -> None:
    """Let time pass: that is what is tested."""
    threading.Event().wait(seconds)
