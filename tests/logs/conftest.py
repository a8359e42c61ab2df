"""Each log that is tested, and a topic in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log
from tests.support.kafka_broker import KafkaBroker
from tests.support.log_sites import Site


@pytest.fixture(
    params=[
        "local",
        pytest.param("4.3.1", marks=pytest.mark.kafka, id="kafka-4.3.1"),
        pytest.param("3.9.2", marks=(pytest.mark.kafka, pytest.mark.long("Kafka 3.9.2")), id="kafka-3.9.2"),
    ]
)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    if request.param == "local":
        return Site(lambda: LocalLog(tmp_path / "events.log"))
    version = request.param.replace(".", "_")
    broker: KafkaBroker = request.getfixturevalue(f"kafka_{version}")
    return Site(broker.open_log, request.getfixturevalue(f"kafka_log_{version}"))


@pytest.fixture
def log(site: Site) -> Iterator[Log]:
    if site.opened is not None:
        yield site.opened
        return
    with site.open() as opened:
        yield opened


@pytest.fixture
def events(site: Site, log: Log) -> str:
    """A topic of two partitions."""
    return log.create_topic(site.name("events"), 2).name
