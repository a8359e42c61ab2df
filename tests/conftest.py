"""Fixtures that every test folder may use."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.remote import Producer

from sharegroup.logs.kafka_log import KafkaLog
from tests.support import chromium as chromium_support
from tests.support import recoveries
from tests.support.chromium import Chromium
from tests.support.examples import register_profiles
from tests.support.fast_start import start_spark_fast
from tests.support.groups import GroupScheduling
from tests.support.kafka_broker import KafkaBroker
from tests.support.long_tests import LongTests, check_reasons
from tests.support.recoveries import (  # noqa: F401 - pytest calls these
    pytest_sessionfinish,
    pytest_testnodedown,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

register_profiles()
start_spark_fast()


def pytest_configure(config: pytest.Config) -> None:
    """Watch for tests that take too long, in the process that prints the summary."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LongTests())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the Spark session, a broker or a processor, so that `-m` can leave them out."""
    check_reasons(items)
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "spark" in names:
            item.add_marker(pytest.mark.spark)
        if any(name.startswith("kafka_") for name in names):
            item.add_marker(pytest.mark.kafka)
        if "processor" in names:
            item.add_marker(pytest.mark.slow)
        if "chromium" in names:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)
    # They are in random order. What takes longest begins first, so that the processes end at about the same time.
    items.sort(key=_turn)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: nearly all that is made then stays until the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def _turn(item: pytest.Item) -> list[bool]:
    is_crash = item.nodeid.startswith("tests/crash/")
    return [not is_crash, *(item.get_closest_marker(name) is None for name in ("kafka", "spark"))]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Divide the tests by group where a run asks for `--dist loadscope`."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the run, as programs make theirs: of Spark Connect where SPARK_REMOTE names a server."""
    # Imported here, since most tests run where there is no Spark.
    from sharegroup.spark import connect
    from sharegroup.spark.session import build_session

    session = build_session("sharegroup-tests")
    if not connect.is_connect(session):
        session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """End the run with the cost of crashes."""
    recoveries.write_summary(terminalreporter, config)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """The headless browser of the run; tests that use it are skipped where there is none."""
    program = chromium_support.installed()
    if program is None:
        pytest.skip(chromium_support.MISSING)
    with Chromium(program, tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


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
