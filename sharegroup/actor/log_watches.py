"""The watches of the record log that a leader has set; only their changes are sent.

A share-partition is watched above the end of its acquirable records while a fetch waits there, and above everything
while it waits for its first state. A watch stays until it is reported or no session has the partition any more, even
while no fetch waits there: most often the next one will.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.actor.effects import WatchLog
from sharegroup.actor.initialization import UninitializedPartitions
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.records import PartitionKey

_BELOW_ALL_OFFSETS = -1


class LogWatches:
    """The partitions that the processor watches for the group, each above an offset; each watch is reported once.

    Attributes:
        unsettled: partitions whose watch may have to change at the end of the cut.
    """

    def __init__(
        self,
        sessions: ShareSessions,
        partitions: LedPartitions,
        uninitialized: UninitializedPartitions,
        offsets: KnownOffsets,
    ) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._uninitialized = uninitialized
        self._offsets = offsets
        self.unsettled: set[PartitionKey] = set()
        self._set: dict[PartitionKey, tuple[str, int]] = {}
        self._new: dict[PartitionKey, tuple[str, int]] = {}
        self._forgotten: dict[PartitionKey, str] = {}

    def reported(self, key: PartitionKey) -> None:
        """Remove the watch, if there is one, of a partition whose log offsets arrived."""
        self._set.pop(key, None)
        self._new.pop(key, None)

    def reset(self) -> None:
        """Drop all watches: those that are still needed are set again at the end of the cut."""
        for key in list(self._set):
            self._forget(key)
            self.unsettled.add(key)
            if self._sessions.is_used(key):
                self._sessions.unwatched.add(key)

    def settle(self, new_fetches: Iterable[str], isolation_level: IsolationLevel) -> None:
        """Set the watches for waiting fetches and uninitialized share-partitions, and drop those without use."""
        keys = self.unsettled | self._sessions.left
        for member_id in new_fetches:
            session = self._sessions.get(member_id)
            if session is not None and session.pending is not None:
                keys.update(session.rotated(self._sessions.unwatched))
        for key in sorted(keys):
            topic = self._uninitialized.topic_waiting_at(key)
            led = self._partitions.get(key)
            if topic is not None:
                self._watch(topic, key, _BELOW_ALL_OFFSETS)
            elif led is not None and any(True for _ in self._sessions.waiting_at(key)):
                self._watch(led.topic, key, self._offsets.acquirable_end(key, isolation_level))
                self._sessions.unwatched.discard(key)
            elif led is None or not self._sessions.is_used(key):
                self._forget(key)
        self.unsettled.clear()
        self._sessions.left.clear()

    def take_changes(self, group_id: str, isolation_level: IsolationLevel) -> list[WatchLog]:
        """Return the effect with the changes since the last call; none when there were none."""
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

    def _watch(self, topic: str, key: PartitionKey, above_offset: int) -> None:
        if self._set.get(key) != (topic, above_offset):
            self._set[key] = self._new[key] = (topic, above_offset)
            self._forgotten.pop(key, None)

    def _forget(self, key: PartitionKey) -> None:
        watched = self._set.pop(key, None)
        if watched is not None:
            # One that was set in this very cut may have replaced an older one.
            self._new.pop(key, None)
            self._forgotten[key] = watched[0]
