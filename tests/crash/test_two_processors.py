"""Two processors on one state table: the older one stops, and nothing of it comes after the younger one's fence."""

from __future__ import annotations

import pytest

from sharegroup.processor.commit import CommitPoint
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.rows import RecordType, StateRow
from tests.crash.deployment import Deployment
from tests.crash.pausing import let_pass, pause
from tests.crash.processor_process import ProcessorProcess
from tests.crash.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.long("processors are paused beyond every timeout")]

_BEYOND_EVERY_TIMEOUT_S = 7.0


def test_the_older_of_two_processors_stops(deployment: Deployment, load: Workload) -> None:
    older, epoch = deployment.processor, leader_epoch(deployment)
    with deployment.recovering("a second processor takes over"):
        deployment.spawn()
        assert_fenced(deployment, older, epoch)
    load.check()


def test_a_processor_that_was_paused_beyond_every_timeout_goes_on(deployment: Deployment, load: Workload) -> None:
    pause(deployment.site, deployment.processor)
    let_pass(_BEYOND_EVERY_TIMEOUT_S)
    deployment.processor.resume()
    deployment.await_commits(2)
    load.check()


def test_a_processor_that_was_paused_beyond_every_timeout_stops_for_its_successor(
    deployment: Deployment, load: Workload
) -> None:
    older, epoch = deployment.processor, leader_epoch(deployment)
    with deployment.recovering("SIGSTOP, and a second processor takes over"):
        pause(deployment.site, deployment.processor)
        deployment.spawn()
    let_pass(_BEYOND_EVERY_TIMEOUT_S)
    deployment.await_commits(2)
    before = rows_of(deployment, epoch)
    responses = responses_of(deployment, load, epoch)
    older.resume()
    assert_fenced(deployment, older, epoch)
    assert rows_of(deployment, epoch) == before
    # At most the commit that was being published when the process was stopped.
    assert len(responses_of(deployment, load, epoch)) - len(responses) <= len(load.members)
    load.check()


def test_a_processor_that_has_nothing_to_commit_does_not_respond_from_old_state(
    deployment: Deployment, load: Workload
) -> None:
    load.drain()
    older, epoch = deployment.processor, leader_epoch(deployment)
    pause(deployment.site, deployment.processor)
    deployment.spawn()
    deployment.until(
        lambda: CommitPoint.PUBLISHED in deployment.processor.points_passed(), "the successor has responded"
    )
    responses = responses_of(deployment, load, epoch)
    # Heartbeats only: nothing durable comes of them, so no commit could stop the older one.
    enough = 3 * len(load.members)
    load.deployment.until(lambda: heartbeats_of(deployment, load) > enough, "members go on")
    older.resume()
    assert older.await_end() == 1
    assert "FencedProcessorError" in older.output
    # At most what was applied, and not published, when the process was stopped.
    assert len(responses_of(deployment, load, epoch)) - len(responses) <= len(load.members)
    load.check()


def assert_fenced(deployment: Deployment, older: ProcessorProcess, epoch: int) -> None:
    """The older processor ends with a clear error, and commits nothing after the younger one's fence."""
    deployment.until(lambda: leader_epoch(deployment) > epoch, "there is a fence", 0.1)
    committed = rows_of(deployment, epoch)
    assert older.await_end() == 1
    assert "FencedProcessorError" in older.output
    assert f"leader epoch {epoch + 1}" in older.output
    assert rows_of(deployment, epoch) == committed


def leader_epoch(deployment: Deployment) -> int:
    return max(row.leader_epoch for row in deployment.site.rows(None, RecordType.FENCE))


def rows_of(deployment: Deployment, epoch: int) -> list[StateRow]:
    """Return all rows that a processor has written."""
    return [row for row in deployment.site.rows() if row.leader_epoch == epoch]


def responses_of(deployment: Deployment, load: Workload, epoch: int) -> list[tuple[str, int]]:
    """Return (member id, correlation id) of a processor's responses to the group."""
    responses = deployment.site.responses(load.group_id)
    return [(response.member_id, response.correlation_id) for response in responses if response.leader_epoch == epoch]


def heartbeats_of(deployment: Deployment, load: Workload) -> int:
    """Return how many heartbeats the newest processor has responded to."""
    epoch = leader_epoch(deployment)
    responses = deployment.site.responses(load.group_id)
    return sum(
        response.api_key == ApiKey.SHARE_GROUP_HEARTBEAT and response.leader_epoch == epoch for response in responses
    )
