"""SIGKILL between the steps of a commit, and between those of a takeover: nobody can tell."""

from __future__ import annotations

import pytest

from sharegroup.processor.commit import CommitPoint
from tests.crash.auditor import assert_only_appended
from tests.crash.deployment import Deployment
from tests.crash.processor_process import LOOP_POINTS, TAKEOVER_POINTS, arm
from tests.crash.workload import Workload

pytestmark = pytest.mark.slow

_NAMES = {
    CommitPoint.APPLIED: "SIGKILL between applying and the commit",
    CommitPoint.COMMITTED: "SIGKILL between the commit and the responses",
    CommitPoint.PUBLISHED: "SIGKILL after the responses",
}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=pytest.mark.long("many kills; one of each kind stays") if index else ())
        for index, point in enumerate(LOOP_POINTS)
    ],
)
def test_a_processor_is_killed_between_two_steps_of_the_loop(
    deployment: Deployment, load: Workload, point: str
) -> None:
    arm(deployment.folder, point)
    deployment.processor.await_end()
    before = deployment.site.rows()
    with deployment.recovering(_NAMES[point]):
        deployment.spawn()
    deployment.await_commits(2)
    assert_only_appended(before, deployment.site.rows())
    load.check()


@pytest.mark.long("many kills; one of each kind stays")
@pytest.mark.parametrize("point", TAKEOVER_POINTS)
def test_a_processor_is_killed_while_it_takes_over(deployment: Deployment, load: Workload, point: str) -> None:
    # An outbox that is not published is the work of the takeover.
    arm(deployment.folder, CommitPoint.COMMITTED)
    deployment.processor.await_end()
    before = deployment.site.rows()
    arm(deployment.folder, point)
    deployment.spawn()
    deployment.processor.await_end()
    with deployment.recovering("SIGKILL while taking over"):
        deployment.spawn()
    deployment.await_commits(2)
    assert_only_appended(before, deployment.site.rows())
    load.check()
