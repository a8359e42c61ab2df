"""Message and Messages: the result of `ShareConsumer.poll`, with confluent-kafka's accessors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, cast, overload

from sharegroup.client.held_records import ReadRange
from sharegroup.client.kafka_exceptions import TIMESTAMP_NOT_AVAILABLE, KafkaError
from sharegroup.logs.port import LogMessage

MessageHeaders = list[tuple[str, bytes | None]]
"""Headers in their order; a key may occur more than once."""


class Message:
    """A consumed record, or an event when `error()` is not None.

    All arguments are optional. A message that a program creates with topic, partition and offset addresses a record
    for `ShareConsumer.acknowledge` as a polled one does.

    Args:
        timestamp: (type, milliseconds since the epoch).
        latency: seconds from produce to acknowledgement; producers only, so None here.
        leader_epoch: leader epoch of the offset.
        delivery_count: deliveries of the record, this one included.
    """

    __slots__ = ("_delivery_count", "_record")

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
        fields: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "key": key,
            "value": value,
            "headers": headers,
            "error": error,
            "timestamp": timestamp,
            "latency": latency,
            "leader_epoch": leader_epoch,
        }
        # The C client's message does not accept None.
        self._record: Any = LogMessage(**{name: v for name, v in fields.items() if v is not None})
        self._delivery_count = delivery_count

    def topic(self) -> str | None:
        """Return the topic name."""
        return self._record.topic()  # type: ignore[no-any-return]

    def partition(self) -> int | None:
        """Return the partition."""
        return self._record.partition()  # type: ignore[no-any-return]

    def offset(self) -> int | None:
        """Return the offset."""
        return self._record.offset()  # type: ignore[no-any-return]

    def key(self) -> object:
        """Return the record key: bytes or None, or the object of `set_key`."""
        return self._record.key()

    def value(self) -> object:
        """Return the record value: bytes or None, or the object of `set_value`."""
        return self._record.value()

    def deserialized_key(self) -> object:
        """Return the key, as `key` does."""
        return self._record.key()

    def deserialized_value(self) -> object:
        """Return the value, as `value` does."""
        return self._record.value()

    def headers(self) -> MessageHeaders | None:
        """Return the record headers in their order; None when there are none."""
        return self._record.headers()  # type: ignore[no-any-return]

    def error(self) -> KafkaError | None:
        """Return the error of an event; None for a record."""
        return self._record.error()  # type: ignore[no-any-return]

    def timestamp(self) -> tuple[int, int]:
        """Return (0 not available, 1 create time, 2 log append time; milliseconds since the epoch)."""
        return self._record.timestamp()  # type: ignore[no-any-return]

    def latency(self) -> float | None:
        """Return None: a consumed record has no latency."""
        return self._record.latency()  # type: ignore[no-any-return]

    def leader_epoch(self) -> int | None:
        """Return the leader epoch of the offset; None when the log has none."""
        return self._record.leader_epoch()  # type: ignore[no-any-return]

    def delivery_count(self) -> int | None:
        """Return the number of deliveries of the record, this one included."""
        return self._delivery_count

    def set_topic(self, value: str | None) -> None:
        """Replace the topic name."""
        self._record.set_topic(value)

    def set_key(self, value: object) -> None:
        """Replace the key, such as by its deserialized form."""
        self._record.set_key(value)

    def set_value(self, value: object) -> None:
        """Replace the value, such as by its deserialized form."""
        self._record.set_value(value)

    def set_headers(self, value: MessageHeaders | None) -> None:
        """Replace the headers."""
        self._record.set_headers(value)

    def set_error(self, value: KafkaError | None) -> None:
        """Replace the error."""
        self._record.set_error(value)

    def __len__(self) -> int:
        """Return the size of the value, in bytes."""
        value = self._record.value()
        return len(value) if isinstance(value, bytes | str) else 0

    def __bool__(self) -> bool:
        # A message with an empty value is true, too.
        return True


class PolledMessage(Message):
    """A message of a poll.

    Args:
        delivery_count: deliveries of the record, this one included.
    """

    __slots__ = ()

    def __init__(self, record: LogMessage, delivery_count: int | None) -> None:
        self._record = record
        self._delivery_count = delivery_count


AnyMessage = Message | LogMessage
"""A message of this package, or one that an application has created with confluent-kafka's class."""


class Messages(Sequence[Message]):
    """The messages of one poll: a read-only sequence, whose messages are created when the first one is accessed."""

    __slots__ = ("_count", "_messages", "_ranges")

    def __init__(self, messages: Iterable[AnyMessage] = ()) -> None:
        self._ranges: list[ReadRange] = []
        # confluent-kafka's messages have the same accessors.
        self._messages: list[Message] | None = list(cast("Iterable[Message]", messages))
        self._count = len(self._messages)

    @classmethod
    def of_ranges(cls, ranges: Iterable[ReadRange]) -> Messages:
        """Create a sequence of the records of ranges, in their order."""
        messages = cls()
        messages._ranges, messages._messages = list(ranges), None
        messages._count = sum(len(part.records) for part in messages._ranges)
        return messages

    def count(self) -> int:  # type: ignore[override]  # confluent-kafka's meaning: the number of messages
        """Return the number of messages."""
        return self._count

    def is_empty(self) -> bool:
        """Return True if there are none."""
        return not self._count

    def records(self) -> list[Message]:
        """Return the messages as a new list."""
        return list(self._all())

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: int | slice) -> Message | Messages:
        return Messages(self._all()[index]) if isinstance(index, slice) else self._all()[index]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    def __repr__(self) -> str:
        return f"Messages({self._all()!r})"

    def _all(self) -> list[Message]:
        if self._messages is None:
            self._messages = []
            for part in self._ranges:
                self._messages += map(PolledMessage, part.records, repeat(part.held.delivery_count))
            self._ranges = []
        return self._messages
