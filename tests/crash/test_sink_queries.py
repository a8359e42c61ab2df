"""Queries with `write_once` are killed and stand still, and lose their checkpoint: each result is in the table once."""

from __future__ import annotations

import random

import pytest

from tests.crash.deployment import Deployment
from tests.crash.sink_members import APPEND, QUERY
from tests.crash.sink_run import SinkRun

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("Spark applications that are killed")]

_FAULTS = ("kill", "kill and lost checkpoint", "kill of the program", "pause")
_RECORDS = 60


def test_queries_are_killed_and_stand_still(deployment: Deployment, spark_fault_count: int, crash_seed: int) -> None:
    run = SinkRun(deployment, random.Random(crash_seed))
    try:
        member = run.add(QUERY, APPEND)
        for number in range(spark_fault_count):
            run.await_work(member, _RECORDS)
            run.produce(_RECORDS)
            run.lose(member, _FAULTS[number % len(_FAULTS)])
            if number % 4 == 2:
                run.lose_processor()
        run.finish()
    finally:
        run.close()
