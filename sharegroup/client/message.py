"""Message and Messages: what `ShareConsumer.poll` returns, with confluent-kafka's accessors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from sharegroup.client.kafka_types import TIMESTAMP_NOT_AVAILABLE, KafkaError

MessageHeaders = list[tuple[str, bytes | None]]
"""Headers in their order; a key may occur more than once."""


class Message:
    """A consumed record, or an event when `error()` is not None.

    All arguments are optional. A message that a program makes itself, with topic, partition and offset, names a
    record for `ShareConsumer.acknowledge` as well as a polled one does.

    Args:
        topic: topic name.
        partition: partition.
        offset: offset.
        key: record key.
        value: record value.
        headers: record headers.
        error: error.
        timestamp: (type, milliseconds since the epoch).
        latency: seconds from produce to acknowledgement; producers only, so None here.
        leader_epoch: leader epoch of the offset.
        delivery_count: deliveries of the record, this one included.
    """

    __slots__ = (
        "_delivery_count",
        "_error",
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: MessageHeaders | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key: object = key
        self._value: object = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp
        self._latency = latency
        self._leader_epoch = leader_epoch
        self._delivery_count = delivery_count

    def topic(self) -> str | None:
        """Topic name."""
        return self._topic

    def partition(self) -> int | None:
        """Partition."""
        return self._partition

    def offset(self) -> int | None:
        """Offset."""
        return self._offset

    def key(self) -> object:
        """Record key: bytes or None, or what `set_key` put there."""
        return self._key

    def value(self) -> object:
        """Record value: bytes or None, or what `set_value` put there."""
        return self._value

    def deserialized_key(self) -> object:
        """The same as `key`."""
        return self._key

    def deserialized_value(self) -> object:
        """The same as `value`."""
        return self._value

    def headers(self) -> MessageHeaders | None:
        """Record headers in their order; None when there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """None for a proper message."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """(0 not available, 1 create time, 2 log append time; milliseconds since the epoch)."""
        return self._timestamp

    def latency(self) -> float | None:
        """None: a consumed record has none."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Leader epoch of the offset; None when the log has none."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Deliveries of the record, this one included."""
        return self._delivery_count

    def set_topic(self, value: str | None) -> None:
        """Replace the topic name."""
        self._topic = value

    def set_key(self, value: object) -> None:
        """Replace the key, such as by its deserialized form."""
        self._key = value

    def set_value(self, value: object) -> None:
        """Replace the value, such as by its deserialized form."""
        self._value = value

    def set_headers(self, value: MessageHeaders | None) -> None:
        """Replace the headers."""
        self._headers = value

    def set_error(self, value: KafkaError | None) -> None:
        """Replace the error."""
        self._error = value

    def __len__(self) -> int:
        """Size of the value, in bytes."""
        return len(self._value) if isinstance(self._value, bytes | str) else 0

    def __bool__(self) -> bool:
        # A message with an empty value is a message all the same.
        return True


class Messages(Sequence[Message]):
    """The messages of one poll: a read-only sequence."""

    __slots__ = ("_messages",)

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages = tuple(messages)

    def count(self) -> int:  # type: ignore[override]  # confluent-kafka's meaning: the number of messages
        """Number of messages."""
        return len(self._messages)

    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._messages

    def records(self) -> list[Message]:
        """A list of the messages, the caller's own."""
        return list(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: int | slice) -> Message | Messages:
        return Messages(self._messages[index]) if isinstance(index, slice) else self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __repr__(self) -> str:
        return f"Messages({list(self._messages)!r})"
