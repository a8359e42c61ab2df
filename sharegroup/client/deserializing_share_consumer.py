"""DeserializingShareConsumer: a share consumer whose polls return objects instead of bytes, as confluent-kafka's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sharegroup.client.held_records import ReadRange
from sharegroup.client.kafka_exceptions import KafkaError
from sharegroup.client.message import Message, MessageHeaders, Messages
from sharegroup.client.pending_acknowledgements import RecordAcknowledgement
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.record_state import AcknowledgeType


class MessageField(StrEnum):
    """The parts of a message that are deserialized."""

    KEY = "key"
    VALUE = "value"


@dataclass(slots=True)
class SerializationContext:
    """The context of a deserializer; one object serves the key and then the value of a message."""

    topic: str
    field: MessageField
    headers: MessageHeaders | None = None


Deserializer = Callable[[Any, Any], object]
"""deserializer(bytes or None, context) → object; the form of those in confluent_kafka.serialization."""


class DeserializingShareConsumer(ShareConsumer):
    """A share consumer that deserializes keys and values.

    A record that cannot be deserialized is returned with its bytes, and with a `_KEY_DESERIALIZATION` or
    `_VALUE_DESERIALIZATION` error, as by confluent-kafka. It is released, as by the Java client, unless the application
    acknowledges it otherwise before the next poll or commit; it need not be acknowledged.

    Args:
        conf: as for `ShareConsumer`, with `key.deserializer` and `value.deserializer`; without one, or with None, the
            bytes stay.
        further: as for `ShareConsumer`.
    """

    def __init__(self, conf: dict[str, object] | None = None, /, **further: object) -> None:
        entries = {**conf, **further} if isinstance(conf, dict) else {**further}
        deserializers = {field: _checked(entries.pop(f"{field}.deserializer", None), field) for field in MessageField}
        super().__init__(entries if entries or isinstance(conf, dict) else conf)
        self._deserializers = deserializers

    def _deliver(self, ranges: list[ReadRange]) -> Messages:
        messages = super()._deliver(ranges)
        for message in messages:
            key = message.topic() or "", message.partition() or 0, message.offset() or 0
            if not self._deserialize(message, key[0]):
                self._delivered.acknowledge(key, RecordAcknowledgement(AcknowledgeType.RELEASE))
        return messages

    def _deserialize(self, message: Message, topic: str) -> bool:
        """Deserialize key and value, both or none; return False when one cannot be deserialized."""
        context = SerializationContext(topic, MessageField.KEY, message.headers())
        deserialized = {MessageField.KEY: message.key(), MessageField.VALUE: message.value()}
        for field, deserializer in self._deserializers.items():
            context.field = field
            if deserializer is None:
                continue
            try:
                deserialized[field] = deserializer(deserialized[field], context)
            except Exception as error:
                is_key = field is MessageField.KEY
                code = KafkaError._KEY_DESERIALIZATION if is_key else KafkaError._VALUE_DESERIALIZATION
                message.set_error(KafkaError(code, str(error)))
                return False
        message.set_key(deserialized[MessageField.KEY])
        message.set_value(deserialized[MessageField.VALUE])
        return True


def _checked(deserializer: object, field: MessageField) -> Deserializer | None:
    if deserializer is not None and not callable(deserializer):
        raise TypeError(f"{field}.deserializer must be callable or None, not {type(deserializer).__name__}")
    return deserializer
