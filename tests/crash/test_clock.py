"""The wall clock jumps by an hour, forward and back, in all processes at once: nothing is lost, and nothing stalls."""

from __future__ import annotations

import pytest

from sharegroup.protocol.rows import RecordType
from tests.crash import clock
from tests.crash.deployment import Deployment
from tests.crash.test_members import await_lock_timeout
from tests.crash.workload import Workload, workload

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_HOUR_MS = 3_600_000
_LOCK = {"share_record_lock_duration_ms": "3000", "share_session_timeout_ms": "6000"}


def test_the_clock_jumps_forward_and_back(deployment: Deployment) -> None:
    with workload(deployment, **_LOCK) as load:
        started_ms = last_batch_ms(deployment)
        jump(load, _HOUR_MS)
        assert last_batch_ms(deployment) - started_ms >= _HOUR_MS
        jump(load, 0)
        assert last_batch_ms(deployment) - started_ms < _HOUR_MS
        kill_holder(load, "holder")
        deployment.crash("SIGKILL while the clock is behind the log's time")
        jump(load, -_HOUR_MS)
        load.join("another-holder", "holder")
        kill_holder(load, "another-holder")
        load.check()
        assert_time_never_falls(load)
    clock.shift(deployment.folder, 0)


def jump(load: Workload, shift_ms: int) -> None:
    """Let the clock jump, and see all members go on."""
    clock.shift(load.deployment.folder, shift_ms)
    for client_id in ("worker-1", "worker-2"):
        load.await_deliveries(client_id, more=100)


def kill_holder(load: Workload, client_id: str) -> None:
    """Kill a member that holds records: they must come back in due time, not in an hour."""
    load.await_deliveries(client_id)
    load.members.pop(client_id).kill()
    await_lock_timeout(load)


def last_batch_ms(deployment: Deployment) -> int:
    """When the last batch ran, by the clock of its query."""
    return deployment.site.rows(None, RecordType.COMMIT_MARKER)[-1].time_ms


def assert_time_never_falls(load: Workload) -> None:
    stamps = [record.timestamp_ms for record in load.evidence().requests]
    assert stamps == sorted(stamps)
