"""The partitions that groups watch, by partition: growth of one costs with the groups that watch it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sharegroup.actor.effects import WatchLog
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.logs.port import PartitionOffsets

WatchKey = tuple[str, str, int]
"""Topic, topic id, partition."""


class WatchedPartitions:
    """An index of what is left of the groups' `WatchLog` effects, for one thread."""

    def __init__(self) -> None:
        self._above: dict[WatchKey, dict[str, int]] = {}
        self._by_topic: defaultdict[str, set[WatchKey]] = defaultdict(set)
        self._by_group: defaultdict[str, set[WatchKey]] = defaultdict(set)
        self._levels: dict[str, IsolationLevel] = {}

    def update(self, watch: WatchLog) -> set[WatchKey]:
        """Take in what changed of a group's watches; return the partitions to look at."""
        group_id = watch.group_id
        for key in watch.forgotten:
            self.remove(group_id, key)
        for key, above in watch.above_offset.items():
            self._above.setdefault(key, {})[group_id] = above
            self._by_topic[key[0]].add(key)
            self._by_group[group_id].add(key)
        changed = set(watch.above_offset)
        if group_id in self._by_group:
            if self._levels.get(group_id, watch.isolation_level) is not watch.isolation_level:
                changed |= self._by_group[group_id]
            self._levels[group_id] = watch.isolation_level
        return changed

    def remove(self, group_id: str, key: WatchKey) -> None:
        """Remove a group's watch of a partition, if there is one."""
        groups = self._above.get(key, {})
        if groups.pop(group_id, None) is None:
            return
        if not groups:
            del self._above[key]
            _discard(self._by_topic, key[0], key)
        if _discard(self._by_group, group_id, key):
            del self._levels[group_id]

    def of_topic(self, topic: str) -> frozenset[WatchKey]:
        """Return the watched partitions of all topics that have or had this name."""
        return frozenset(self._by_topic.get(topic, ()))

    def is_watched(self, key: WatchKey) -> bool:
        """Return True if a group watches the partition."""
        return key in self._above

    def lowest(self, key: WatchKey) -> int:
        """Return the lowest offset above which a group watches the partition."""
        return min(self._above[key].values())

    def answerable(self, key: WatchKey, seen: PartitionOffsets) -> Iterator[tuple[str, int]]:
        """Yield the groups whose watch of a partition these offsets answer, by id, with the offset of the watch."""
        for group_id, above in sorted(self._above.get(key, {}).items()):
            if seen.readable_end(self._levels[group_id]) > above:
                yield group_id, above

    def waits_for_stable(self, key: WatchKey, seen: PartitionOffsets) -> bool:
        """Return True if a group waits only for open transactions of a partition to end."""
        return any(
            seen.last_stable_offset <= above < seen.end_offset
            and self._levels[group_id] is IsolationLevel.READ_COMMITTED
            for group_id, above in self._above.get(key, {}).items()
        )


def _discard(index: defaultdict[str, set[WatchKey]], name: str, key: WatchKey) -> bool:
    """Remove a key from an index; return True if the name has no key any more."""
    index[name].discard(key)
    if index[name]:
        return False
    del index[name]
    return True
