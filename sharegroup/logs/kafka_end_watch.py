"""Watches where partitions of a Kafka cluster end, by fetches that the brokers answer when there is something.

One consumer stands at the end of each watched partition. A partition that is added waits until the fetch under way is
over, so one that is forgotten stays assigned for a second: most are watched again a moment later.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from sharegroup.errors import ShareGroupError
from sharegroup.logs.kafka_clients import Connection, KafkaClients
from sharegroup.logs.kafka_errors import TRANSIENT, UNKNOWN_TOPIC
from sharegroup.logs.port import Growth

_SETTINGS = {
    "enable.partition.eof": False,
    "auto.offset.reset": "error",
    # The end offset counts, not the last stable one.
    "isolation.level": "read_uncommitted",
    # A partition that is newly watched waits for the fetch that is under way.
    "fetch.wait.max.ms": 100,
    # The records themselves are of no use: fetch little, and nothing while some are not consumed.
    "fetch.message.max.bytes": 1_024,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 10,
    "fetch.error.backoff.ms": 100,
}

_SLICE_S = 0.01
"""A blocked poll cannot be woken."""
_KEEP_S = 1.0
_KEPT_RECORDS = 200
"""A partition that is not watched and of which more records came is assigned no more: they cost time."""
_FAR_OFFSETS = 1_000
"""An end so far above the consumer's position is sought, not read up to."""
_MESSAGES_AT_ONCE = 1_000

_MOVED = UNKNOWN_TOPIC | {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""Codes by which a partition may have been truncated, deleted or created again: look at its offsets."""

_PartitionKey = tuple[str, int]


@dataclass(slots=True)
class _Assigned:
    """An assigned partition.

    Attributes:
        position: offset of the next record that the consumer returns, as far as known.
        forgotten_s: when it was forgotten; None while it is watched.
        record_count: records that came since then.
    """

    position: int
    forgotten_s: float | None = None
    record_count: int = 0


class KafkaEndWatch:
    """An `EndWatch` with a consumer of its own."""

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients
        self._connection = Connection()
        self._consumer: Consumer = clients.consumer(self._connection, _SETTINGS)
        self._watched: dict[_PartitionKey, int] = {}
        self._assigned: dict[_PartitionKey, _Assigned] = {}
        self._next_tidy_s = 0.0
        self._woken = threading.Event()
        self._grown: dict[str, set[int]] = defaultdict(set)
        self._failures: dict[str, ShareGroupError] = {}

    def watch(self, topic: str, end_offsets: Mapping[int, int]) -> None:
        """Watch partitions from these offsets on; see `EndWatch.watch`."""
        far = []
        for partition, end_offset in end_offsets.items():
            key = (topic, partition)
            self._watched[key] = end_offset
            assigned = self._assigned.get(key)
            if assigned is None or abs(end_offset - assigned.position) > _FAR_OFFSETS:
                far.append(key)
            else:
                assigned.forgotten_s, assigned.record_count = None, 0
                if assigned.position > end_offset:
                    self._has_grown(key)
        self._unassign(key for key in far if key in self._assigned)
        if far:
            self._consumer.incremental_assign([TopicPartition(*key, self._watched[key]) for key in far])
            self._assigned |= {key: _Assigned(self._watched[key]) for key in far}

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Watch partitions no more; they stay assigned for a moment."""
        now_s = time.monotonic()
        for partition in partitions:
            if self._watched.pop((topic, partition), None) is not None:
                self._assigned[topic, partition].forgotten_s = now_s

    def wait(self, timeout_ms: int) -> Growth:
        """Block until watched partitions have grown or failed."""
        give_up_at_s = time.monotonic() + timeout_ms / 1000
        self._connection.reset()
        while True:
            remaining_s = max(give_up_at_s - time.monotonic(), 0)
            first = None if self._grown else self._consumer.poll(min(_SLICE_S, remaining_s))
            if self._connection.refusal is not None:
                raise self._clients.error("watch partitions", self._connection.refusal, self._connection)
            if first is not None:
                for message in (first, *self._consumer.consume(_MESSAGES_AT_ONCE, 0)):
                    self._take(message)
            self._tidy()
            if (
                self._grown
                or self._failures
                or not remaining_s
                or self._woken.is_set()
                or self._clients.closed.is_set()
            ):
                return self._result()

    def wake(self) -> None:
        """Let `wait` return within some milliseconds."""
        self._woken.set()

    def close(self) -> None:
        """Give the consumer back."""
        self._consumer.close()

    def _result(self) -> Growth:
        self._woken.clear()
        growth = Growth({topic: frozenset(ps) for topic, ps in self._grown.items()}, self._failures)
        self._grown, self._failures = defaultdict(set), {}
        return growth

    def _has_grown(self, key: _PartitionKey) -> None:
        topic, partition = key
        self._grown[topic].add(partition)
        self.forget(topic, [partition])

    def _take(self, message: Message) -> None:
        key = (message.topic() or "", message.partition() or 0)
        assigned = self._assigned.get(key)
        if assigned is None:
            return
        error = message.error()
        if error is None:
            assigned.position = max(assigned.position, (message.offset() or 0) + 1)
            assigned.record_count += assigned.forgotten_s is not None
            if assigned.position > self._watched.get(key, assigned.position):
                self._has_grown(key)
        elif error.code() in _MOVED:
            if key in self._watched:
                self._has_grown(key)
            self._unassign([key])
        elif error.code() in TRANSIENT:
            self._connection.failed(error)
        else:
            self._fail(key[0], self._clients.error(f"watch topic {key[0]}", error, self._connection))

    def _fail(self, topic: str, error: ShareGroupError) -> None:
        self._failures[topic] = error
        self._grown.pop(topic, None)
        failed = [key for key in self._assigned if key[0] == topic]
        for key in failed:
            self._watched.pop(key, None)
        self._unassign(failed)

    def _tidy(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_tidy_s:
            return
        self._next_tidy_s = now_s + _KEEP_S / 10
        self._unassign(
            key
            for key, assigned in self._assigned.items()
            if assigned.forgotten_s is not None
            and (now_s - assigned.forgotten_s > _KEEP_S or assigned.record_count > _KEPT_RECORDS)
        )

    def _unassign(self, keys: Iterable[_PartitionKey]) -> None:
        ended = list(keys)
        for key in ended:
            del self._assigned[key]
        if ended:
            self._consumer.incremental_unassign([TopicPartition(*key) for key in ended])
