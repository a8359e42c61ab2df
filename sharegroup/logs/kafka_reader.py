"""Reads exact ranges of offsets from partitions of a Kafka cluster."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, TopicPartition

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.logs.kafka_clients import CHECK_INTERVAL_S, KafkaClients
from sharegroup.logs.kafka_errors import is_transient
from sharegroup.logs.kafka_outage import Connection
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import Headers, LogRecord

READER_SETTINGS = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # A read never goes past the end of the log, so it never has to wait for records; a fetch that did would hold up
    # the next read, since a broker completes the fetches of a consumer one after the other.
    "fetch.wait.max.ms": 0,
    # The next fetch is sent when the records of the last one have been taken.
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 50,
}

_RECORDS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition of a topic that may be deleted and created again."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a read, which ends at the first that is reached.

    Attributes:
        end_offset: end of the range, exclusive; not past the end of the log.
        records: records to return at most.
        size_bytes: keys, values and headers to return at most; one record always fits.
    """

    end_offset: int
    records: int | None = None
    size_bytes: int | None = None


class OffsetsDeletedError(Exception):
    """Raised when records at the read position were deleted meanwhile; the caller reads the offsets again."""


class RangeReader:
    """One consumer, for one read at a time; records fetched beyond a read are kept for the next one.

    It is assigned a partition only while it reads: at the end of the log it would fetch without a pause.
    """

    def __init__(self, clients: KafkaClients, isolation_level: IsolationLevel, clock: LogClock) -> None:
        self._clients = clients
        self._clock = clock
        self._connection = Connection()
        self._consumer = clients.consumer(
            self._connection, {**READER_SETTINGS, "isolation.level": isolation_level.value}
        )
        self._is_assigned = False
        self._partition: TopicIdPartition | None = None
        self._position = 0
        self._fetched: deque[Message] = deque()

    def is_at(self, partition: TopicIdPartition, offset: int) -> bool:
        """Return True if a read from this offset can use the records fetched for the last one."""
        return self._partition == partition and self._position == offset

    def read(self, partition: TopicIdPartition, start_offset: int, limits: Limits) -> list[LogRecord]:
        """Read from an offset that the log has; missing offsets are skipped.

        Raises:
            OffsetsDeletedError: the start offset of the log is higher now.
        """
        if not self.is_at(partition, start_offset):
            self._fetched.clear()
        self._partition, self._position = partition, start_offset
        try:
            records = self._records(partition, limits)
        except BaseException:
            self._partition = None
            raise
        finally:
            if self._is_assigned:
                self._consumer.unassign()
                self._is_assigned = False
        return records

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _records(self, partition: TopicIdPartition, limits: Limits) -> list[LogRecord]:
        records: list[LogRecord] = []
        read_bytes = 0
        last: Message | None = None
        deadline = self._clients.deadline()
        action = f"read partition {partition.topic}-{partition.partition}"
        self._connection.reset()
        while self._position < limits.end_offset and (limits.records is None or len(records) < limits.records):
            if not self._fetched:
                self._fetch(partition, action, deadline)
                continue
            message = self._fetched[0]
            error = message.error()
            if error is not None:
                self._fetched.popleft()
                self._handle_error(action, error, message, limits.end_offset)
                continue
            record = log_record(partition.topic, partition.partition, message)
            if record.offset >= limits.end_offset:
                self._position = limits.end_offset
                break
            read_bytes += record.size_bytes if limits.size_bytes is not None else 0
            if records and limits.size_bytes is not None and read_bytes > limits.size_bytes:
                break
            records.append(record)
            last = self._fetched.popleft()
            self._position = record.offset + 1
        if last is not None and last.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
            self._clock.now_ms(last.timestamp()[1])
        return records

    def _fetch(self, partition: TopicIdPartition, action: str, deadline: float) -> None:
        self._clients.check_connection(action, self._connection, deadline)
        if not self._is_assigned:
            self._consumer.assign([TopicPartition(partition.topic, partition.partition, self._position)])
            self._is_assigned = True
        first = self._consumer.poll(CHECK_INTERVAL_S)
        if first is not None:
            self._fetched.append(first)
            self._fetched += self._consumer.consume(_RECORDS_AT_ONCE, 0)

    def _handle_error(self, action: str, error: KafkaError, message: Message, end_offset: int) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            # An end that was reached before the log grew to the end of this read is ignored.
            if _offset(message) >= end_offset:
                self._position = end_offset
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise OffsetsDeletedError
        elif is_transient(error) or message.topic() is None:
            # An error without a partition is about the consumer group, which is not used.
            self._connection.failed(error)
        else:
            raise self._clients.error(action, error, self._connection)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def log_record(topic: str, partition: int, message: Message) -> LogRecord:
    """Return a message without an error as a record."""
    # The type of headers is wider: it includes the forms that a producer accepts.
    headers = cast(Headers, tuple(message.headers() or ()))
    return LogRecord(
        topic, partition, _offset(message), message.timestamp()[1], message.key(), message.value(), headers
    )
