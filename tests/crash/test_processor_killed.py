"""SIGKILL of the processor's driver at random moments, under load."""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest

from tests.crash.deployment import Deployment
from tests.crash.workload import workload

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_LONGEST_BATCH_S = 0.5
_LONGEST_START_S = 8.0


def test_nothing_is_lost_however_often_the_processor_is_killed(
    deployment: Deployment, crash_count: int, crash_seed: int
) -> None:
    chance = random.Random(crash_seed)
    with workload(deployment, share_record_lock_duration_ms="15000") as load:
        for number in range(1, crash_count + 1):
            deployment.await_batches(chance.randint(1, 8))
            pause(chance.uniform(0, _LONGEST_BATCH_S))
            if number % 5:
                deployment.crash("SIGKILL under load")
            else:
                in_vain = partial(start_in_vain, deployment, chance.uniform(0, _LONGEST_START_S))
                deployment.crash("SIGKILL, and again while starting", in_vain)
        load.check()


def start_in_vain(deployment: Deployment, life_s: float) -> None:
    """A processor that is killed while it takes over, recovers, or executes the last batch again."""
    deployment.spawn()
    pause(life_s)
    deployment.processor.kill()


def pause(seconds: float) -> None:
    """Let a random time pass."""
    threading.Event().wait(seconds)
