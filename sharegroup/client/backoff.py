"""The pause after a failure: doubles with each failure in a row."""

from __future__ import annotations

FIRST_PAUSE_MS = 100
"""Kafka's retry.backoff.ms."""
LONGEST_PAUSE_MS = 1_000
"""Kafka's retry.backoff.max.ms."""


class Backoff:
    """When to go on after failures; `until_ms` is 0 while there is no pause."""

    def __init__(self) -> None:
        self.until_ms = 0
        self._failures = 0

    def failed(self, now_ms: int) -> None:
        """Begin a pause, twice as long as the last one."""
        self.until_ms = now_ms + min(FIRST_PAUSE_MS << min(self._failures, 10), LONGEST_PAUSE_MS)
        self._failures += 1

    def succeeded(self) -> None:
        """The next pause is a short one again."""
        self.until_ms = 0
        self._failures = 0

    def is_over(self, now_ms: int) -> bool:
        """Whether there is no pause, or no longer."""
        if now_ms >= self.until_ms:
            self.until_ms = 0
        return not self.until_ms
