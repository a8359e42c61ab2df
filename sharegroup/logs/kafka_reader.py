"""Reads exact ranges of offsets from partitions of a Kafka cluster."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, TopicPartition

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.logs.kafka_clients import LOOK_S, Connection, KafkaClients
from sharegroup.logs.kafka_errors import TRANSIENT
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import Headers, LogRecord

_SETTINGS = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # A read never goes past the end of the log, so it never has to wait for records; a fetch that did would hold up
    # the next read, since a broker answers one fetch of a consumer after the other.
    "fetch.wait.max.ms": 0,
    # The next fetch is sent when the records of the last one are taken.
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 50,
}

_RECORDS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a topic that may be deleted and created again."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a read stops, whichever comes first.

    Attributes:
        end_offset: offset of the first record that is not wanted; not past the end of the log.
        records: records to return at most.
        size_bytes: keys, values and headers to return at most; one record always fits.
    """

    end_offset: int
    records: int | None = None
    size_bytes: int | None = None


class OffsetsDeletedError(Exception):
    """Records at the read position were deleted meanwhile: look at the offsets again."""


class RangeReader:
    """One consumer, for one read at a time; what a fetch brought beyond a read is there for the next one.

    It is assigned a partition only while it reads: at the end of the log it would fetch without a pause.
    """

    def __init__(self, clients: KafkaClients, isolation_level: IsolationLevel, clock: LogClock) -> None:
        self._clients = clients
        self._clock = clock
        self._connection = Connection()
        self._consumer = clients.consumer(self._connection, {**_SETTINGS, "isolation.level": isolation_level.value})
        self._is_assigned = False
        self._place: Place | None = None
        self._position = 0
        self._fetched: deque[Message] = deque()

    def is_at(self, place: Place, offset: int) -> bool:
        """Whether a read from there can use what was fetched for the last one."""
        return self._place == place and self._position == offset

    def read(self, place: Place, start_offset: int, limits: Limits) -> list[LogRecord]:
        """Read from an offset that the log has; absent offsets are passed over.

        Raises:
            OffsetsDeletedError: the log starts higher now.
        """
        if not self.is_at(place, start_offset):
            self._fetched.clear()
        self._place, self._position = place, start_offset
        try:
            records = self._records(place, limits)
        except BaseException:
            self._place = None
            raise
        finally:
            if self._is_assigned:
                self._consumer.unassign()
                self._is_assigned = False
        return records

    def close(self) -> None:
        """Give the consumer back."""
        self._consumer.close()

    def _records(self, place: Place, limits: Limits) -> list[LogRecord]:
        found: list[LogRecord] = []
        read_bytes = 0
        last: Message | None = None
        deadline = self._clients.deadline()
        action = f"read partition {place.topic}-{place.partition}"
        self._connection.reset()
        while self._position < limits.end_offset and (limits.records is None or len(found) < limits.records):
            if not self._fetched:
                self._fetch(place, action, deadline)
                continue
            message = self._fetched[0]
            error = message.error()
            if error is not None:
                self._fetched.popleft()
                self._heed(action, error, message, limits.end_offset)
                continue
            record = log_record(place.topic, place.partition, message)
            if record.offset >= limits.end_offset:
                self._position = limits.end_offset
                break
            read_bytes += size_bytes(record) if limits.size_bytes is not None else 0
            if found and limits.size_bytes is not None and read_bytes > limits.size_bytes:
                break
            found.append(record)
            last = self._fetched.popleft()
            self._position = record.offset + 1
        if last is not None and last.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
            self._clock.now_ms(last.timestamp()[1])
        return found

    def _fetch(self, place: Place, action: str, deadline: float) -> None:
        self._clients.check_connection(action, self._connection, deadline)
        if not self._is_assigned:
            self._consumer.assign([TopicPartition(place.topic, place.partition, self._position)])
            self._is_assigned = True
        first = self._consumer.poll(LOOK_S)
        if first is not None:
            self._fetched.append(first)
            self._fetched += self._consumer.consume(_RECORDS_AT_ONCE, 0)

    def _heed(self, action: str, error: KafkaError, message: Message, end_offset: int) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            # An end that was met before the log had grown to where this read ends says nothing.
            if _offset(message) >= end_offset:
                self._position = end_offset
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise OffsetsDeletedError
        elif error.code() in TRANSIENT or message.topic() is None:
            # What concerns no partition is about the group, which is none.
            self._connection.failed(error)
        else:
            raise self._clients.error(action, error, self._connection)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def size_bytes(record: LogRecord) -> int:
    """Return the size of a record's key, value and headers."""
    read_bytes = len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        read_bytes += len(key) + len(value or b"")
    return read_bytes


def log_record(topic: str, partition: int, message: Message) -> LogRecord:
    """Return a message that is no error as a record."""
    # The type of headers has more: what a producer may be given, too.
    headers = cast(Headers, tuple(message.headers() or ()))
    return LogRecord(
        topic, partition, _offset(message), message.timestamp()[1], message.key(), message.value(), headers
    )
