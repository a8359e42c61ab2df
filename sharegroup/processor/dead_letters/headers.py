"""Headers that lead from a record back to the one that a group gave up: Kafka's of dead-letter records (KIP-1191).

Dead-letter records have them, and so do the copies that a redrive appends.
"""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.logs.port import Headers

PREFIX = "__dlq.errors."
"""Beginning of the names of all dead-letter headers."""
_TOPIC = f"{PREFIX}topic"
_PARTITION = f"{PREFIX}partition"
_OFFSET = f"{PREFIX}offset"
_GROUP = f"{PREFIX}group"
_DELIVERY_COUNT = f"{PREFIX}delivery.count"
_MESSAGE = f"{PREFIX}message"


class DeadLetterHeaders(NamedTuple):
    """The record that a group gave up.

    Attributes:
        delivery_count: deliveries before it was given up.
        message: reason why it was given up.
    """

    topic: str
    partition: int
    offset: int
    group_id: str
    delivery_count: int
    message: str

    @property
    def headers(self) -> Headers:
        """The headers that have it."""
        return (
            (_TOPIC, self.topic.encode()),
            (_PARTITION, str(self.partition).encode()),
            (_OFFSET, str(self.offset).encode()),
            (_GROUP, self.group_id.encode()),
            (_DELIVERY_COUNT, str(self.delivery_count).encode()),
            (_MESSAGE, self.message.encode()),
        )


def dead_letter_headers_of(headers: Headers) -> DeadLetterHeaders | None:
    """Return the lineage that headers have; None without topic, partition, offset and group.

    The last header of a name counts: earlier ones were copied from a source that was a dead-letter record itself.
    """
    values = {name: (value or b"").decode(errors="replace") for name, value in headers if name.startswith(PREFIX)}
    partition, offset = values.get(_PARTITION, ""), values.get(_OFFSET, "")
    if not (values.get(_TOPIC) and values.get(_GROUP) and partition.isdecimal() and offset.isdecimal()):
        return None
    count = values.get(_DELIVERY_COUNT, "")
    return DeadLetterHeaders(
        values[_TOPIC],
        int(partition),
        int(offset),
        values[_GROUP],
        int(count) if count.isdecimal() else 0,
        values.get(_MESSAGE, ""),
    )


def without_copied_headers(headers: Headers) -> Headers:
    """Return the headers of a dead-letter record without those copied from its source, which come before its own."""
    return headers[-len(DeadLetterHeaders._fields) :]


def without_dead_letter_headers(headers: Headers) -> Headers:
    """Return the headers that are the application's own."""
    return tuple(header for header in headers if not header[0].startswith(PREFIX))
