"""The deserializing share consumer against the real actors: objects, and records that cannot be deserialized."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.serialization import IntegerDeserializer, StringDeserializer

from sharegroup.client.deserializing_share_consumer import (
    DeserializingShareConsumer,
    MessageField,
    SerializationContext,
)
from sharegroup.client.kafka_exceptions import IllegalStateException, KafkaError
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.consumers import Consume, got
from tests.support.eventually import DEADLINE_S

Make = Callable[..., DeserializingShareConsumer]


@pytest.fixture
def make(log_path: Path, consume: Consume) -> Iterator[Make]:
    """Makes consumers of the topic json; closed at the end."""
    consumers: list[DeserializingShareConsumer] = []

    def made(mode: str = "implicit", **deserializers: object) -> DeserializingShareConsumer:
        consumer = DeserializingShareConsumer(
            {"group.id": "g", "log.path": str(log_path), "share.acknowledgement.mode": mode, "max.poll.records": 500}
            | {f"{field}.deserializer": deserializer for field, deserializer in deserializers.items()}
        )
        consumers.append(consumer)
        consumer.subscribe(["json"])
        return consumer

    yield made
    for consumer in consumers:
        consumer.close()


def load(data: bytes, context: SerializationContext) -> object:
    return json.loads(data)


@pytest.fixture
def bad_value_at_3(log: LocalLog) -> None:
    log.create_topic("json", 1, {})
    log.append("json", 0, [NewRecord(b"\0\0\0\1", b"bad" if i == 3 else b'{"i": %d}' % i) for i in range(6)])


def test_keys_and_values_are_objects(make: Make, log: LocalLog) -> None:
    log.create_topic("json", 1, {})
    log.append("json", 0, [NewRecord(b"\0\0\0\1", b"[1]", (("h", b"x"),)), NewRecord(None, None)])
    contexts: list[tuple[str, str, object]] = []

    def value(data: bytes | None, context: SerializationContext) -> object:
        contexts.append((context.topic, context.field, context.headers))
        return None if data is None else json.loads(data)

    first, second = make(key=IntegerDeserializer(), value=value).poll(DEADLINE_S)
    assert (first.key(), first.value(), first.error()) == (1, [1], None)
    assert (first.deserialized_key(), first.deserialized_value()) == (1, [1])
    assert (second.key(), second.value(), second.error()) == (None, None, None)
    assert contexts == [("json", MessageField.VALUE, [("h", b"x")]), ("json", MessageField.VALUE, None)]


@pytest.mark.usefixtures("bad_value_at_3")
class TestRecordsThatCannotBeDeserialized:
    def test_they_keep_their_bytes_and_say_why(self, make: Make) -> None:
        messages = make(key=StringDeserializer(), value=load).poll(DEADLINE_S)
        assert [message.value() for message in messages] == [{"i": i} if i != 3 else b"bad" for i in range(6)]
        error = messages[3].error()
        assert error is not None
        assert error == KafkaError._VALUE_DESERIALIZATION
        assert error.name() == "_VALUE_DESERIALIZATION"
        assert error.str().startswith("Expecting value")
        assert messages[3].key() == b"\0\0\0\1"
        assert {message.error() for message in messages if message.offset() != 3} == {None}

    def test_a_key_comes_first(self, make: Make) -> None:
        messages = make(key=load, value=load).poll(DEADLINE_S)
        assert [message.error() for message in messages] == [KafkaError._KEY_DESERIALIZATION] * 6
        assert messages[0].value() == b'{"i": 0}'

    def test_they_are_released_in_implicit_mode(self, make: Make) -> None:
        consumer = make(value=load)
        assert got(consumer.poll(DEADLINE_S)) == "0-5:d1"
        consumer.commit_sync()
        assert got(consumer.poll(DEADLINE_S)) == "3-3:d2"

    def test_they_are_released_in_explicit_mode_and_need_no_acknowledgement(self, make: Make) -> None:
        consumer = make("explicit", value=load)
        messages = consumer.poll(DEADLINE_S)
        with pytest.raises(IllegalStateException, match=r"^5 records from previous poll"):
            consumer.poll(0)
        for message in messages:
            if message.error() is None:
                consumer.acknowledge(message)
        assert got(consumer.poll(DEADLINE_S)) == "3-3:d2"

    def test_the_application_may_reject_them(self, make: Make) -> None:
        with make("explicit", value=load) as consumer:
            for message in consumer.poll(DEADLINE_S):
                consumer.acknowledge(message, AcknowledgeType.REJECT if message.error() else AcknowledgeType.RELEASE)
            consumer.commit_sync()
        assert got(make().poll(DEADLINE_S)) == "0-2:d2 4-5:d2"

    def test_a_renewed_record_is_not_deserialized_twice(self, make: Make) -> None:
        consumer = make("explicit", value=load)
        for message in consumer.poll(DEADLINE_S):
            consumer.acknowledge(message, AcknowledgeType.RENEW)
        consumer.commit_sync()
        messages = consumer.poll(DEADLINE_S)
        assert [message.value() for message in messages] == [{"i": i} if i != 3 else b"bad" for i in range(6)]
        assert [message.offset() for message in messages if message.error() is not None] == [3]


def test_a_deserializer_is_callable(log_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^value\.deserializer must be callable or None, not str$"):
        DeserializingShareConsumer({"group.id": "g", "log.path": str(log_path), "value.deserializer": "x"})
    with pytest.raises(TypeError, match=r"^expected configuration dict$"):
        DeserializingShareConsumer(None)
