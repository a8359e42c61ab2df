"""Topics and clients for tests that need what only Kafka has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from sharegroup.client.admin import AdminClient
from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.kafka_log import KafkaLog
from tests.kafka.side_by_side.scenario import read_scenarios
from tests.kafka.site import KafkaSite
from tests.support.kafka_broker import KafkaBroker

OWN_SCENARIOS = Path(__file__).parent / "scenarios"

Begin = Callable[[str, Sequence[str]], Producer]
"""Begins a transaction in a topic with these values."""


def _folder(text: str) -> Path:
    return Path(text).resolve()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scenarios", type=_folder, default=OWN_SCENARIOS, metavar="DIR", help="folder of scenarios (*.yaml)"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" not in metafunc.fixturenames:
        return
    # The option is unknown when pytest began above this folder.
    folder: Path = metafunc.config.getoption("--scenarios", default=OWN_SCENARIOS)
    try:
        scenarios = list(read_scenarios(folder))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    if not scenarios:
        raise pytest.UsageError(f"--scenarios {folder}: no *.yaml file there.")
    metafunc.parametrize(
        "scenario",
        [
            pytest.param(
                scenario, id=scenario.name, marks=[] if scenario.long is None else pytest.mark.long(scenario.long)
            )
            for scenario in scenarios
        ],
    )


def new_group(log: KafkaLog, **config: str) -> str:
    """A group that begins at the first record; `share_isolation_level="read_committed"` and so on."""
    group_id = f"group-{uuid4().hex[:8]}"
    own = {name.replace("_", "."): value for name, value in config.items()}
    AdminClient(log).alter_group_config(group_id, {"share.auto.offset.reset": "earliest", **own})
    return group_id


@pytest.fixture
def broker(kafka_4_3_1: KafkaBroker) -> KafkaBroker:
    return kafka_4_3_1


@pytest.fixture(scope="session")
def fragile_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker("4.3.1", tmp_path_factory.mktemp("fragile") / "broker") as broker:
        yield broker


@pytest.fixture
def kafka_to_kill(fragile_broker: KafkaBroker) -> KafkaBroker:
    """A broker that a test may leave as it likes: dead or alive."""
    fragile_broker.start()
    return fragile_broker


@pytest.fixture(scope="module")
def site(kafka_4_3_1: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSite]:
    """A running processor that the tests of a file share."""
    kafka = KafkaConfig(bootstrap_servers=kafka_4_3_1.bootstrap_servers)
    site = KafkaSite(tmp_path_factory.mktemp("site"), kafka=kafka)
    site.start()
    yield site
    site.close()


@pytest.fixture
def site_to_kill(kafka_to_kill: KafkaBroker, tmp_path: Path) -> Iterator[KafkaSite]:
    """A site on that broker, whose processor is not started."""
    site = KafkaSite(tmp_path, kafka=KafkaConfig(bootstrap_servers=kafka_to_kill.bootstrap_servers))
    yield site
    site.close()


@pytest.fixture
def log(kafka_log_4_3_1: KafkaLog) -> KafkaLog:
    return kafka_log_4_3_1


@pytest.fixture
def events(log: KafkaLog) -> str:
    """A topic of one partition that no other test has."""
    return log.create_topic(f"events-{uuid4().hex[:8]}", 1).name


@pytest.fixture
def begin(broker: KafkaBroker) -> Iterator[Begin]:
    """Begins a transaction with these values in partition 0; the producer commits or aborts it."""
    opened: list[Producer] = []

    def begun(topic: str, texts: Sequence[str]) -> Producer:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"test-{uuid4().hex}", "linger.ms": 0}
        )
        opened.append(producer)
        producer.init_transactions(30)
        producer.begin_transaction()
        for text in texts:
            producer.produce(topic, text.encode(), partition=0)
        assert producer.flush(30) == 0
        return producer

    yield begun
    opened.clear()
