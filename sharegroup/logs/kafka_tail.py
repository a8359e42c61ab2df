"""One consumer at the tails of a topic's partitions of a Kafka cluster, with one waiting fetch."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, TopicPartition

from sharegroup.errors import UnknownTopicError
from sharegroup.logs.kafka_clients import CHECK_INTERVAL_S, KafkaClients, kafka_error
from sharegroup.logs.kafka_errors import UNKNOWN_TOPIC, is_transient
from sharegroup.logs.kafka_outage import Connection
from sharegroup.logs.kafka_reader import log_record
from sharegroup.logs.kafka_topics import KafkaTopics
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.missing_topic import MissingTopic
from sharegroup.logs.port import LogRecord

_SETTINGS = {
    "auto.offset.reset": "error",
    # The broker responds when there is a record, or after this time.
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    # The memory for fetched records is bounded, but one batch always fits, however large.
    "fetch.max.bytes": 8 * 1024 * 1024,
    "queued.max.messages.kbytes": 8 * 1024,
    "queued.min.messages": 10_000,
    "receive.message.max.bytes": 1_000_000_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 50,
}

_RECORDS_AT_ONCE = 1_000
_TOPIC_CHECK_INTERVAL_S = 1.0
_MISSING_CHECK_INTERVAL_S = 0.2

_MOVED = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""Codes of a position that is outside of the partition's offsets."""


class KafkaTail:
    """Fetches records from some positions on, for one thread.

    Raises:
        UnknownTopicError: there is no such topic or partition.
    """

    def __init__(
        self, clients: KafkaClients, topics: KafkaTopics, clock: LogClock, topic: str, positions: Mapping[int, int]
    ) -> None:
        identity = topics.identity(topic)
        for partition in positions:
            topics.check_partition(topic, partition, identity)
        self._clients = clients
        self._topics = topics
        self._clock = clock
        self._topic = topic
        self._topic_id = identity.topic_id
        self._missing = MissingTopic()
        self._next_topic_check_s = time.monotonic() + _TOPIC_CHECK_INTERVAL_S
        self._positions = dict(positions)
        self._misplaced: set[int] = set()
        self._connection = Connection()
        self._consumer = clients.consumer(self._connection, _SETTINGS)
        self._assign(positions)

    def fetch(self) -> list[LogRecord]:
        """Return the next records; wait a short time for them.

        Raises:
            UnknownTopicError: the topic was created again, noticed within about a second, or deleted, noticed after
                some seconds without it.
            LogUnavailableError: Kafka cannot be reached; the next fetch retries.
        """
        self._clients.check_usable()
        action = f"follow topic {self._topic}"
        try:
            if time.monotonic() >= self._next_topic_check_s:
                self._check_topic()
                self._reposition()
            first = self._consumer.poll(CHECK_INTERVAL_S)
            messages = [] if first is None else [first, *self._consumer.consume(_RECORDS_AT_ONCE, 0)]
        except KafkaException as failure:
            raise self._clients.error(action, kafka_error(failure), self._connection) from None
        if self._connection.refusal is not None:
            refusal, self._connection.refusal = self._connection.refusal, None
            raise self._clients.error(action, refusal, self._connection)
        return self._records(messages)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _records(self, messages: list[Message]) -> list[LogRecord]:
        records: list[LogRecord] = []
        last: Message | None = None
        for message in messages:
            error = message.error()
            if error is not None:
                self._handle_error(error, message)
                continue
            partition = message.partition() or 0
            record = log_record(self._topic, partition, message)
            if record.offset >= self._positions[partition]:
                self._positions[partition] = record.offset + 1
                records.append(record)
                last = message
        if last is not None and last.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
            self._clock.now_ms(last.timestamp()[1])
        return records

    def _handle_error(self, error: KafkaError, message: Message) -> None:
        if error.code() in _MOVED:
            self._misplaced.add(message.partition() or 0)
            self._next_topic_check_s = 0.0
        elif error.code() in UNKNOWN_TOPIC:
            self._next_topic_check_s = 0.0
        elif is_transient(error) or message.topic() is None:
            # An error without a partition is about the consumer group, which is not used.
            self._connection.failed(error)
        else:
            raise self._clients.error(f"follow partition {self._topic}-{message.partition()}", error, self._connection)

    def _check_topic(self) -> None:
        now_s = time.monotonic()
        self._next_topic_check_s = now_s + _TOPIC_CHECK_INTERVAL_S
        try:
            identity = self._topics.identity(self._topic)
        except UnknownTopicError:
            if self._missing.take_missing(now_s):
                raise
            self._next_topic_check_s = now_s + _MISSING_CHECK_INTERVAL_S
            return
        self._missing.take()
        if identity.topic_id != self._topic_id:
            raise UnknownTopicError(
                f"The topic {self._topic} of {self._clients.name} was deleted and created again.", "Follow the new one."
            )

    def _reposition(self) -> None:
        """Move positions whose records were deleted to the start offset; wait where a log ends before its position."""
        if self._missing.is_missing or not self._misplaced:
            return
        for partition, offsets in self._topics.offsets(self._topic, sorted(self._misplaced)).items():
            position = max(self._positions[partition], offsets.start_offset)
            if position <= offsets.end_offset:
                self._misplaced.discard(partition)
                self._positions[partition] = position
                self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])
                self._assign({partition: position})

    def _assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.incremental_assign(
            [TopicPartition(self._topic, partition, offset) for partition, offset in positions.items()]
        )
