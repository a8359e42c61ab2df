"""SIGKILL between the steps of a batch: it is executed again, and nobody can tell."""

from __future__ import annotations

from collections import defaultdict

import pytest
from sharegroup.spark.committer import CommitPoint

from sharegroup.protocol.messages import ResponseEnvelope
from tests.crash.auditor import assert_unchanged
from tests.crash.deployment import Deployment
from tests.crash.processor_process import arm
from tests.crash.workload import workload

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_NAMES = {
    CommitPoint.ROWS_COMMITTED: "SIGKILL between Delta's commit and the answers",
    CommitPoint.EVERYONE_TOLD: "SIGKILL between the answers and Spark's commit log",
}


@pytest.mark.parametrize("point", CommitPoint)
def test_a_batch_that_was_cut_short_is_executed_again_and_changes_nothing(
    deployment: Deployment, point: CommitPoint
) -> None:
    site = deployment.site
    with workload(deployment, share_record_lock_duration_ms="15000") as load:
        arm(deployment.folder, point)
        deployment.processor.await_end()
        before = site.rows()
        with deployment.recovering(_NAMES[point]):
            deployment.spawn()
        deployment.await_batches(2)
        assert_unchanged(before, site.rows())
        load.check()
    for answers in answers_by_request(site.responses(load.group_id)).values():
        assert all(answer == answers[0] for answer in answers)


def answers_by_request(responses: list[ResponseEnvelope]) -> dict[tuple[str, int], list[ResponseEnvelope]]:
    """All answers to each request; nobody asks for a pushed assignment."""
    found: dict[tuple[str, int], list[ResponseEnvelope]] = defaultdict(list)
    for answer in responses:
        if answer.correlation_id > 0:
            found[answer.member_id, answer.correlation_id].append(answer)
    return found
