"""Follows the tails of a topic's partitions in a Kafka cluster.

A consumer of librdkafka cannot be woken while it is polled. So a thread polls it and puts the records where `take`
waits on a condition: a wake-up ends the wait at once, and a poll may block for long, which costs less than short polls
(idle: 0.1% of a core; a poll every 10 ms costs 0.6%). The thread fetches ahead, up to a bound.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from sharegroup.errors import LogError, LogUnavailableError, ShareGroupError
from sharegroup.logs.kafka_clients import CHECK_INTERVAL_S, KafkaClients
from sharegroup.logs.kafka_tail import KafkaTail
from sharegroup.logs.kafka_topics import KafkaTopics
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import LogRecord

_AHEAD_RECORDS = 5_000
_AHEAD_BYTES = 8 * 1024 * 1024
"""The thread fetches while fewer bytes than this are buffered."""


class KafkaFollower:
    """A `Follower` of a Kafka log; an error is raised after the records that were fetched before it.

    Raises:
        UnknownTopicError: there is no such topic or partition.
    """

    def __init__(
        self, clients: KafkaClients, topics: KafkaTopics, clock: LogClock, topic: str, positions: Mapping[int, int]
    ) -> None:
        self._clients = clients
        self._topic = topic
        self._positions = dict(positions)
        self._changed = threading.Condition()
        self._fetched: deque[tuple[LogRecord, int]] = deque()
        self._fetched_bytes = 0
        self._failure: ShareGroupError | None = None
        self._is_woken = False
        self._is_closed = False
        self._tail = KafkaTail(clients, topics, clock, topic, positions)
        threading.Thread(target=self._run, name=f"kafka-follower-{topic}", daemon=True).start()

    @property
    def positions(self) -> Mapping[int, int]:
        """Return partition → offset of the next record that `take` may return."""
        return dict(self._positions)

    def take(self, max_records: int, max_bytes: int, timeout_ms: int) -> list[LogRecord]:
        """Return records from the positions on; see `Follower.take`.

        Keys, values and headers count towards `max_bytes`.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        self._clients.check_usable()
        with self._changed:
            if self._is_closed:
                raise LogError(f"The follower of topic {self._topic} is closed.", "Make a new one.")
            self._changed.wait_for(
                lambda: self._fetched or self._failure or self._is_woken or self._is_closed,
                max(deadline - time.monotonic(), 0),
            )
            if not self._fetched:
                self._is_woken = False
                self._raise_failure()
            return self._taken(max_records, max_bytes)

    def wake(self) -> None:
        """End the current or the next `take` early; any thread may call it."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """End a waiting `take`; any thread may call it. The consumer's own thread closes it soon after."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _taken(self, max_records: int, max_bytes: int) -> list[LogRecord]:
        records: list[LogRecord] = []
        while self._fetched and len(records) < max_records:
            record, record_bytes = self._fetched[0]
            if records and record_bytes > max_bytes:
                break
            max_bytes -= record_bytes
            self._fetched.popleft()
            self._fetched_bytes -= record_bytes
            self._positions[record.partition] = record.offset + 1
            records.append(record)
        self._changed.notify_all()
        return records

    def _raise_failure(self) -> None:
        if (failure := self._failure) is None:
            return
        if isinstance(failure, LogUnavailableError):
            # The thread retries.
            self._failure = None
            self._changed.notify_all()
        raise failure.with_traceback(None)

    def _run(self) -> None:
        try:
            while self._awaits_records():
                try:
                    records = self._tail.fetch()
                except LogUnavailableError as failure:
                    self._end_take(failure)
                else:
                    self._put(records)
        except ShareGroupError as failure:
            self._end_take(failure)
        except Exception as error:
            self._end_take(LogError(f"The follower of topic {self._topic} ended: {error!r}."))
        finally:
            self._tail.close()

    def _awaits_records(self) -> bool:
        """Block while the buffer is full; return False once closed."""
        with self._changed:
            while not self._is_closed:
                has_room = len(self._fetched) < _AHEAD_RECORDS and self._fetched_bytes < _AHEAD_BYTES
                if has_room and self._failure is None:
                    return True
                self._changed.wait(CHECK_INTERVAL_S)
                self._clients.check_usable()
            return False

    def _put(self, records: list[LogRecord]) -> None:
        if records:
            sized = [(record, record.size_bytes) for record in records]
            with self._changed:
                self._fetched += sized
                self._fetched_bytes += sum(record_bytes for _, record_bytes in sized)
                self._changed.notify_all()

    def _end_take(self, failure: ShareGroupError) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()
