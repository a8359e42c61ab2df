"""Fixtures that every test folder may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sharegroup.logs.kafka import KafkaLog
from sharegroup.spark.session import build_session
from tests.support.examples import register_profiles
from tests.support.kafka_broker import KafkaBroker
from tests.support.recoveries import (  # noqa: F401 - pytest calls these
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

ROOT = Path(__file__).resolve().parent.parent

register_profiles()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `--numprocesses auto` is: fast tests wait about as long as they compute, so two processes share a core."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever uses the Spark session or a broker, so that `-m "not spark and not kafka"` starts no JVM."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "spark" in names:
            item.add_marker(pytest.mark.spark)
        if any(name.startswith("kafka_") for name in names):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the run, as programs make theirs."""
    session = build_session("sharegroup-tests")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka_4_3_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The Kafka broker of the run."""
    with KafkaBroker("4.3.1", tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_3_9_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The Kafka broker of the oldest version that is tested."""
    with KafkaBroker("3.9.2", tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_log_4_3_1(kafka_4_3_1: KafkaBroker) -> Iterator[KafkaLog]:
    """A log on that broker, open for the whole run."""
    with kafka_4_3_1.open_log() as log:
        yield log


@pytest.fixture(scope="session")
def kafka_log_3_9_2(kafka_3_9_2: KafkaBroker) -> Iterator[KafkaLog]:
    """A log on that broker, open for the whole run."""
    with kafka_3_9_2.open_log() as log:
        yield log
