"""SIGKILL of the processor at random moments, under load."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.crash.deployment import Deployment
from tests.crash.pausing import let_pass
from tests.crash.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.long("many kills; one of each kind stays")]

_LONGEST_PAUSE_S = 0.2
_LONGEST_START_S = 2.0


def test_nothing_is_lost_however_often_the_processor_is_killed(
    deployment: Deployment, load: Workload, crash_count: int, crash_seed: int
) -> None:
    chance = random.Random(crash_seed)
    for number in range(1, crash_count + 1):
        deployment.await_commits(chance.randint(1, 10))
        let_pass(chance.uniform(0, _LONGEST_PAUSE_S))
        if number % 5:
            deployment.crash("SIGKILL under load")
        else:
            killed_early = partial(start_and_kill, deployment, chance.uniform(0, _LONGEST_START_S))
            deployment.crash("SIGKILL, and again while starting", killed_early)
    load.check()


def start_and_kill(deployment: Deployment, life_s: float) -> None:
    """Start a processor, and kill it while it takes over, or applies its first messages."""
    deployment.spawn()
    let_pass(life_s)
    deployment.processor.kill()
