"""Watches the ends of partitions of a Kafka cluster, with fetches that brokers complete when there are records.

Consumers stand at the end of each watched partition. A new partition waits until the fetch under way is over, and each
fetch names all partitions, which is work for the broker. So there are two consumers: a partition begins at one whose
fetches are short, and moves to one whose fetches are long after it has been watched for a while. It stays with both for
a second, until it is in a fetch of the second one.

A partition that is forgotten stays assigned for a second, too: most are watched again a moment later.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from sharegroup.errors import ShareGroupError
from sharegroup.logs.kafka_clients import KafkaClients
from sharegroup.logs.kafka_errors import UNKNOWN_TOPIC, is_transient
from sharegroup.logs.kafka_outage import Connection
from sharegroup.logs.port import Growth

_SETTINGS = {
    "enable.partition.eof": False,
    "auto.offset.reset": "error",
    # The watch is for the end offset, not for the last stable one.
    "isolation.level": "read_uncommitted",
    # The records themselves are not used: fetch little, and nothing while some are not consumed.
    "fetch.message.max.bytes": 1_024,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 10,
    "fetch.error.backoff.ms": 100,
}

_MESSAGES_AT_ONCE = 1_000

TopicPartitionKey = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class Assigned:
    """An assigned partition.

    Attributes:
        position: offset of the next record that the consumer returns, as far as known.
        since_s: time of the assignment, monotonic seconds.
        forgotten_s: time when it was forgotten, monotonic seconds; None while it is watched.
        record_count: records received since then.
    """

    position: int
    since_s: float
    forgotten_s: float | None = None
    record_count: int = 0


class EndConsumer:
    """A consumer of partitions from their ends on, for one thread.

    Args:
        connection: receives connection errors.
        wait_ms: how long a broker holds a fetch without records.
    """

    def __init__(self, clients: KafkaClients, connection: Connection, wait_ms: int) -> None:
        self.assigned: dict[TopicPartitionKey, Assigned] = {}
        self._consumer: Consumer = clients.consumer(connection, {**_SETTINGS, "fetch.wait.max.ms": wait_ms})

    def assign(self, positions: Mapping[TopicPartitionKey, int], now_s: float) -> None:
        """Assign partitions; they are in the fetch after the one under way."""
        if positions:
            self._consumer.incremental_assign([TopicPartition(*key, position) for key, position in positions.items()])
            self.assigned |= {key: Assigned(position, now_s) for key, position in positions.items()}

    def unassign(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Unassign those of the partitions that are assigned."""
        ended = [key for key in keys if key in self.assigned]
        for key in ended:
            del self.assigned[key]
        if ended:
            self._consumer.incremental_unassign([TopicPartition(*key) for key in ended])

    def poll(self, timeout_s: float) -> list[Message]:
        """Return records and errors; wait for them until the timeout."""
        first = self._consumer.poll(timeout_s)
        return [] if first is None else [first, *self._consumer.consume(_MESSAGES_AT_ONCE, 0)]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


_SHORT_WAIT_MS = 100
_LONG_WAIT_MS = 500
_SETTLED_AFTER_S = 2.0
"""A partition moves to the consumer with long fetches after this time."""

_SLICE_S = 0.01
"""Poll timeout: a blocked poll cannot be woken."""
_KEEP_S = 1.0
_KEPT_RECORDS = 200
"""A partition that is not watched is unassigned after this many records: fetching them costs time."""
_FAR_OFFSETS = 1_000
"""The consumer seeks to an end that is this far above its position instead of reading up to it."""

