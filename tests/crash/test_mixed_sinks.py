"""A Spark worker, a query and consumers in one group, each kind with tables of its own, on each kind of log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.config.kafka import KafkaConfig
from tests.crash.deployment import Deployment
from tests.crash.sink_members import APPEND, CONSUMER, EXPLICIT, IMPLICIT, WORKER
from tests.crash.sink_run import SinkRun
from tests.kafka.site import KafkaSite
from tests.support.kafka_broker import KafkaBroker
from tests.support.recoveries import Recoveries

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("Spark applications that are killed")]

_FAULTS = ("kill", "pause")
_RECORDS = 60


@pytest.fixture
def on_kafka(kafka_4_3_1: KafkaBroker, tmp_path: Path, recoveries: Recoveries) -> Iterator[Deployment]:
    """A running processor whose log is on a broker."""
    site = KafkaSite(tmp_path, kafka=KafkaConfig(bootstrap_servers=kafka_4_3_1.bootstrap_servers))
    deployment = Deployment(tmp_path, recoveries, site)
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.close()


def test_on_the_embedded_log(deployment: Deployment, spark_fault_count: int, crash_seed: int) -> None:
    play(deployment, spark_fault_count, crash_seed)


@pytest.mark.kafka
def test_on_kafka(on_kafka: Deployment, spark_fault_count: int, crash_seed: int) -> None:
    play(on_kafka, spark_fault_count, crash_seed)


def play(deployment: Deployment, fault_count: int, seed: int) -> None:
    """Let faults happen to a worker and consumers in turn, and to the processor."""
    run = SinkRun(deployment, random.Random(seed))
    try:
        consumer = run.add(CONSUMER, EXPLICIT)
        members = [run.add(WORKER, APPEND), consumer, run.add(CONSUMER, IMPLICIT, consumer.specification.sink)]
        for number in range(fault_count):
            member = members[number % len(members)]
            run.await_work(member, _RECORDS)
            run.produce(_RECORDS)
            run.disturb(number)
            run.lose(member, _FAULTS[number % len(_FAULTS)])
            if number % 4 == 2:
                run.lose_processor()
        run.finish()
    finally:
        run.close()
