"""The time of each request partition: the stamps of its log, carried on between them by a monotonic clock.

Brokers' clocks differ from each other and from this machine's, so each partition has a time of its own and the wall
clock has no part in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Clock:
    time_ms: int
    at_s: float


class PartitionClocks:
    """Times that never go back, for one thread.

    Args:
        monotonic_s: a clock that is never set.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._clocks: dict[int, _Clock] = {}

    def observe(self, partition: int, stamp_ms: int) -> int:
        """Take in the append stamp of a record, which may be behind the partition's time; return that time.

        The first one, of the processor's own announcement, starts the partition's clock.
        """
        now_s = self._monotonic_s()
        clock = self._clocks.get(partition)
        if clock is None:
            self._clocks[partition] = _Clock(stamp_ms, now_s)
            return stamp_ms
        time_ms = _time_ms(clock, now_s)
        if stamp_ms > time_ms:
            clock.time_ms, clock.at_s = stamp_ms, now_s
            return stamp_ms
        return time_ms

    def now_ms(self, partition: int) -> int:
        """Return the partition's time.

        Raises:
            KeyError: no stamp of the partition was observed.
        """
        return _time_ms(self._clocks[partition], self._monotonic_s())


def _time_ms(clock: _Clock, now_s: float) -> int:
    return clock.time_ms + int((now_s - clock.at_s) * 1000)
