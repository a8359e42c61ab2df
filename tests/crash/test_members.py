"""Members that die or stand still: others get their records once the locks have ended, and not before."""

from __future__ import annotations

import pytest

from tests.crash.workload import Workload

pytestmark = pytest.mark.slow


def test_a_member_is_killed(load: Workload) -> None:
    load.members.pop("holder").kill()
    load.await_lock_timeout()
    load.check()
    load.replace("holder", "holder")


def test_a_member_stands_still_beyond_its_locks(load: Workload) -> None:
    load.members["holder"].pause()
    load.await_lock_timeout()
    load.members["holder"].resume()
    load.await_deliveries("holder")
    load.check()
