"""The same scenarios on Kafka's share groups and on ours: `pytest tests/kafka/test_side_by_side.py --scenarios DIR`.

All scenarios of both sides are performed at once, since most of their time is waiting; each test then checks one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.admin import AdminClient
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.state.reader import StateTableReader
from tests.client.processor_peer import BROKER, REQUESTS, RESPONSES, ProcessorPeer
from tests.kafka.side_by_side.broker_side import BrokerSide
from tests.kafka.side_by_side.outcome import Outcome, disagreements
from tests.kafka.side_by_side.own_side import OwnSide
from tests.kafka.side_by_side.performance import Side, perform
from tests.kafka.side_by_side.scenario import Scenario
from tests.support.eventually import DEADLINE_S
from tests.support.kafka_broker import ROOT, KafkaBroker

AT_ONCE = 6
"""Scenarios that are performed at once on each side."""

SCRIPT = Path(__file__).parent / "side_by_side" / "consumer_script.py"
EARLIEST = {"share.auto.offset.reset": "earliest"}
CHANGES = {
    "from confluent_kafka import": "from sharegroup import",
    '"bootstrap.servers": address': '"log.path": address',
}
"""The changes for a user of confluent-kafka's ShareConsumer: the import, and one key."""


@pytest.fixture(scope="module")
def own_side(
    kafka_4_3_1: KafkaBroker, kafka_log_4_3_1: KafkaLog, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnSide]:
    """Ours; what the state table says is verified at the end."""
    log, path = kafka_log_4_3_1, str(tmp_path_factory.mktemp("side-by-side") / "state")
    table = StateTableReader(path)
    with ProcessorPeer(log, table_path=path):
        yield OwnSide(kafka_4_3_1.bootstrap_servers, log, table)
    for topic in (REQUESTS, RESPONSES):
        log.delete_topic(topic)
    assert verify(table.rows(), BROKER).findings == []


@pytest.fixture(scope="module")
def sides(kafka_4_3_1: KafkaBroker, kafka_log_4_3_1: KafkaLog, own_side: OwnSide) -> tuple[Side, Side]:
    """Kafka's share groups, and ours."""
    return BrokerSide(kafka_4_3_1.bootstrap_servers, kafka_log_4_3_1), own_side


Outcomes = Callable[[Scenario], tuple[Outcome, Outcome]]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, sides: tuple[Side, Side]) -> Iterator[Outcomes]:
    """The outcomes of a scenario in Kafka and here."""
    callspecs = [
        item.callspec
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    # Other modules have parameters of that name, too.
    names = [spec.params.get("scenario") for spec in callspecs]
    chosen = {scenario.name: scenario for scenario in names if isinstance(scenario, Scenario)}
    pools = [ThreadPoolExecutor(AT_ONCE) for _ in sides]
    futures: dict[str, list[Future[Outcome]]] = {
        name: [pool.submit(perform, scenario, side) for pool, side in zip(pools, sides, strict=True)]
        for name, scenario in chosen.items()
    }

    def of(scenario: Scenario) -> tuple[Outcome, Outcome]:
        kafka, here = (future.result() for future in futures[scenario.name])
        return kafka, here

    yield of
    for pool in pools:
        pool.shutdown(cancel_futures=True)


@pytest.mark.kafka
def test_scenario(scenario: Scenario, outcomes: Outcomes) -> None:
    kafka, here = outcomes(scenario)
    statements = disagreements(scenario, kafka, here)
    assert not statements, "\n".join(statements)


def output_of(script: Path, address: str, topic: str) -> str:
    command = [sys.executable, str(script), address, topic, topic, "10"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout


def test_a_script_of_confluent_kafka_runs_here_with_another_import_and_another_key(
    kafka_4_3_1: KafkaBroker, kafka_log_4_3_1: KafkaLog, tmp_path: Path
) -> None:
    text = SCRIPT.read_text()
    for before, after in CHANGES.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    changed = tmp_path / "changed.py"
    changed.write_text(text)
    topic, path = f"numbers-{uuid4().hex[:8]}", tmp_path / "log.db"
    records = [NewRecord(None, b"%d" % number) for number in range(10)]
    with LocalLog(path) as own_log, ProcessorPeer(own_log):
        for log in (kafka_log_4_3_1, own_log):
            log.create_topic(topic, 1)
            log.append(topic, 0, records)
        BrokerSide(kafka_4_3_1.bootstrap_servers, kafka_log_4_3_1).configure(topic, EARLIEST)
        AdminClient(own_log).alter_group_config(topic, EARLIEST)
        here = output_of(changed, str(path), topic)
    assert here.splitlines()[1:] == [
        "0 accepted at delivery 1",
        "1 accepted at delivery 1",
        "2 accepted at delivery 2",
        "3 accepted at delivery 3",
        "4 rejected at delivery 1",
        "5 accepted at delivery 1",
        "6 accepted at delivery 1",
        "7 accepted at delivery 2",
        "8 accepted at delivery 3",
        "9 rejected at delivery 1",
        "10 records reported",
    ]
    assert output_of(SCRIPT, kafka_4_3_1.bootstrap_servers, topic) == here
