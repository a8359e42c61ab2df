"""The times of the request partitions, and the wake-up times of actors, which are in these times.

Brokers' clocks differ from each other and from this machine's, so each request partition has its own time: the stamps
of its log, continued between them by a monotonic clock. The wall clock is not used. Three figures of a partition belong
together, and have one owner:

- its **time**, at which cuts are applied;
- the **lead** of this time over the stamps, measured by each Tick, which carries the time at which it was sent. The
  partition's time continues where a broker's clock was set back, or runs slower. By stamps alone a Tick would find
  nothing due and request the next one at once, and a fetch would be too old when it arrives;
- the time of its **last applied message**, which never decreases, not even over a takeover.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sharegroup.actor.effects import Wake
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.marker import CommitMarkerPayload

_Actor = tuple[str, ActorRole]
_Entry = tuple[int, str, ActorRole]

_SMALL_HEAP = 64


class _Clock(NamedTuple):
    """A time, and the monotonic time at which it was it: replaced as one, since another thread reads it."""

    time_ms: int
    at_s: float


class PartitionClocks:
    """Times that never go back, one for each partition; for one thread, but any may ask for the time now.

    Args:
        monotonic_s: a clock that is never set.
        message_times_ms: request partition → time of the message that was applied last before the start.
        leads_ms: request partition → lead of its time over the stamps at the start.
    """

    def __init__(
        self,
        monotonic_s: Callable[[], float] = time.monotonic,
        message_times_ms: Mapping[int, int] | None = None,
        leads_ms: Mapping[int, int] | None = None,
    ) -> None:
        self.monotonic_s = monotonic_s
        self._clocks: dict[int, _Clock] = {}
        self._message_times_ms = dict(message_times_ms or {})
        self._leads_ms = dict(leads_ms or {})

    def observe(self, partition: int, stamp_ms: int) -> int:
        """Update the partition's time from a record's append stamp, which may be behind it; return that time.

        The first stamp, of the processor's own announcement, starts the partition's clock.
        """
        now_s = self.monotonic_s()
        clock = self._clocks.get(partition)
        if clock is None:
            self._clocks[partition] = _Clock(stamp_ms, now_s)
            return stamp_ms
        time_ms = _time_ms(clock, now_s)
        if stamp_ms > time_ms:
            self._clocks[partition] = _Clock(stamp_ms, now_s)
            return stamp_ms
        return time_ms

    def now_ms(self, partition: int) -> int:
        """Return the partition's time.

        Raises:
            KeyError: no stamp of the partition was observed.
        """
        return _time_ms(self._clocks[partition], self.monotonic_s())

    @property
    def message_times_ms(self) -> dict[int, int]:
        """Return request partition → time of its last applied message."""
        return dict(self._message_times_ms)

    def append_times_ms(self, partition: int, records: Sequence[LogRecord]) -> list[int]:
        """Return the append times of the next messages, made non-decreasing."""
        times_ms: list[int] = []
        time_ms = self._message_times_ms.get(partition, 0)
        for record in records:
            time_ms = max(time_ms, record.timestamp_ms)
            times_ms.append(time_ms)
        return times_ms

    def message_ms(self, partition: int, append_ms: int, stamp_ms: int, cut_ms: int) -> int:
        """Return the time at which a message is applied: that of its partition, which may be ahead of the stamps.

        Args:
            append_ms: the message's append time, made non-decreasing.
        """
        lead_ms = self._leads_ms.get(partition, 0)
        if lead_ms > cut_ms - stamp_ms:
            # No message is later than its cut: the broker's clock was corrected, or the Tick was forged.
            lead_ms = self._leads_ms[partition] = max(0, cut_ms - stamp_ms)
        self.reach(partition, max(append_ms, stamp_ms + lead_ms))
        return self._message_times_ms[partition]

    def reach(self, partition: int, message_ms: int) -> None:
        """Apply no later message of the partition before this time."""
        self._message_times_ms[partition] = max(message_ms, self._message_times_ms.get(partition, 0))

    def measure_lead(self, partition: int, sent_ms: int, stamp_ms: int) -> None:
        """Measure the lead of the partition's time by a Tick: the time when it was sent, and its stamp."""
        self._leads_ms[partition] = max(0, sent_ms - stamp_ms)

    def lag_ms(self, partition: int, now_ms: int, stamp_ms: int) -> int:
        """Return how far a stamp is behind the partition's time, beyond the known lead."""
        return now_ms - stamp_ms - self._leads_ms.get(partition, 0)


def started_clocks(
    stamps_ms: Mapping[int, int], marker: CommitMarkerPayload | None, monotonic_s: Callable[[], float]
) -> PartitionClocks:
    """Return the clocks of a processor that has announced itself.

    Args:
        stamps_ms: request partition → stamp of the processor's announcement.
        marker: the last marker of an earlier processor.
        monotonic_s: a clock that is never set.
    """
    starts = _starts(stamps_ms, marker)
    leads_ms = {partition: starts[partition] - stamp_ms for partition, stamp_ms in stamps_ms.items()}
    clocks = PartitionClocks(monotonic_s, marker.message_times_ms if marker else {}, leads_ms)
    for partition, time_ms in starts.items():
        clocks.observe(partition, time_ms)
    return clocks


def _time_ms(clock: _Clock, now_s: float) -> int:
    return clock.time_ms + int((now_s - clock.at_s) * 1000)


def _starts(stamps_ms: Mapping[int, int], marker: CommitMarkerPayload | None) -> dict[int, int]:
    """Return request partition → time at which its clock begins: never before a message or a cut of earlier processors.

    Its arguments are those of `started_clocks`.
    """
    starts = dict(stamps_ms)
    for partition, time_ms in marker.message_times_ms.items() if marker else ():
        starts[partition] = max(starts.get(partition, 0), time_ms)
    for cut in (*marker.cuts, *marker.group_cuts) if marker else ():
        starts[cut.partition] = max(starts.get(cut.partition, 0), cut.time_ms)
    return starts


class Timers:
    """Wake-up times, for one thread; a time is in the time of the group's request partition.

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
        """Rebuild the heap when most of its entries were replaced: each message may replace a far time."""
        times = self._at_ms[partition]
        if len(self._heaps[partition]) > _SMALL_HEAP + 2 * len(times):
            self._heaps[partition] = [(at_ms, *actor) for actor, at_ms in times.items()]
            heapq.heapify(self._heaps[partition])
