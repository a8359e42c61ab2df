"""Spark workers with sinks are killed and stand still: each result is in their tables once, and accepted only if so."""

from __future__ import annotations

import random

import pytest

from tests.crash.absence import away
from tests.crash.deployment import Deployment
from tests.crash.pausing import let_pass
from tests.crash.sink_members import APPEND, MERGE, WORKER
from tests.crash.sink_run import LOCK_S, SinkRun

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("Spark applications that are killed")]

_FAULTS = ("kill", "pause", "kill of the program", "pause", "kill of the program", "kill")
_RECORDS = 60


def test_workers_are_killed_and_stand_still(deployment: Deployment, spark_fault_count: int, crash_seed: int) -> None:
    run = SinkRun(deployment, random.Random(crash_seed))
    try:
        members = [run.add(WORKER, mode) for mode in (APPEND, MERGE)]
        for number in range(spark_fault_count):
            member = members[number % 2]
            run.await_work(member, _RECORDS)
            run.produce(_RECORDS)
            run.lose(member, _FAULTS[number % len(_FAULTS)])
            if number % 4 == 2:
                run.lose_processor()
        run.finish()
    finally:
        run.close()


def test_sinks_that_are_away_use_up_no_delivery(deployment: Deployment, sink_outage_s: float, crash_seed: int) -> None:
    run = SinkRun(deployment, random.Random(crash_seed), share_delivery_count_limit="3")
    try:
        member = run.add(WORKER, APPEND)
        for outage_s in (LOCK_S / 2, LOCK_S / 2, LOCK_S / 2, sink_outage_s):
            run.await_work(member, _RECORDS)
            run.produce(_RECORDS)
            with away(run.tables[0]):
                let_pass(outage_s)
        run.finish()
    finally:
        run.close()
