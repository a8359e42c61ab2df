"""Reads ranges of offsets from several partitions of a topic at once, as messages of the C client."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, TopicPartition

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.kafka_clients import CHECK_INTERVAL_S, KafkaClients
from sharegroup.logs.kafka_errors import is_transient
from sharegroup.logs.kafka_outage import Connection
from sharegroup.logs.kafka_reader import READER_SETTINGS
from sharegroup.logs.kafka_topics import KafkaTopics
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import OffsetSpan

_MESSAGES_AT_ONCE = 2_000
"""Messages taken at once: many, since the thread may have to wait for another one after each time, but few
enough to be processed while they are in the CPU cache."""
_IDLE_S = 1.0
"""Time without a record after which a read ends with what it has; if that is nothing, it describes the topic."""
_LEADER_TIMEOUT_MS = 1_000
"""Time in which the leader of a partition that brings no records has to respond, after that pause."""
_PARTITIONS_AHEAD = 64
"""Partitions whose messages beyond a read are kept; a fetch returns at most a megabyte of each."""

_error = Message.error
_offset = cast(Callable[[Message], int], Message.offset)
_partition = cast(Callable[[Message], int], Message.partition)


class MessageReader:
    """One consumer, for one read at a time; messages fetched beyond a read are kept for the next one.

    It is assigned partitions only while it reads: at the end of the log it would fetch without a pause.
    """

    def __init__(
        self, clients: KafkaClients, topics: KafkaTopics, isolation_level: IsolationLevel, clock: LogClock
    ) -> None:
        self._clients = clients
        self._topics = topics
        self._clock = clock
        self._connection = Connection()
        settings = {**READER_SETTINGS, "isolation.level": isolation_level.value}
        self._consumer = clients.consumer(self._connection, settings)
        self._topic = ("", "")
        self._ahead: dict[int, list[Message]] = {}

    def is_at(self, topic: str, topic_id: str) -> bool:
        """Return True if the last read was of this topic."""
        return self._topic == (topic, topic_id)

    def read(
        self, topic: str, topic_id: str, spans: Mapping[int, OffsetSpan], max_bytes: int
    ) -> dict[int, list[Message]]:
        """Read the first messages of each span; see `Log.read_messages`.

        Raises:
            UnknownTopicError: the topic was deleted, or created again.
        """
        if not self.is_at(topic, topic_id):
            self._topic, self._ahead = (topic, topic_id), {}
        ahead, self._ahead = self._ahead, {}
        fillings = {
            partition: _Filling(span, _from(ahead.pop(partition, []), span.start_offset), max_bytes)
            for partition, span in spans.items()
        }
        try:
            self._fill(fillings)
        finally:
            self._consumer.unassign()
        messages = {partition: filling.messages for partition, filling in fillings.items() if filling.has_response}
        for partition, filling in fillings.items():
            if rest := filling.cut():
                ahead[partition] = rest
        if len(ahead) <= _PARTITIONS_AHEAD:
            self._ahead = ahead
        self._note_time(messages)
        return messages

    def close(self) -> None:
        """Give the consumer back."""
        self._consumer.close()

    def _fill(self, fillings: dict[int, _Filling]) -> None:
        """Fetch until all partitions are full, or nothing more comes after some: the others may be unreachable."""
        topic, _ = self._topic
        action = f"read topic {topic}"
        deadline = self._clients.deadline()
        self._connection.reset()
        fetched = {partition: filling for partition, filling in fillings.items() if not filling.is_full}
        open_partitions = set(fetched)
        if fetched:
            self._consumer.assign([TopicPartition(topic, p, filling.position) for p, filling in fetched.items()])
        idle_at_s = time.monotonic() + _IDLE_S
        while open_partitions:
            self._clients.check_connection(action, self._connection, deadline)
            first = self._consumer.poll(CHECK_INTERVAL_S)
            messages = [] if first is None else [first]
            has_records = False
            while messages:
                has_records |= self._sort(fetched, messages, action)
                messages = self._consumer.consume(_MESSAGES_AT_ONCE, 0)
            done = [partition for partition in open_partitions if fetched[partition].is_full]
            open_partitions.difference_update(done)
            if done and open_partitions:
                self._consumer.incremental_unassign([TopicPartition(topic, partition) for partition in done])
            if done or has_records:
                idle_at_s = time.monotonic() + _IDLE_S
            elif time.monotonic() >= idle_at_s:
                if any(filling.has_response for filling in fillings.values()):
                    return
                open_partitions &= self._reachable(open_partitions)
                idle_at_s = time.monotonic() + _IDLE_S

    def _sort(self, fillings: Mapping[int, _Filling], messages: list[Message], action: str) -> bool:
        """Pass each message to its partition; errors end or delay the reading of theirs. Return True with records."""
        if any(map(_error, messages)):
            for message in messages:
                if (error := message.error()) is not None:
                    self._handle(fillings, message, error, action)
            messages = [message for message in messages if message.error() is None]
        if len(fillings) == 1:
            for filling in fillings.values():
                filling.add(messages)
            return bool(messages)
        for partition, group in groupby(messages, key=_partition):
            if partition in fillings:
                fillings[partition].add(list(group))
        return bool(messages)

    def _handle(self, fillings: Mapping[int, _Filling], message: Message, error: KafkaError, action: str) -> None:
        filling = fillings.get(message.partition() or 0)
        if error.code() == KafkaError._PARTITION_EOF:
            if filling is not None:
                filling.end(message.offset() or 0)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            if filling is not None:
                filling.end_below_start()
        elif is_transient(error) or message.topic() is None:
            # An error without a partition is about the consumer group, which is not used.
            self._connection.failed(error)
        else:
            raise self._clients.error(action, error, self._connection)

    def _reachable(self, partitions: Iterable[int]) -> set[int]:
        """Return the partitions whose leader responds to this client: a cluster that is away altogether is waited for.

        Raises:
            UnknownTopicError: the topic is not the same any more.
        """
        topic, topic_id = self._topic
        identity = self._topics.identity(topic)
        if identity.topic_id != topic_id:
            raise UnknownTopicError(
                f"The topic {topic} of {self._clients.name} was deleted and created again.", "Read the new one."
            )
        led = [partition for partition in partitions if partition not in identity.leaderless]
        return set(self._topics.reachable_offsets(topic, led, _LEADER_TIMEOUT_MS)) if led else set()

    def _note_time(self, messages: Mapping[int, list[Message]]) -> None:
        for span_messages in messages.values():
            if span_messages and (stamp := span_messages[-1].timestamp())[0] == TIMESTAMP_LOG_APPEND_TIME:
                self._clock.now_ms(stamp[1])


class _Filling:
    """The messages of a span so far, and those fetched beyond it."""

    __slots__ = ("_is_outdated", "_max_bytes", "_size", "_span", "is_full", "messages")

    def __init__(self, span: OffsetSpan, messages: list[Message], max_bytes: int) -> None:
        self.messages: list[Message] = []
        self.is_full = False
        self._is_outdated = False
        self._span = span
        self._max_bytes = max_bytes
        self._size = 0
        self.add(messages)

    @property
    def has_response(self) -> bool:
        """Return True if it has messages, or the broker has shown that there are none."""
        return bool(self.messages) or (self.is_full and not self._is_outdated)

    @property
    def position(self) -> int:
        """Return the offset of the next message."""
        return self._span.start_offset if not self.messages else _offset(self.messages[-1]) + 1

    def add(self, messages: list[Message]) -> None:
        """Add the next messages."""
        self.messages += messages
        self._size += sum(map(len, messages))
        self.is_full |= self.position >= self._span.end_offset or (bool(messages) and self._size >= self._max_bytes)

    def end(self, end_offset: int) -> None:
        """Record the end of the partition; an end that was reached before the log grew to a known end is ignored."""
        self.is_full |= end_offset >= self._span.known_end_offset

    def end_below_start(self) -> None:
        """End at a position whose records were deleted meanwhile.

        A caller that knew the bounds of the log has to read them again: there may be records above the new start.
        """
        self.is_full = True
        self._is_outdated = self._span.known_end_offset > 0

    def cut(self) -> list[Message]:
        """Keep the messages within the span; return those beyond it."""
        keep = bisect_left(self.messages, self._span.end_offset, key=_offset)
        rest = self.messages[keep:]
        del self.messages[keep:]
        return rest


def _from(messages: list[Message], offset: int) -> list[Message]:
    """Return the messages from an offset on; none if it lies outside of them: others may be between."""
    if not messages or not _offset(messages[0]) <= offset <= _offset(messages[-1]):
        return []
    return messages[bisect_left(messages, offset, key=_offset) :]
