"""Appends to a Kafka cluster, with a producer for one append at a time, so that its records are one batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import groupby

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sharegroup.errors import LogError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.kafka_clients import CHECK_INTERVAL_S, KafkaClients, kafka_error
from sharegroup.logs.kafka_outage import Connection, pauses
from sharegroup.logs.port import NewRecord

Batch = tuple[str, int, Sequence[NewRecord]]
"""Topic, partition and records."""

_SETTINGS = {
    "batch.num.messages": 1_000_000,
    "queue.buffering.max.messages": 0,
    # Time that records wait for a topic that brokers do not know.
    "topic.metadata.propagation.max.ms": 5_000,
    # The topic's configuration limits the record size.
    "message.max.bytes": 1_000_000_000,
}


_LONGEST_LINGER_MS = 900_000
"""The maximum of librdkafka."""

_logger = logging.getLogger(__name__)


class _StaleProducerError(UnknownTopicError):
    """The producer's view of a topic lacks a partition; nothing was sent."""


class _Delivery:
    """The result of one batch: its delivery reports."""

    def __init__(self) -> None:
        self.first_offset: int | None = None
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
        elif self.first_offset is None:
            self.first_offset = message.offset()


class KafkaAppender:
    """Appends batches; used by one thread at a time.

    Args:
        may_repeat: records may be appended twice after a lost connection. An idempotent producer asks for its id before
            it is connected, and again after 500 ms only: that is the time of its first append.
    """

    def __init__(self, clients: KafkaClients, *, may_repeat: bool = False) -> None:
        self._clients = clients
        self._is_idempotent = not may_repeat
        self._connection = Connection()
        self._producer: Producer | None = None

    def append(self, batches: Sequence[Batch]) -> list[int]:
        """Append batches topic by topic, and return the first offset of each.

        Batches must have records, and their partitions must exist.

        Raises:
            LogUnavailableError: Kafka did not respond in time; the records may have been appended, or not.
        """
        for topic, partition, records in batches:
            _check_bytes(f"{topic}-{partition}", records)
        return [
            delivery.first_offset or 0
            for _, of_topic in groupby(batches, key=lambda batch: batch[0])
            for delivery in self._delivered(list(of_topic))
        ]

    def close(self) -> None:
        """Close the producer."""
        self._producer = None

    def _new_producer(self) -> Producer:
        timeout_ms = self._clients.own_timeout_ms
        # A batch is sent when the append is flushed, never before: so it is not split.
        return self._clients.producer(
            self._connection,
            {
                **_SETTINGS,
                "enable.idempotence": self._is_idempotent,
                "message.timeout.ms": timeout_ms,
                "linger.ms": min(timeout_ms - 1, _LONGEST_LINGER_MS),
            },
        )

    def _delivered(self, batches: Sequence[Batch]) -> list[_Delivery]:
        """Append batches of one topic; again, where the client gave up a batch that it had not sent.

        It does so when it learns that the topic was deleted, while the batch is queued; there may be a new one.
        """
        action = f"append to partition {', '.join(f'{topic}-{partition}' for topic, partition, _ in batches)}"
        deadline = self._clients.deadline()
        deliveries = self._sent(action, deadline, batches)
        intervals = pauses()
        while failed := {index: delivery.error for index, delivery in enumerate(deliveries) if delivery.error}:
            for error in failed.values():
                if error.code() != KafkaError._DESTROY or time.monotonic() > deadline:
                    raise self._clients.error(action, error, self._connection)
            reason = next(iter(failed.values())).str()
            _logger.warning(Event("append_repeated", log=self._clients.name, action=action, reason=reason))
            self._clients.wait(next(intervals))
            again = self._sent(action, deadline, [batches[index] for index in failed])
            for index, delivery in zip(failed, again, strict=True):
                deliveries[index] = delivery
        return deliveries

    def _sent(self, action: str, deadline: float, batches: Sequence[Batch]) -> list[_Delivery]:
        # The producer is kept only after success: a new one has no records whose outcome is unknown.
        kept, self._producer = self._producer, None
        if kept is not None:
            try:
                return self._sent_by(kept, action, deadline, batches)
            except _StaleProducerError:
                # The producer's metadata lacks partitions that were added; nothing was sent.
                pass
        return self._sent_by(self._new_producer(), action, deadline, batches)

    def _sent_by(self, producer: Producer, action: str, deadline: float, batches: Sequence[Batch]) -> list[_Delivery]:
        self._connection.reset()
        deliveries = [_Delivery() for _ in batches]
        try:
            for (topic, partition, records), delivery in zip(batches, deliveries, strict=True):
                for record in records:
                    producer.produce(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        on_delivery=delivery,
                        timestamp=record.timestamp_ms or 0,
                        headers=list(record.headers) or None,
                    )
            while producer.flush(CHECK_INTERVAL_S):
                self._clients.check_connection(action, self._connection, deadline)
        except KafkaException as failure:
            producer.purge()
            refusal = self._clients.error(action, kafka_error(failure), self._connection)
            if kafka_error(failure).code() == KafkaError._UNKNOWN_PARTITION:
                raise _StaleProducerError(refusal.message, refusal.remedy) from None
            raise refusal from None
        except BaseException:
            producer.purge()
            raise
        if all(delivery.error is None for delivery in deliveries):
            self._producer = producer
        return deliveries


def _check_bytes(partition: str, records: Sequence[NewRecord]) -> None:
    """Raise LogError for keys and values that are not bytes: the producer would encode them."""
    for record in records:
        for value in (record.key, record.value, *(value for _, value in record.headers)):
            if value is not None and not isinstance(value, bytes):
                raise LogError(
                    f"A record for partition {partition} was refused: {value!r:.40} is {type(value).__name__}.",
                    "Give keys, values and header values as bytes.",
                )
