"""What a consumer holds and no poll has returned yet, and how it becomes messages."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import Acquisition, HeldRange, unread
from sharegroup.client.message import Message
from sharegroup.client.record_reader import ReadRange, RecordReader
from sharegroup.logs.port import Log


class ReadMessages(NamedTuple):
    """Messages of one range, by offset."""

    held: HeldRange
    by_offset: dict[int, Message]


class PolledMessages(NamedTuple):
    """What one read brought.

    Attributes:
        ranges: messages of each range, none without messages.
        size: bytes of keys and values.
    """

    ranges: list[ReadMessages]
    size: int


class UndeliveredRecords:
    """The rest of one acquisition, and the offsets of it that turned out to have no record.

    Args:
        log: where the records are; locks end by its time.
        reader: reads them.
        max_poll_records: messages that one read returns at most; None is all of an acquisition.
    """

    def __init__(self, log: Log, reader: RecordReader, max_poll_records: int | None) -> None:
        self._log = log
        self._reader = reader
        self._max_poll_records = max_poll_records
        self.lock_timeout_ms: int | None = None
        """How long the locks of the last acquisition last; None before there is one."""
        self._held: Acquisition | None = None
        self._missing: list[Acknowledgement] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read, so that the next acquisition may come."""
        return self._held is None

    def hold(self, acquisition: Acquisition | None) -> None:
        """Have this to read; only when `is_empty`."""
        self._held = acquisition
        if acquisition is not None:
            self.lock_timeout_ms = acquisition.lock_timeout_ms

    def read(self) -> PolledMessages:
        """Messages of the next part; none when the time of the locks is over or no record is there."""
        held = self._held
        if held is None or held.is_over(self._log.now_ms()):
            self._held = None
            return PolledMessages([], 0)
        limit = self._max_poll_records
        chunk = self._reader.read(held.ranges, held.record_count if limit is None else limit, held.following)
        self._held = replace(held, ranges=chunk.rest) if chunk.rest else None
        self._missing += chunk.missing
        ranges = [ReadMessages(found.held, _messages(found)) for found in chunk.ranges if found.records]
        return PolledMessages(ranges, chunk.size)

    def take_missing(self) -> list[Acknowledgement]:
        """Acknowledgements of offsets without a record; each is told once."""
        missing, self._missing = self._missing, []
        return missing

    def take_unread(self, reason: str) -> list[Acknowledgement]:
        """Drop what is held: acknowledgements that take its delivery back, unless the locks have ended."""
        held, self._held = self._held, None
        return unread(held.ranges, reason) if held is not None and not held.is_over(self._log.now_ms()) else []


def _messages(found: ReadRange) -> dict[int, Message]:
    delivery_count = found.held.delivery_count
    return {
        record.offset: Message(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=list(record.headers) or None,
            timestamp=(found.timestamp_type, record.timestamp_ms),
            delivery_count=delivery_count,
        )
        for record in found.records
    }
