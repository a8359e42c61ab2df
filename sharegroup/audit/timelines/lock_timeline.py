"""The acquisition locks of members over time: when each began, when it ended, and by what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.audit.timelines.time_axis import TimeAxis
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import RecordState
from sharegroup.protocol.rows import TransitionEntry

STILL_HELD = "still_held"
"""End of a lock that is held after the last row."""

STATE_REMOVED = "state_removed"
"""End of a lock whose share-partition lost its state: its topic or group was deleted, or its offset was reset."""


class _Held(NamedTuple):
    member_id: str
    since_ms: int


@dataclass(slots=True)
class LockBar:
    """Locks of a member that began within one time bin, and ended by one cause.

    Attributes:
        ended_by: the cause that ended them, `still_held` or `state_removed`.
        start_ms: when the first one began; epoch ms.
        end_ms: when the last one ended; epoch ms.
        lock_count: ranges of records that were locked.
        label: topic, partition and offsets of the first one.
    """

    member_id: str
    ended_by: str
    start_ms: int
    end_ms: int
    lock_count: int
    record_count: int
    label: str


class LockTimeline:
    """The locks of all share-partitions of a group, at the resolution of a time axis."""

    def __init__(self, axis: TimeAxis) -> None:
        self._axis = axis
        self._held: dict[tuple[str, int], RangeMap[_Held | None]] = {}
        self._topics: dict[tuple[str, int], str] = {}
        self._bars: dict[tuple[str, str, int], LockBar] = {}

    def apply(self, topic_id: str, topic: str, partition: int, entry: TransitionEntry) -> None:
        """Apply one transition of a share-partition."""
        if entry.to_state is RecordState.ACQUIRED and entry.from_state is not RecordState.ACQUIRED:
            self.hold(topic_id, topic, partition, entry.first_offset, entry.last_offset, entry.member_id, entry.time_ms)
        elif entry.from_state is RecordState.ACQUIRED and entry.to_state is not RecordState.ACQUIRED:
            key = (topic_id, partition)
            if key in self._held:
                self._end(key, entry.first_offset, entry.last_offset, entry.time_ms, entry.cause.value)

    def hold(
        self,
        topic_id: str,
        topic: str,
        partition: int,
        first_offset: int,
        last_offset: int,
        member_id: str,
        since_ms: int,
    ) -> None:
        """Begin a lock."""
        key = (topic_id, partition)
        self._topics[key] = topic
        self._held.setdefault(key, RangeMap()).assign(first_offset, last_offset, _Held(member_id, since_ms))

    def pass_below(self, topic_id: str, partition: int, start_offset: int) -> None:
        """Forget the offsets below the start offset of a share-partition, where no lock is left."""
        held = self._held.get((topic_id, partition))
        if held is not None:
            held.drop_below(start_offset)

    def end_all(self, topic_id: str, partition: int, time_ms: int, ended_by: str) -> None:
        """End all locks of a share-partition."""
        held = self._held.pop((topic_id, partition), None)
        for first_offset, last_offset, lock in held or ():
            if lock is not None:
                self._add((topic_id, partition), first_offset, last_offset, lock, time_ms, ended_by)

    def finish(self) -> None:
        """End what is still held at the end of the time axis."""
        for topic_id, partition in list(self._held):
            self.end_all(topic_id, partition, self._axis.until_ms, STILL_HELD)

    def __iter__(self) -> Iterator[LockBar]:
        """Iterate over the locks by member and start."""
        return iter(sorted(self._bars.values(), key=lambda bar: (bar.member_id, bar.start_ms, bar.ended_by)))

    def _end(self, key: tuple[str, int], first_offset: int, last_offset: int, time_ms: int, ended_by: str) -> None:
        for first, last, lock in self._held[key].overlapping(first_offset, last_offset):
            if lock is not None:
                self._add(key, first, last, lock, time_ms, ended_by)
        self._held[key].assign(first_offset, last_offset, None)

    def _add(self, key: tuple[str, int], first: int, last: int, lock: _Held, end_ms: int, ended_by: str) -> None:
        if end_ms < self._axis.since_ms or lock.since_ms > self._axis.until_ms:
            return
        start_ms = max(lock.since_ms, self._axis.since_ms)
        bar_key = (lock.member_id, ended_by, self._axis.bin_of(start_ms))
        bar = self._bars.get(bar_key)
        if bar is None:
            label = f"{self._topics[key]}-{key[1]} {first}-{last}"
            self._bars[bar_key] = LockBar(lock.member_id, ended_by, start_ms, end_ms, 1, last - first + 1, label)
            return
        bar.start_ms = min(bar.start_ms, start_ms)
        bar.end_ms = max(bar.end_ms, end_ms)
        bar.lock_count += 1
        bar.record_count += last - first + 1
