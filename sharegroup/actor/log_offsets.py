"""What a leader knows of the record log, from LogOffsets messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sharegroup.actor.share_session import PartitionKey
from sharegroup.config.group import GroupConfig
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.internal_messages import UNINITIALIZED_OFFSET, TopicLogOffsets

MAX_GROUP_PARTITIONS = 200_000
"""Partitions of all topics together that one group may keep: each of them is state."""


def check_partition_count(count: int) -> None:
    """Check how many partitions a group would have.

    Raises:
        InvalidRequestError: they are too many.
    """
    if count > MAX_GROUP_PARTITIONS:
        raise InvalidRequestError(f"The group would have {count} partitions; the most is {MAX_GROUP_PARTITIONS}.")


class KnownOffsets:
    """Start, end and last stable offset of each partition; they merge by maximum, so a repeat does no harm."""

    def __init__(self) -> None:
        self._known: dict[PartitionKey, tuple[int, int, int]] = {}
        self._reset: dict[PartitionKey, int] = {}

    def merge(self, topic: TopicLogOffsets) -> None:
        """Take in what a message says of one topic.

        Raises:
            InvalidRequestError: too many partitions would be known; none of the topic's was taken in.
        """
        new = {(topic.topic_id, seen.partition_index) for seen in topic.partitions} - self._known.keys()
        check_partition_count(len(self._known) + len(new))
        for seen in topic.partitions:
            key = (topic.topic_id, seen.partition_index)
            start, end, stable = self._known.get(key, (0, 0, 0))
            self._known[key] = (
                max(start, seen.start_offset),
                max(end, seen.end_offset),
                max(stable, seen.last_stable_offset),
            )
            if seen.reset_offset != UNINITIALIZED_OFFSET:
                self._reset[key] = seen.reset_offset

    def forget(self, topic_ids: Iterable[str]) -> None:
        """Forget the partitions of topics whose share-partitions are gone."""
        gone = set(topic_ids)
        self._known = {key: offsets for key, offsets in self._known.items() if key[0] not in gone}
        self._reset = {key: offset for key, offset in self._reset.items() if key[0] not in gone}

    def knows(self, key: PartitionKey) -> bool:
        """Whether a message has told of the partition."""
        return key in self._known

    def start_offset(self, key: PartitionKey) -> int:
        """Log start offset."""
        return self._known.get(key, (0, 0, 0))[0]

    def end_offset(self, key: PartitionKey) -> int:
        """Log end offset, exclusive."""
        return self._known.get(key, (0, 0, 0))[1]

    def acquirable_end(self, key: PartitionKey, isolation_level: IsolationLevel) -> int:
        """End of what may be acquired, exclusive: the last stable offset under read_committed."""
        _, end, stable = self._known.get(key, (0, 0, 0))
        return min(end, stable) if isolation_level is IsolationLevel.READ_COMMITTED else end

    def reset_offset(self, key: PartitionKey, config: GroupConfig) -> int:
        """Where `share.auto.offset.reset` starts a share-partition: nowhere past what may be acquired.

        A reset by duration that no message has resolved starts at the log start: records too old rather than missed.
        """
        end = self.acquirable_end(key, IsolationLevel(config.share_isolation_level))
        if config.auto_offset_reset_duration_ms is not None:
            return min(self._reset.get(key, self.start_offset(key)), end)
        return self.start_offset(key) if config.share_auto_offset_reset == "earliest" else end

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold it."""
        return [[*key, *offsets, self._reset.get(key, UNINITIALIZED_OFFSET)] for key, offsets in self._known.items()]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> KnownOffsets:
        """What `to_plain` wrote."""
        known = cls()
        for topic_id, partition, start, end, stable, reset in plain:
            known._known[topic_id, partition] = (start, end, stable)
            if reset != UNINITIALIZED_OFFSET:
                known._reset[topic_id, partition] = reset
        return known
