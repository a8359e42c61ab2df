"""Processor and worker under spark-submit, with the configuration file for Kafka, on a real broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.exit_code import ExitCode
from sharegroup.logs.port import Log
from tests.conftest import ROOT
from tests.jobs.deployment import Deployment
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("programs with JVMs of their own")]


class KafkaDeployment(Deployment):
    """Jobs whose logs are on a broker, in topics of their own."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        stem = uuid4().hex[:8]
        settings = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "request.topic.name": f"requests-{stem}",
            "response.topic.name": f"responses-{stem}",
        }
        flags = tuple(flag for key, value in settings.items() for flag in ("--set", f"{key}={value}"))
        super().__init__(folder, ROOT / "conf" / "kafka.yaml", flags, f"orders-{stem}")
        self._broker = broker

    def open_log(self) -> Log:
        return self._broker.open_log()


@pytest.fixture
def deployment(tmp_path: Path, broker: KafkaBroker) -> Iterator[KafkaDeployment]:
    deployment = KafkaDeployment(tmp_path, broker)
    yield deployment
    deployment.close()


def test_they_drain_a_topic_and_end_at_sigterm(deployment: KafkaDeployment) -> None:
    deployment.produce(100)
    processor, worker = deployment.processor(), deployment.worker()
    deployment.await_drained()
    deployment.produce(10)
    deployment.await_drained()
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == ExitCode.OK
    processor.await_event("member_removed")
    processor.signal_group(signal.SIGTERM)
    assert processor.exit_code() == ExitCode.OK
    assert [line.partition(" event=")[2] for job in (worker, processor) for line in job.events("ended")] == [
        "ended exit_code=0 signal=SIGTERM"
    ] * 2
    assert deployment.accepted_count() == 220
    deployment.check_audit()
    deployment.check_logs()
