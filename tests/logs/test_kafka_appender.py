"""Appends to a topic that is deleted between the look at it and the append."""

from __future__ import annotations

import pytest

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import LogUnavailableError, UnknownTopicError
from sharegroup.logs.kafka_appender import KafkaAppender
from sharegroup.logs.kafka_clients import KafkaClients
from sharegroup.logs.port import NewRecord
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker


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

        def is_unknown() -> bool:
            # The producer knows the topic; as its metadata says otherwise, the record is given up.
            try:
                appender.append([(topic, 0, record)])
            except LogUnavailableError:
                return False
            except UnknownTopicError:
                return True
            raise AssertionError("the record was appended")

        eventually(is_unknown, "the appender knows that the topic is gone")
        assert topic not in [topic.name for topic in log.topics()]
