"""Members whose requests, responses and records are all on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.kafka import KafkaLog
from sharegroup.logs.port import NewRecord
from tests.client.processor_peer import REQUESTS, RESPONSES, ProcessorPeer
from tests.kafka.conftest import Begin
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker

TIMEOUT_S = 60.0


@pytest.fixture
def processor(log: KafkaLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as peer:
        yield peer
    for topic in (REQUESTS, RESPONSES):
        log.delete_topic(topic)


def polled(consumer: ShareConsumer, count: int) -> list[tuple[int | None, int | None]]:
    """Offset and delivery count of the next records."""
    found: list[tuple[int | None, int | None]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.poll(1):
            found.append((message.offset(), message.delivery_count()))
            is_first = message.delivery_count() == 1
            consumer.acknowledge(message, AcknowledgeType.RELEASE if is_first else AcknowledgeType.ACCEPT)
        consumer.commit_sync(TIMEOUT_S)
    return found


@pytest.mark.usefixtures("processor")
def test_records_of_a_topic_with_gaps_are_delivered_again(
    broker: KafkaBroker, log: KafkaLog, events: str, begin: Begin
) -> None:
    group = f"group-{uuid4().hex[:8]}"
    AdminClient(log).alter_group_config(group, {"share.auto.offset.reset": "earliest"})
    begin(events, ["a", "b"]).commit_transaction(30)  # offsets 0 and 1, marker at 2
    eventually(lambda: log.offsets(events)[0].last_stable_offset == 3, "the transaction is over")
    log.append(events, 0, [NewRecord(None, b"c")])
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as consumer:
        consumer.subscribe([events])
        found = polled(consumer, 6)
    assert sorted(found) == [(0, 1), (0, 2), (1, 1), (1, 2), (3, 1), (3, 2)]
    # A second member gets what is new, and nothing of what the first one has accepted.
    log.append(events, 0, [NewRecord(None, b"d")])
    with ShareConsumer(config) as consumer:
        consumer.subscribe([events])
        assert polled(consumer, 2) == [(4, 1), (4, 2)]
