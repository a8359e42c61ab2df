"""Topics that were looked at lately, so that an append need not ask for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from sharegroup.logs.kafka_topics import KafkaTopics
from sharegroup.logs.port import TopicIdentity

_KNOWN_S = 5.0
"""After this time a topic is looked at again: it may have been deleted, or have more partitions."""


class KnownTopics:
    """Identities of topics, at most some seconds old; any thread may use it."""

    def __init__(self, topics: KafkaTopics) -> None:
        self._topics = topics
        self._lock = threading.Lock()
        self._known: dict[str, tuple[TopicIdentity, float]] = {}

    def check_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Raise `UnknownTopicError` when there is no such topic or partition; ask only for what is not known."""
        wanted = list(partitions)
        now_s = time.monotonic()
        with self._lock:
            known = {topic: identity for topic, (identity, until_s) in self._known.items() if now_s < until_s}
        unknown = {topic for topic, partition in wanted if not self._has(known.get(topic), partition)}
        if not unknown:
            return
        identities = self._topics.identities(sorted(unknown))
        with self._lock:
            self._known |= {topic: (identity, now_s + _KNOWN_S) for topic, identity in identities.items()}
        for topic, partition in wanted:
            if topic in identities:
                self._topics.check_partition(topic, partition, identities[topic])

    def forget(self, topics: Iterable[str]) -> None:
        """Ask for these topics next time: they were deleted, or an append to them failed."""
        with self._lock:
            for topic in topics:
                self._known.pop(topic, None)

    def _has(self, identity: TopicIdentity | None, partition: int) -> bool:
        return identity is not None and 0 <= partition < identity.partition_count
