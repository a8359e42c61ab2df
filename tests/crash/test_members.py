"""Members that die or stand still: others get their records once the locks have ended, and not before."""

from __future__ import annotations

import pytest

from tests.crash.pausing import pause
from tests.crash.workload import Workload

pytestmark = pytest.mark.slow


def test_a_member_is_killed(load: Workload) -> None:
    with load.awaiting_lock_end():
        # It keeps each acquisition for a second.
        load.await_deliveries("holder")
        load.members.pop("holder").kill()
    load.check()
    load.replace("holder", "holder")


def test_a_worker_is_killed(load: Workload) -> None:
    load.await_deliveries("worker-1")
    load.members.pop("worker-1").kill()
    load.replace("worker-1", "worker")
    load.check()


@pytest.mark.long("a pause beyond locks of 5 s")
def test_a_member_stands_still_beyond_its_locks(load: Workload) -> None:
    with load.awaiting_lock_end():
        load.await_deliveries("holder")
        pause(load.deployment.site, load.members["holder"])
    load.members["holder"].resume()
    load.await_deliveries("holder")
    load.check()
