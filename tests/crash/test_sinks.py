"""Consumers with a sink are killed and stand still: each result is in the table once, and accepted only if it is there.

Beside them strangers change the table, its log is cleaned up, and it is away for a while.
"""

from __future__ import annotations

import random

import pytest

from tests.crash.absence import away
from tests.crash.deployment import Deployment
from tests.crash.pausing import let_pass
from tests.crash.sink_members import CONSUMER, EXPLICIT, IMPLICIT
from tests.crash.sink_run import LOCK_S, SinkRun
from tests.crash.strangers import clean_log

pytestmark = [pytest.mark.slow, pytest.mark.long("many kills of processes")]

_CONSUMERS = 3
_RECORDS = 60


def started(deployment: Deployment, seed: int, modes: tuple[str, ...], **config: str) -> SinkRun:
    """A group of consumers with one table."""
    run = SinkRun(deployment, random.Random(seed), **config)
    table = run.new_table()
    for number in range(_CONSUMERS):
        run.add(CONSUMER, modes[number % len(modes)], table)
    return run


def test_consumers_are_killed_and_stand_still(deployment: Deployment, crash_count: int, crash_seed: int) -> None:
    run = started(deployment, crash_seed, (EXPLICIT, IMPLICIT))
    try:
        for number in range(2 * crash_count):
            member = run.choices.choice(run.members)
            run.await_work(member, _RECORDS)
            run.produce(_RECORDS)
            run.disturb(number)
            if number % 5 == 4:
                run.lose_processor()
            else:
                run.lose(member, "kill" if run.choices.random() < 0.6 else "pause")
        run.finish()
    finally:
        run.close()


def test_the_log_of_a_sink_is_cleaned_up_while_a_consumer_stands_still(deployment: Deployment, crash_seed: int) -> None:
    run = started(deployment, crash_seed, (EXPLICIT, IMPLICIT))
    try:
        for member in run.members:
            version = member.table_version
            # Each of them has read the log since: no write is looked for in what is cleaned up.
            run.await_work_of_all(_RECORDS)
            run.produce(_RECORDS)
            with run.standing_still(member):
                run.await_end_of_writes()
                clean_log(run.tables[0], version)
        run.finish()
    finally:
        run.close()


def test_a_sink_that_is_away_uses_up_no_delivery(deployment: Deployment, sink_outage_s: float, crash_seed: int) -> None:
    run = started(deployment, crash_seed, (IMPLICIT,), share_delivery_count_limit="3")
    try:
        for outage_s in (2 * LOCK_S, LOCK_S / 2, LOCK_S / 2, LOCK_S / 2, sink_outage_s):
            run.await_work(run.members[0], _RECORDS)
            run.produce(_RECORDS)
            with away(run.tables[0]):
                let_pass(outage_s)
        run.finish()
    finally:
        run.close()
