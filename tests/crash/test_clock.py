"""The wall clock jumps by an hour, forward and back: nothing is lost, and nothing stalls.

The log's stamps jump forward with the machine's clock and never go back; the processor's time follows the stamps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sharegroup.protocol.rows import RecordType
from tests.crash import clock
from tests.crash.deployment import Deployment
from tests.crash.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.long("locks and sessions end by clocks that jump")]

_HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _clock_is_set_right(deployment: Deployment) -> Iterator[None]:
    yield
    clock.shift(deployment.folder, 0)


def test_the_clock_jumps_forward_and_back(deployment: Deployment, load: Workload) -> None:
    started_ms = last_commit_ms(deployment)
    jump(load, _HOUR_MS)
    assert last_commit_ms(deployment) - started_ms >= _HOUR_MS
    jump(load, 0)
    assert last_commit_ms(deployment) - started_ms >= _HOUR_MS
    kill_holder(load)
    deployment.crash("SIGKILL while the clock is behind the log's time")
    jump(load, -_HOUR_MS)
    kill_holder(load)
    load.check()
    assert_time_never_falls(load)


def test_the_clock_of_the_processor_alone_is_an_hour_behind(deployment: Deployment, load: Workload) -> None:
    deployment.processor.kill()
    with deployment.recovering("SIGKILL, and a successor whose clock is an hour behind"):
        deployment.spawn(clock_shift_ms=-_HOUR_MS)
    kill_holder(load)
    load.check()
    assert_time_never_falls(load)


def jump(load: Workload, shift_ms: int) -> None:
    """Let the clock jump, and see all members go on."""
    clock.shift(load.deployment.folder, shift_ms)
    for client_id in ("worker-1", "worker-2"):
        load.await_deliveries(client_id, more=50)


def kill_holder(load: Workload) -> None:
    """Kill a member that holds records: they must come back in due time, not in an hour; another takes its place."""
    load.await_deliveries("holder")
    with load.awaiting_lock_end():
        load.members.pop("holder").kill()
    load.replace("holder", "holder")


def last_commit_ms(deployment: Deployment) -> int:
    """Return the time of the last commit's cuts."""
    return deployment.site.rows(None, RecordType.COMMIT_MARKER)[-1].time_ms


def assert_time_never_falls(load: Workload) -> None:
    stamps = [record.timestamp_ms for record in load.evidence().requests]
    assert stamps == sorted(stamps)
    times_ms = [row.time_ms for row in load.deployment.site.rows(load.group_id)]
    assert times_ms == sorted(times_ms)
