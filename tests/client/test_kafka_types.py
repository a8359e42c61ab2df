"""The types that confluent-kafka's users know: same names, same accessors, same texts."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka.deserializing_share_consumer import (
    DeserializingShareConsumer as TheirDeserializingShareConsumer,
)

import sharegroup.client.kafka_types as ours
from sharegroup.client.deserializing_share_consumer import DeserializingShareConsumer
from sharegroup.client.message import Message, Messages
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.errors import InvalidRecordStateError, UnknownTopicOrPartitionError

# The name and the password are configuration, from which all connections of a log are made.
WITHOUT_COUNTERPART = {"set_sasl_credentials"}


def public_names(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("theirs", "own", "missing"),
    [
        (confluent_kafka.ShareConsumer, ShareConsumer, WITHOUT_COUNTERPART),
        (confluent_kafka.Message, Message, set()),
        (TheirDeserializingShareConsumer, DeserializingShareConsumer, WITHOUT_COUNTERPART),
    ],
)
def test_every_method_has_its_counterpart(theirs: type, own: type, missing: set[str]) -> None:
    assert public_names(theirs) - public_names(own) == missing


@pytest.mark.parametrize("is_fatal", [True, False])
@pytest.mark.parametrize("code", [-150, -159, -160, -172, -185, -186, -195, 25, 121, 122])
def test_an_error_reads_as_theirs(code: int, is_fatal: bool) -> None:
    theirs, own = (module.KafkaError(code, "so it is", is_fatal) for module in (confluent_kafka, ours))
    assert (own.code(), own.name(), own.str(), own.fatal()) == (
        theirs.code(),
        theirs.name(),
        theirs.str(),
        theirs.fatal(),
    )
    assert repr(own) == repr(theirs)
    assert own == code
    assert own == ours.KafkaError(code, "or so")
    assert own != ours.KafkaError(1)
    assert hash(own) == hash(ours.KafkaError(code))


def test_an_error_without_a_text_has_that_of_its_code() -> None:
    assert ours.KafkaError(121).str() == InvalidRecordStateError.default_message
    assert ours.KafkaError(-185).str() == "Local: Timed out"
    assert repr(ours.KafkaError(-150, "x", True)) == 'KafkaError{FATAL,code=_FATAL,val=-150,str="x"}'
    assert repr(ours.KafkaError(31_000)) == 'KafkaError{code=ERR_31000,val=31000,str="Err-31000?"}'


def test_an_error_of_a_response_keeps_its_words() -> None:
    error = ours.KafkaError.of(InvalidRecordStateError("Offset 3 is AVAILABLE."))
    assert (error.code(), error.name(), error.str(), error.retriable()) == (
        121,
        "INVALID_RECORD_STATE",
        "Offset 3 is AVAILABLE.",
        False,
    )
    assert ours.KafkaError.of(UnknownTopicOrPartitionError()).retriable()


def test_topic_partitions_are_equal_by_topic_and_partition() -> None:
    theirs, own = confluent_kafka.TopicPartition("t", 1, 0), ours.TopicPartition("t", 1)
    assert repr(own) == repr(theirs)
    assert own == ours.TopicPartition("t", 1, 7)
    assert own != ours.TopicPartition("t", 2)
    assert len({own, ours.TopicPartition("t", 1, 7), ours.TopicPartition("u", 1)}) == 2
    assert sorted([ours.TopicPartition("t", 2), own]) == [own, ours.TopicPartition("t", 2)]


def test_acknowledge_types_have_their_numbers() -> None:
    for theirs in confluent_kafka.AcknowledgeType:
        assert AcknowledgeType[theirs.name] == theirs.value


def test_a_message_tells_what_it_was_given_and_takes_replacements() -> None:
    message = Message(
        topic="t", partition=1, offset=2, key=b"k", value=b"value", headers=[("h", b"1"), ("h", None)],
        timestamp=(1, 1_700_000_000_000), leader_epoch=4, delivery_count=5,
    )  # fmt: skip
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 2)
    assert (message.key(), message.value(), len(message)) == (b"k", b"value", 5)
    assert message.headers() == [("h", b"1"), ("h", None)]
    assert message.timestamp() == (1, 1_700_000_000_000)
    assert (message.leader_epoch(), message.delivery_count(), message.latency(), message.error()) == (4, 5, None, None)
    message.set_topic("u")
    message.set_key(1)
    message.set_value({"a": 1})
    message.set_headers(None)
    message.set_error(ours.KafkaError(1))
    assert (message.topic(), message.key(), message.value(), message.headers()) == ("u", 1, {"a": 1}, None)
    assert message.error() == 1
    assert len(message) == 0
    assert message


def test_messages_are_a_read_only_sequence() -> None:
    single = [Message(offset=offset) for offset in range(4)]
    messages = Messages(single)
    assert (messages.count(), len(messages), messages.is_empty(), Messages().is_empty()) == (4, 4, False, True)
    assert list(messages) == messages.records() == single
    assert messages[1] is single[1]
    assert isinstance(messages[1:3], Messages)
    assert messages[1:3].records() == single[1:3]
    assert messages.records() is not messages.records()
    assert repr(messages).startswith("Messages([<")
    with pytest.raises(TypeError):
        messages[0] = single[1]  # type: ignore[index]
