"""The interface that confluent-kafka's users know: its exceptions, and the same methods of consumers and messages."""

from __future__ import annotations

import pickle
import re
from importlib import import_module
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.deserializing_share_consumer import (
    DeserializingShareConsumer as TheirDeserializingShareConsumer,
)

import sharegroup
from sharegroup.client.deserializing_share_consumer import DeserializingShareConsumer
from sharegroup.client.kafka_exceptions import as_kafka_exception
from sharegroup.client.message import Message, Messages
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.errors import (
    ConfigurationError,
    GroupMaxSizeReachedError,
    GroupQuarantinedError,
    InvalidRecordStateError,
    LogAccessDeniedError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    ShareGroupError,
    StateTableError,
    UnknownTopicError,
    UnknownTopicOrPartitionError,
)

ROOT = Path(__file__).parents[2]

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


@pytest.mark.parametrize(
    ("error", "is_ended", "code", "is_fatal", "is_retriable"),
    [
        (InvalidRecordStateError("Offset 3 is AVAILABLE."), False, KafkaError.INVALID_RECORD_STATE, False, False),
        (UnknownTopicOrPartitionError("x"), False, KafkaError.UNKNOWN_TOPIC_OR_PART, False, True),
        (GroupMaxSizeReachedError("x"), True, KafkaError.GROUP_MAX_SIZE_REACHED, True, False),
        (GroupQuarantinedError("x"), False, 10_000, False, False),
        (
            LogAccessDeniedError("x", code=KafkaError.TOPIC_AUTHORIZATION_FAILED),
            False,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            False,
            False,
        ),
        (LogAccessDeniedError("x", code=KafkaError._AUTHENTICATION), True, KafkaError._AUTHENTICATION, True, False),
        (LogUnavailableError("x"), False, KafkaError._TRANSPORT, False, True),
        (UnknownTopicError("x"), False, KafkaError.UNKNOWN_TOPIC_OR_PART, False, False),
        (OffsetOutOfRangeError("x"), False, KafkaError.OFFSET_OUT_OF_RANGE, False, False),
        (ConfigurationError("x"), False, KafkaError._INVALID_ARG, False, False),
        (StateTableError("x"), False, KafkaError._FATAL, True, False),
    ],
)
def test_errors_leave_as_confluent_kafkas_exception(
    error: ShareGroupError, is_ended: bool, code: int, is_fatal: bool, is_retriable: bool
) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as info, as_kafka_exception(lambda: is_ended):
        raise error
    kafka_error = info.value.args[0]
    assert (kafka_error.code(), kafka_error.fatal(), kafka_error.retriable()) == (code, is_fatal, is_retriable)
    assert str(error) in kafka_error.str()
    assert info.value.__cause__ is error


def test_a_denial_keeps_its_code_between_processes() -> None:
    denied = pickle.loads(pickle.dumps(LogAccessDeniedError("x", "Ask for it.", KafkaError._AUTHENTICATION)))
    assert (str(denied), denied.code) == ("x Ask for it.", KafkaError._AUTHENTICATION)


@pytest.mark.parametrize("name_of_package", ["sharegroup", pytest.param("sharegroup.spark", marks=pytest.mark.spark)])
def test_what_is_exported_is_there(name_of_package: str) -> None:
    package = import_module(name_of_package)
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        getattr(package, "nothing_of_that_name")  # noqa: B009 - that it is refused


def test_exceptions_are_those_that_applications_catch() -> None:
    for name in ("KafkaError", "KafkaException", "TopicPartition", "IllegalStateException"):
        assert getattr(sharegroup, name) is getattr(confluent_kafka, name)


@pytest.mark.spark
@pytest.mark.parametrize("document", sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"]), ids=lambda path: path.name)
def test_documents_import_what_is_exported(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    imported = re.findall(r"^\+?from (sharegroup[\w.]*) import (.+)$", text, re.MULTILINE)
    for module, names in imported:
        assert set(names.split(", ")) <= set(import_module(module).__all__), (module, names)
    assert not re.search(r"^import sharegroup", text, re.MULTILINE)


def test_acknowledge_types_have_their_numbers() -> None:
    for theirs in confluent_kafka.AcknowledgeType:
        assert AcknowledgeType[theirs.name] == theirs.value


def test_a_message_returns_its_arguments_and_takes_replacements() -> None:
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
    message.set_error(KafkaError(1))
    assert (message.topic(), message.key(), message.value(), message.headers()) == ("u", 1, {"a": 1}, None)
    assert message.error() == 1
    assert len(message) == 0
    assert message


def test_messages_are_a_read_only_sequence() -> None:
    single = [Message(offset=offset) for offset in range(4)]
    messages = Messages(single)
    assert (messages.count(), len(messages), messages.is_empty(), Messages().is_empty()) == (4, 4, False, True)
    assert list(messages) == messages.records() == single
    assert messages[1] == single[1]
    assert messages[1] != single[2]
    assert isinstance(messages[1:3], Messages)
    assert messages[1:3].records() == single[1:3]
    assert all(one is messages[0] for one in (single[0], messages.records()[0], next(iter(messages)), messages[:1][0]))
    assert messages.records() is not messages.records()
    assert repr(messages).startswith("Messages([<")
    with pytest.raises(TypeError):
        messages[0] = single[1]  # type: ignore[index]


def test_messages_of_confluent_kafka_stay_as_they_are() -> None:
    theirs = [confluent_kafka.Message(topic="t", partition=0, offset=offset) for offset in range(2)]
    messages = Messages(theirs)
    assert messages.count() == 2
    assert [id(message) for message in messages] == [id(message) for message in theirs]
    assert [message.offset() for message in messages] == [0, 1]