_MOVED = UNKNOWN_TOPIC | {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""Codes after which a partition may have been truncated, deleted or created again: read its offsets."""


class KafkaEndWatch:
    """An `EndWatch` with its own consumers."""

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients
        self._connection = Connection()
        self._new = EndConsumer(clients, self._connection, _SHORT_WAIT_MS)
        self._settled: EndConsumer | None = None
        self._watched: dict[TopicPartitionKey, int] = {}
        self._next_tidy_s = 0.0
        self._woken = threading.Event()
        self._grown: dict[str, set[int]] = defaultdict(set)
        self._failures: dict[str, ShareGroupError] = {}

    def watch(self, topic: str, end_offsets: Mapping[int, int]) -> None:
        """Watch partitions from these offsets on; see `EndWatch.watch`."""
        far: dict[TopicPartitionKey, int] = {}
        for partition, end_offset in end_offsets.items():
            key = (topic, partition)
            self._watched[key] = end_offset
            # Of a partition that is with both, the settled consumer keeps its assignment.
            assigned = next((c.assigned[key] for c in reversed(self._consumers) if key in c.assigned), None)
            if assigned is None or abs(end_offset - assigned.position) > _FAR_OFFSETS:
                far[key] = end_offset
            else:
                assigned.forgotten_s, assigned.record_count = None, 0
                if assigned.position > end_offset:
                    self._has_grown(key)
        self._unassign(far)
        self._new.assign(far, time.monotonic())

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Stop watching partitions; they stay assigned for a moment."""
        now_s = time.monotonic()
        for partition in partitions:
            key = (topic, partition)
            if self._watched.pop(key, None) is not None:
                for consumer in self._consumers:
                    if (assigned := consumer.assigned.get(key)) is not None:
                        assigned.forgotten_s = now_s

    def wait(self, timeout_ms: int) -> Growth:
        """Block until watched partitions have grown or failed."""
        give_up_at_s = time.monotonic() + timeout_ms / 1000
        self._connection.reset()
        while True:
            remaining_s = max(give_up_at_s - time.monotonic(), 0)
            self._poll(min(_SLICE_S, remaining_s))
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
        """Close the consumers."""
        for consumer in self._consumers:
            consumer.close()

    @property
    def _consumers(self) -> list[EndConsumer]:
        return [self._new] if self._settled is None else [self._new, self._settled]

    def _poll(self, timeout_s: float) -> None:
        # A consumer without partitions has nothing to wait for, but is polled too: it may have to log in again.
        busy_count = sum(bool(consumer.assigned) for consumer in self._consumers)
        for consumer in self._consumers:
            waits = not self._grown and (consumer.assigned or not busy_count)
            messages = consumer.poll(timeout_s / max(busy_count, 1) if waits else 0)
            if self._connection.refusal is not None:
                raise self._clients.error("watch partitions", self._connection.refusal, self._connection)
            for message in messages:
                self._take(consumer, message)

    def _result(self) -> Growth:
        self._woken.clear()
        growth = Growth({topic: frozenset(ps) for topic, ps in self._grown.items()}, self._failures)
        self._grown, self._failures = defaultdict(set), {}
        return growth

    def _has_grown(self, key: TopicPartitionKey) -> None:
        topic, partition = key
        self._grown[topic].add(partition)
        self.forget(topic, [partition])

    def _take(self, consumer: EndConsumer, message: Message) -> None:
        key = (message.topic() or "", message.partition() or 0)
        assigned = consumer.assigned.get(key)
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
        elif is_transient(error):
            self._connection.failed(error)
        else:
            self._fail(key[0], self._clients.error(f"watch topic {key[0]}", error, self._connection))

    def _fail(self, topic: str, error: ShareGroupError) -> None:
        self._failures[topic] = error
        self._grown.pop(topic, None)
        failed = [key for consumer in self._consumers for key in consumer.assigned if key[0] == topic]
        for key in failed:
            self._watched.pop(key, None)
        self._unassign(failed)

    def _tidy(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_tidy_s:
            return
        self._next_tidy_s = now_s + _KEEP_S / 10
        for consumer in self._consumers:
            consumer.unassign(
                [
                    key
                    for key, assigned in consumer.assigned.items()
                    if assigned.forgotten_s is not None
                    and (now_s - assigned.forgotten_s > _KEEP_S or assigned.record_count > _KEPT_RECORDS)
                ]
            )
        self._settle(now_s)

    def _settle(self, now_s: float) -> None:
        """Move partitions that have been watched for a while to the consumer with long fetches."""
        moved: dict[TopicPartitionKey, int] = {}
        for key, assigned in self._new.assigned.items():
            if assigned.forgotten_s is None and now_s - assigned.since_s > _SETTLED_AFTER_S:
                assigned.forgotten_s = now_s
                moved[key] = assigned.position
        if not moved:
            return
        if self._settled is None:
            self._settled = EndConsumer(self._clients, self._connection, _LONG_WAIT_MS)
        self._settled.assign(moved, now_s)

    def _unassign(self, keys: Iterable[TopicPartitionKey]) -> None:
        ended = list(keys)
        for consumer in self._consumers:
            consumer.unassign(ended)
