"""A log watch at a real log, and everything that it sent."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.logs.port import Log, NewRecord
from sharegroup.processor.watches.log_watch import LogWatch
from sharegroup.protocol.internal_messages import LogOffsets, TopicLogOffsets
from sharegroup.protocol.messages import RequestEnvelope, parsed

EPOCH = 7


class Watching:
    """A log watch; a context manager that starts it, and stops it with a check that nothing failed."""

    def __init__(self, log: Log) -> None:
        self.sent: list[RequestEnvelope] = []
        self.sends: list[int] = []
        self.failures: list[BaseException] = []
        self._lock = threading.Lock()
        self.watch = LogWatch(log, self._send, EPOCH, self.failures.append)

    def update(self, *effects: WatchLog | WatchTopics) -> None:
        self.watch.update(effects)

    def topics(self, group_id: str | None = None) -> list[TopicLogOffsets]:
        """All that was sent about topics, in order; to one group or to all."""
        return [
            topic
            for envelope in list(self.sent)
            if group_id in (None, envelope.group_id)
            for topic in topics_of(envelope)
        ]

    def has_topics(self, count: int) -> bool:
        """Return True if this many topics were sent, over all groups."""
        return len(self.topics()) == count

    def groups(self) -> list[str]:
        """Groups that got a message, in order."""
        return [envelope.group_id for envelope in list(self.sent)]

    def __enter__(self) -> Self:
        self.watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.watch.stop()
        assert self.failures == []

    def _send(self, messages: list[RequestEnvelope]) -> None:
        with self._lock:
            self.sent += messages
            self.sends.append(len(messages))


def topics_of(envelope: RequestEnvelope) -> list[TopicLogOffsets]:
    return parsed(LogOffsets, envelope.body).topics


def ends(topic: TopicLogOffsets) -> dict[int, int]:
    return {partition.partition_index: partition.end_offset for partition in topic.partitions}


def produce(log: Log, topic: str, partition: int, count: int = 1) -> None:
    log.append(topic, partition, [NewRecord(None, b"value")] * count)


def watch(log: Log, topic: str, above: dict[int, int], group_id: str = "group") -> WatchLog:
    """A group's watch on partitions of a topic."""
    topic_id = log.describe_topic(topic).topic_id
    return WatchLog(group_id, {(topic, topic_id, partition): offset for partition, offset in above.items()})


def forget(log: Log, topic: str, partitions: Iterable[int], group_id: str = "group") -> WatchLog:
    """A group that watches partitions of a topic no more."""
    topic_id = log.describe_topic(topic).topic_id
    return WatchLog(group_id, {}, frozenset((topic, topic_id, partition) for partition in partitions))
