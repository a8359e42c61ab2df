"""A local log with a processor behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import write_deltalake

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.consumers import Consume
from tests.client.processor_peer import ProcessorPeer
from tests.client.written_tables import SCHEMA


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def log(log_path: Path) -> Iterator[LocalLog]:
    with LocalLog(log_path) as log:
        yield log


@pytest.fixture
def processor(log: LocalLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as processor:
        yield processor


@pytest.fixture
def produce(log: LocalLog, processor: ProcessorPeer) -> Callable[[str, int], None]:
    """Creates a topic of one partition with so many records; all groups begin at the first of them."""

    def produced(topic: str, count: int) -> None:
        log.create_topic(topic, 1, {}, if_not_exists=True)
        log.append(topic, 0, [NewRecord(None, b"v%d" % i) for i in range(count)])

    AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
    produced("cl-1", 120)
    return produced


@pytest.fixture
def consume(log_path: Path, produce: Callable[[str, int], None]) -> Iterator[Consume]:
    """Makes consumers of the group g, ten records a poll; closed at the end."""
    consumers: list[ShareConsumer] = []

    def made(*topics: str, mode: str = "implicit", **keys: object) -> ShareConsumer:
        config = {
            "group.id": "g",
            "log.path": str(log_path),
            "max.poll.records": 10,
            "share.acknowledgement.mode": mode,
        }
        consumer = ShareConsumer(config | {key.replace("_", "."): value for key, value in keys.items()})
        consumers.append(consumer)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    yield made
    for consumer in consumers:
        consumer.close()


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "results")
    write_deltalake(path, SCHEMA.empty_table())
    return path


@pytest.fixture
def consume_into(consume: Consume, log: LocalLog, table: str) -> Callable[..., ShareConsumer]:
    """Makes consumers of cl-1 with the table as their sink."""
    AdminClient(log).alter_group_config("g", {"share.exactly.once.enable": "true"})

    def made(**keys: object) -> ShareConsumer:
        return consume("cl-1", **{"sink": table, **keys})

    return made
