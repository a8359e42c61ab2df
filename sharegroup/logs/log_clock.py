"""The time of a log: it never goes back, and continues while the machine's clock is set back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wall_ms() -> int:
    """Return the machine's time, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return milliseconds since an arbitrary moment; this clock is never set."""
    return time.monotonic_ns() // 1_000_000


class LogClock:
    """The later of two times: the machine's, and the latest seen plus the time since then.

    If stamps were only kept from falling, the log's time would stand still for an hour when the machine's clock is set
    back by an hour, and no lock would end.

    Args:
        wall_ms: the machine's time, milliseconds since the epoch.
        monotonic_ms: a clock that is never set.
    """

    def __init__(self, wall_ms: Callable[[], int] = wall_ms, monotonic_ms: Callable[[], int] = monotonic_ms) -> None:
        self.wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._latest_ms = 0
        self._latest_at_ms = monotonic_ms()

    def now_ms(self, seen_ms: int = 0) -> int:
        """Return the time now, not earlier than a stamp that another process has assigned."""
        with self._lock:
            now_ms = self._monotonic_ms()
            self._latest_ms = max(self._latest_ms + now_ms - self._latest_at_ms, self.wall_ms(), seen_ms)
            self._latest_at_ms = now_ms
            return self._latest_ms
