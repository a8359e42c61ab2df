"""The acquisitions of a member that wait until their records are delivered to the application. No I/O, no clock.

One whose locks have ended is dropped with a warning: other members may hold its records by now.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from sharegroup.client.held_records import Acquisition, HeldRange

_logger = logging.getLogger(__name__)


class WaitingAcquisitions:
    """A queue of acquisitions, of which parts can be delivered."""

    def __init__(self) -> None:
        self._queue: deque[Acquisition] = deque()

    def __len__(self) -> int:
        """Return the number of acquisitions."""
        return len(self._queue)

    @property
    def record_count(self) -> int:
        """The number of records of all acquisitions."""
        return sum(acquisition.record_count for acquisition in self._queue)

    @property
    def stale_at_ms(self) -> int:
        """The time at which the oldest acquisition is stale; there must be one."""
        return self._queue[0].stale_at_ms

    def add(self, acquisition: Acquisition) -> None:
        """Add the youngest acquisition."""
        self._queue.append(acquisition)

    def take(self, now_ms: int) -> Acquisition | None:
        """Remove and return the oldest acquisition with locks; None if there is none."""
        while self._queue:
            oldest = self._queue.popleft()
            if not _is_lost(oldest, now_ms):
                return oldest
        return None

    @property
    def are_returnable(self) -> bool:
        """True if some acquisitions may be returned: the application has no other records of their write."""
        return any(not waiting.is_handed_out for waiting in self._queue)

    def take_all(self, now_ms: int) -> list[Acquisition]:
        """Remove all acquisitions that may be returned, and return those with locks."""
        queue, self._queue = self._queue, deque()
        taken = []
        for waiting in queue:
            if waiting.is_handed_out:
                self._queue.append(waiting)
            elif not _is_lost(waiting, now_ms):
                taken.append(waiting)
        return taken

    def waits_with(self, write_version: int, now_ms: int) -> bool:
        """Return True if a part of an acquisition with this write waits, and has its locks."""
        return any(
            waiting.write is not None and waiting.write.version == write_version and not waiting.is_over(now_ms)
            for waiting in self._queue
        )

    def has_stale(self, now_ms: int) -> bool:
        """Return True if the oldest acquisition is stale."""
        return bool(self._queue) and self.stale_at_ms <= now_ms

    def take_stale(self, now_ms: int) -> list[Acquisition]:
        """Remove the stale acquisitions, and return those with locks."""
        taken = []
        while self.has_stale(now_ms):
            stale = self._queue.popleft()
            if not _is_lost(stale, now_ms):
                taken.append(stale)
        return taken

    def after(self, number: int) -> Acquisition | None:
        """Return the first acquisition with a higher number."""
        return next((waiting for waiting in self._queue if waiting.number > number), None)

    def deliver(self, number: int, part: HeldRange, now_ms: int) -> bool:
        """Remove a part of an acquisition; return False if it no longer waits, or its locks ended."""
        index = next((i for i, waiting in enumerate(self._queue) if waiting.number == number), None)
        # Some of its records may have been returned since they were read.
        if index is None or not self._queue[index].has(part):
            return False
        waiting = self._queue[index]
        left = waiting.without(part)
        if waiting.write is not None and not waiting.is_handed_out:
            left = replace(left, is_handed_out=True)
        is_lost = _is_lost(waiting, now_ms)
        if left.ranges and not is_lost:
            self._queue[index] = left
        else:
            del self._queue[index]
        return not is_lost

    def withdraw(self, is_withdrawn: Callable[[HeldRange], object]) -> list[HeldRange]:
        """Remove and return whole ranges."""
        withdrawn: list[HeldRange] = []
        waiting, self._queue = self._queue, deque()
        for acquisition in waiting:
            kept: list[HeldRange] = []
            for held in acquisition.ranges:
                (withdrawn if is_withdrawn(held) else kept).append(held)
            if kept:
                is_whole = len(kept) == len(acquisition.ranges)
                self._queue.append(acquisition if is_whole else replace(acquisition, ranges=tuple(kept)))
        return withdrawn

    def clear(self) -> None:
        """Remove all acquisitions."""
        self._queue.clear()


def _is_lost(acquisition: Acquisition, now_ms: int) -> bool:
    """Return True if the locks of an acquisition ended before it was taken, so that it must be dropped.

    Returning it unread could fail, and all other acknowledgements of the same request with it.
    """
    if not acquisition.is_over(now_ms):
        return False
    _logger.warning(
        "%d ranges are dropped: their locks ended %d ms ago, before the records were asked for.",
        len(acquisition.ranges),
        now_ms - acquisition.lock_deadline_ms,
    )
    return True
