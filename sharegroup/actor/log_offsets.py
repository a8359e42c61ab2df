"""The known offsets of the record log, from LogOffsets messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sharegroup.config.group import GroupConfig
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.records import PartitionKey
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.internal_messages import UNINITIALIZED_OFFSET, TopicLogOffsets

MAX_GROUP_PARTITIONS = 200_000
"""Partitions of all topics together that one group may keep: each of them is state."""
UNUSED_TOPIC_MS = 60_000
"""Retention of the offsets of a topic without a share-partition: it is initialised within seconds."""

_UNKNOWN = (0, 0, 0)


def check_partition_count(count: int) -> None:
    """Check that a group would not have too many partitions.

    Raises:
        InvalidRequestError: they are too many.
    """
    if count > MAX_GROUP_PARTITIONS:
        raise InvalidRequestError(f"The group would have {count} partitions; the most is {MAX_GROUP_PARTITIONS}.")


class KnownOffsets:
    """Start, end and last stable offset of each partition; they merge by maximum, so a repeat has no effect."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, tuple[int, int, int]]] = {}
        self._reset: dict[str, dict[int, int]] = {}
        self._unused_since_ms: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def merge(self, topic: TopicLogOffsets) -> list[PartitionKey]:
        """Merge a message's offsets of one topic, and return the partitions whose offsets it names.

        Raises:
            InvalidRequestError: too many partitions would be known; none of the topic's was merged.
        """
        known = self._topics.get(topic.topic_id, {})
        new = {seen.partition_index for seen in topic.partitions if seen.partition_index not in known}
        check_partition_count(self._count + len(new))
        self._count += len(new)
        for seen in topic.partitions:
            start, end, stable = known.get(seen.partition_index, _UNKNOWN)
            known[seen.partition_index] = (
                max(start, seen.start_offset),
                max(end, seen.end_offset),
                max(stable, seen.last_stable_offset),
            )
            if seen.reset_offset != UNINITIALIZED_OFFSET:
                self._reset.setdefault(topic.topic_id, {})[seen.partition_index] = seen.reset_offset
        if known:
            self._topics[topic.topic_id] = known
        return [(topic.topic_id, seen.partition_index) for seen in topic.partitions]

    def forget(self, topic_ids: Iterable[str]) -> None:
        """Forget the partitions of topics whose share-partitions are gone."""
        for topic_id in topic_ids:
            self._count -= len(self._topics.pop(topic_id, ()))
            self._reset.pop(topic_id, None)
            self._unused_since_ms.pop(topic_id, None)

    def forget_unused(self, topic_ids: Iterable[str], is_used: Callable[[str], bool], now_ms: int) -> None:
        """Forget topics that had no share-partition for a while."""
        for topic_id in topic_ids:
            if topic_id in self._topics and not is_used(topic_id):
                self._unused_since_ms.setdefault(topic_id, now_ms)
        for topic_id, since_ms in list(self._unused_since_ms.items()):
            if is_used(topic_id):
                del self._unused_since_ms[topic_id]
            elif now_ms - since_ms >= UNUSED_TOPIC_MS:
                self.forget([topic_id])

    def is_known(self, key: PartitionKey) -> bool:
        """Return True if a message has named the partition's offsets."""
        return key[1] in self._topics.get(key[0], ())

    def start_offset(self, key: PartitionKey) -> int:
        """Return the log start offset."""
        return self._offsets(key)[0]

    def end_offset(self, key: PartitionKey) -> int:
        """Return the log end offset, exclusive."""
        return self._offsets(key)[1]

    def acquirable_end(self, key: PartitionKey, isolation_level: IsolationLevel) -> int:
        """Return the end of the acquirable records, exclusive: the last stable offset under read_committed."""
        _, end, stable = self._offsets(key)
        return min(end, stable) if isolation_level is IsolationLevel.READ_COMMITTED else end

    def reset_offset(self, key: PartitionKey, config: GroupConfig) -> int:
        """Return the start offset by `share.auto.offset.reset`, at most the end of the acquirable records.

        A reset by time that no message has resolved starts at the log start, so that no record is missed.
        """
        end = self.acquirable_end(key, IsolationLevel(config.share_isolation_level))
        if config.timed_reset is not None:
            return min(self._reset.get(key[0], {}).get(key[1], self.start_offset(key)), end)
        return self.start_offset(key) if config.share_auto_offset_reset == "earliest" else end

    def _offsets(self, key: PartitionKey) -> tuple[int, int, int]:
        return self._topics.get(key[0], {}).get(key[1], _UNKNOWN)
