"""Members that die, stand still, fail or hang: others get their records once the locks have ended, and not before."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import Cause
from tests.crash.deployment import Deployment
from tests.crash.workload import Workload, workload

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Locks of 2 s ended, on a machine with ten programs to a core, before members had the answers: ten times, for some
# records, which were archived though nobody had seen them.
_LOCK = {"share_record_lock_duration_ms": "5000", "share_session_timeout_ms": "10000"}


def test_a_member_is_killed(deployment: Deployment) -> None:
    with workload(deployment, **_LOCK) as load:
        load.members.pop("holder").kill()
        await_lock_timeout(load)
        load.check()


def test_a_member_stands_still_beyond_its_locks(deployment: Deployment) -> None:
    with workload(deployment, **_LOCK) as load:
        load.members["holder"].pause()
        await_lock_timeout(load)
        load.members["holder"].resume()
        load.await_deliveries("holder")
        load.check()


def test_a_handler_raises_and_another_one_hangs(deployment: Deployment) -> None:
    with workload(deployment, workers=("worker-1",), **_LOCK) as load:
        load.join("spark-worker", "spark")
        load.await_error("spark-worker", "the handler raises")
        load.await_error("spark-worker", "the handler hangs")
        await_lock_timeout(load)
        load.await_deliveries("spark-worker")
        load.check()


def await_lock_timeout(load: Workload) -> None:
    """Wait until locks of this group have ended that nobody gave back."""
    before = load.record_count(Cause.LOCK_TIMEOUT)
    load.deployment.until(lambda: load.record_count(Cause.LOCK_TIMEOUT) > before, "locks ended", 0.3)
