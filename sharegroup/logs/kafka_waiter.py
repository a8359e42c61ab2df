"""Waits until partitions of a Kafka cluster grow, by fetches that the brokers answer when there is something."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, Message, TopicPartition

from sharegroup.logs.kafka_clients import LOOK_S, Connection, KafkaClients
from sharegroup.logs.kafka_errors import TRANSIENT, UNKNOWN_TOPIC
from sharegroup.logs.kafka_topics import KafkaTopics

PartitionKey = tuple[str, int]
"""Topic and partition."""

_SETTINGS = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # The end offset counts, not the last stable one.
    "isolation.level": "read_uncommitted",
    # A partition that is newly watched waits for the fetch that is under way.
    "fetch.wait.max.ms": 100,
    # Only that there is something matters: fetch little, and no more while it was not looked at.
    "fetch.message.max.bytes": 1_024,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 10,
    "fetch.error.backoff.ms": 100,
}

_TOPIC_CHECK_INTERVAL_S = 1.0
_FAR_OFFSETS = 1_000
"""A position so far above what was fetched is sought, not read up to."""

_MESSAGES_AT_ONCE = 1_000

_MOVED = UNKNOWN_TOPIC | {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""Codes by which a partition may have been truncated, deleted or created again: look again."""


class GrowthWaiter:
    """One consumer at the ends of some partitions, for one wait at a time."""

    def __init__(self, clients: KafkaClients, topics: KafkaTopics) -> None:
        self._clients = clients
        self._topics = topics
        self._connection = Connection()
        self._consumer = clients.consumer(self._connection, _SETTINGS)
        self._ends: dict[PartitionKey, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._next_topic_check = 0.0

    def follows(self, positions: Mapping[PartitionKey, int]) -> bool:
        """Whether it is at the ends of exactly these partitions already."""
        return self._ends.keys() == positions.keys()

    def wait(self, positions: Mapping[PartitionKey, int], timeout_ms: int) -> bool:
        """Block until a partition ends past its position; false when the time is over or the log is closed.

        Raises:
            UnknownTopicError: a partition does not exist; noticed within a second when it is deleted meanwhile.
        """
        give_up_at = time.monotonic() + timeout_ms / 1000
        self._connection.reset()
        while True:
            self._follow(positions)
            if any(self._ends[key] > position for key, position in positions.items()):
                return True
            remaining_s = give_up_at - time.monotonic()
            if remaining_s <= 0 or self._clients.closed.is_set():
                return False
            first = self._consumer.poll(min(remaining_s, LOOK_S))
            if self._connection.refusal is not None:
                raise self._clients.error("wait for records", self._connection.refusal, self._connection)
            if first is not None:
                for message in (first, *self._consumer.consume(_MESSAGES_AT_ONCE, 0)):
                    self._heed(message)

    def close(self) -> None:
        """Give the consumer back."""
        self._consumer.close()

    def _follow(self, positions: Mapping[PartitionKey, int]) -> None:
        """Follow exactly these partitions; one that is new, or far behind its position, from the end of its log on."""
        if time.monotonic() >= self._next_topic_check or positions.keys() - self._ends.keys():
            self._check_topics(positions)
        far = {key for key, end in self._ends.items() if positions.get(key, 0) > end + _FAR_OFFSETS}
        self._unfollow(self._ends.keys() - positions.keys() | far)
        sought = positions.keys() - self._ends.keys()
        for topic in {topic for topic, _ in sought}:
            partitions = [partition for name, partition in sought if name == topic]
            for partition, found in self._topics.offsets(topic, partitions).items():
                self._ends[topic, partition] = found.end_offset
                self._consumer.incremental_assign([TopicPartition(topic, partition, found.end_offset)])

    def _unfollow(self, keys: Iterable[PartitionKey]) -> None:
        for key in list(keys):
            del self._ends[key]
            self._consumer.incremental_unassign([TopicPartition(*key)])

    def _check_topics(self, positions: Mapping[PartitionKey, int]) -> None:
        topics = self._topics.identities(topic for topic, _ in positions)
        for topic, partition in positions:
            self._topics.check_partition(topic, partition, topics[topic])
        topic_ids = {topic: identity.topic_id for topic, identity in topics.items()}
        self._unfollow(key for key in self._ends if topic_ids.get(key[0]) != self._topic_ids.get(key[0]))
        self._topic_ids = topic_ids
        self._next_topic_check = time.monotonic() + _TOPIC_CHECK_INTERVAL_S

    def _heed(self, message: Message) -> None:
        key = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if key not in self._ends:
            return
        if error is None:
            self._ends[key] = max(self._ends[key], (message.offset() or 0) + 1)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._ends[key] = max(self._ends[key], message.offset() or 0)
        elif error.code() in _MOVED:
            self._next_topic_check = 0.0
            self._unfollow([key])
        elif error.code() in TRANSIENT:
            self._connection.failed(error)
        else:
            raise self._clients.error(f"wait for records of partition {key[0]}-{key[1]}", error, self._connection)
