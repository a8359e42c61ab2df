"""Appends to a topic that is deleted between its lookup and the append."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import uuid4

import pytest

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.kafka_appender import KafkaAppender
from sharegroup.logs.kafka_clients import KafkaClients
from sharegroup.logs.port import Log, NewRecord
from tests.support.kafka_broker import KafkaBroker


@pytest.mark.long("a missing topic is certain after seconds only")
@pytest.mark.parametrize("may_repeat", [False, True])
def test_a_deleted_topic_does_not_come_back(may_repeat: bool, kafka_4_3_1: KafkaBroker) -> None:
    topic = f"deleted-{may_repeat}"
    clients = KafkaClients(KafkaConfig(bootstrap_servers=kafka_4_3_1.bootstrap_servers), 60_000)
    record = [NewRecord(None, b"v")]
    with kafka_4_3_1.open_log() as log:
        log.create_topic(topic, 1)
        appender = KafkaAppender(clients, may_repeat=may_repeat)
        assert appender.append([(topic, 0, record)]) == [0]
        log.delete_topic(topic)
        with pytest.raises(UnknownTopicError):
            appender.append([(topic, 0, record)])
        assert topic not in [topic.name for topic in log.topics()]


def append_for_ever(log: Log, batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> None:
    while True:
        log.append_all(batches)


@pytest.mark.long("a missing topic is certain after seconds only")
def test_appends_while_their_topic_is_deleted_end_with_an_unknown_topic(kafka_4_3_1: KafkaBroker) -> None:
    with kafka_4_3_1.open_log() as log, kafka_4_3_1.open_log() as other:
        for _ in range(2):
            topic = other.create_topic(f"events-{uuid4().hex[:8]}", 8).name
            batches = [(topic, partition, [NewRecord(None, b"x")]) for partition in range(8)]
            deletion = threading.Thread(target=other.delete_topic, args=(topic,))
            log.append_all(batches)
            deletion.start()
            with pytest.raises(UnknownTopicError):
                append_for_ever(log, batches)
            deletion.join()
