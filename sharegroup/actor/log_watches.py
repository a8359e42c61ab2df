"""The watches of the record log that a leader has set: only what changes of them leaves it."""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.actor.effects import WatchLog
from sharegroup.actor.share_session import PartitionKey
from sharegroup.core.isolation_level import IsolationLevel


class LogWatches:
    """Which partitions the processor watches for the group, and above which offset; each watch is answered once."""

    def __init__(self) -> None:
        self._set: dict[PartitionKey, tuple[str, int]] = {}
        self._new: dict[PartitionKey, tuple[str, int]] = {}
        self._forgotten: dict[PartitionKey, str] = {}

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(list(self._set))

    def watch(self, topic: str, key: PartitionKey, above_offset: int) -> None:
        """Watch a partition above an offset."""
        if self._set.get(key) != (topic, above_offset):
            self._set[key] = self._new[key] = (topic, above_offset)
            self._forgotten.pop(key, None)

    def answered(self, key: PartitionKey) -> None:
        """Note that the log's offsets of a partition came: if it was watched, it is no more."""
        self._set.pop(key, None)
        self._new.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        """Watch a partition no more."""
        watched = self._set.pop(key, None)
        if watched is not None:
            # One that was set in this very cut may have replaced an older one.
            self._new.pop(key, None)
            self._forgotten[key] = watched[0]

    def take_changes(self, group_id: str, isolation_level: IsolationLevel) -> list[WatchLog]:
        """The effect that tells the processor what changed since the last call; none when nothing did."""
        if not self._new and not self._forgotten:
            return []
        effect = WatchLog(
            group_id,
            {(topic, *key): above_offset for key, (topic, above_offset) in sorted(self._new.items())},
            frozenset((topic, *key) for key, topic in self._forgotten.items()),
            isolation_level,
        )
        self._new, self._forgotten = {}, {}
        return [effect]
