"""Virtual time: a queue of events, in the order of their times, driven by one random source.

Nothing in a schedule reads a clock or another random source, so a seed always gives the same schedule. An event may
run the queue itself: that is how a commit, or a processor that stands still, takes time while others go on.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: append stamps begin here."""


class World:
    """The time, and what happens next.

    Args:
        seed: decides the schedule.
        is_traced: print what happens.
    """

    def __init__(self, seed: int, is_traced: bool = False) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.is_traced = is_traced
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def now_s(self) -> float:
        """The time in seconds, as a monotonic clock has it."""
        return self.now_ms / 1_000

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (time_ms, next(self._numbers), action))

    def after(self, first_ms: int, last_ms: int, action: Callable[[], None]) -> None:
        """Do something after a random time."""
        self.at(self.now_ms + self.between(first_ms, last_ms), action)

    def between(self, first: int, last: int) -> int:
        """Return a random number of a range, both ends included; takes a third of the time of `randint`."""
        return first + int(self.random.random() * (last - first + 1))

    def run_until(self, time_ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        events = self._events
        while events and events[0][0] <= time_ms and not is_over():
            at_ms, _, action = heapq.heappop(events)
            if at_ms > self.now_ms:
                self.now_ms = at_ms
            action()
        if not is_over():
            self.now_ms = max(self.now_ms, time_ms)

    def happens(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability

    def trace(self, *words: object) -> None:
        """Print an event of the schedule, if it is traced."""
        if self.is_traced:
            print(f"{self.now_ms / 1_000:10.3f} ", *words)


class Alarm:
    """Something that is done at the earliest of the times that it was set to, once, and again when it is set again.

    Args:
        world: time.
        action: what is done.
    """

    def __init__(self, world: World, action: Callable[[], None]) -> None:
        self._world = world
        self._action = action
        self._at_ms: int | None = None

    def set(self, at_ms: int) -> None:
        """Let it go off at a time, or before."""
        if self._at_ms is None or at_ms < self._at_ms:
            self._at_ms = at_ms
            self._world.at(at_ms, lambda: self._go_off(at_ms))

    def _go_off(self, at_ms: int) -> None:
        if self._at_ms == at_ms:
            self._at_ms = None
            self._action()
