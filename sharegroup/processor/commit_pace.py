"""The pace of commits: on an object store each of them is paid for (`processor.commit.interval.ms`)."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition


class CommitPace:
    """Counts the time since the begin of the last commit.

    Args:
        interval_ms: least time between the begins of two commits; 0 for none.
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(self, interval_ms: int, monotonic_s: Callable[[], float]) -> None:
        self._interval_s = interval_ms / 1_000
        self._monotonic_s = monotonic_s
        self._next_s = 0.0

    def begin(self) -> None:
        """Begin a commit."""
        self._next_s = self._monotonic_s() + self._interval_s

    def wait(self, changed: Condition, is_over: Callable[[], bool]) -> None:
        """Wait until the next commit may begin, or there is nothing to wait for.

        Args:
            changed: notified when `is_over` may have changed.
            is_over: returns True if there is nothing to wait for.
        """
        pause_s = self._next_s - self._monotonic_s()
        if self._interval_s and pause_s > 0:
            with changed:
                changed.wait_for(is_over, pause_s)
