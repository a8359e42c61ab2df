"""The wake-up times of actors, by partition of the request log: a heap each, whose replaced entries are skipped."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable

from sharegroup.actor.effects import Wake
from sharegroup.protocol.api_key import ActorRole

_Actor = tuple[str, ActorRole]
_Entry = tuple[int, str, ActorRole]

_SMALL_HEAP = 64


class Timers:
    """Wake-up times, for one thread; a time is that of the group's request partition.

    Args:
        partition_of: group id → partition of the request log.
    """

    def __init__(self, partition_of: Callable[[str], int]) -> None:
        self._partition_of = partition_of
        self._at_ms: defaultdict[int, dict[_Actor, int]] = defaultdict(dict)
        self._heaps: defaultdict[int, list[_Entry]] = defaultdict(list)

    def update(self, effects: Iterable[Wake]) -> None:
        """Set, replace and remove wake-up times."""
        for effect in effects:
            partition = self._partition_of(effect.group_id)
            actor = (effect.group_id, effect.role)
            times = self._at_ms[partition]
            if effect.at_ms is None:
                times.pop(actor, None)
            elif times.get(actor) != effect.at_ms:
                times[actor] = effect.at_ms
                heapq.heappush(self._heaps[partition], (effect.at_ms, *actor))
            self._shrink(partition)

    def forget(self, group_id: str) -> None:
        """Remove the wake-up times of a group."""
        self.update(Wake(group_id, role, None) for role in ActorRole)

    def due(self, partition: int, now_ms: int) -> list[str]:
        """Remove the wake-up times that have passed, and return their groups, sorted, each once."""
        groups: set[str] = set()
        heap, times = self._heaps[partition], self._at_ms[partition]
        while heap and heap[0][0] <= now_ms:
            at_ms, group_id, role = heapq.heappop(heap)
            if times.get((group_id, role)) == at_ms:
                del times[group_id, role]
                groups.add(group_id)
        return sorted(groups)

    def next_ms(self, partition: int) -> int | None:
        """Return the earliest wake-up time of a partition's groups; None without one."""
        heap, times = self._heaps[partition], self._at_ms[partition]
        while heap and times.get(heap[0][1:]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _shrink(self, partition: int) -> None:
        """Make the heap anew when most of its entries were replaced: a far time may be replaced with each message."""
        times = self._at_ms[partition]
        if len(self._heaps[partition]) > _SMALL_HEAP + 2 * len(times):
            self._heaps[partition] = [(at_ms, *actor) for actor, at_ms in times.items()]
            heapq.heapify(self._heaps[partition])
