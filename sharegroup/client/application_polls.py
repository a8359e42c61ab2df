"""When the application of a member polled, and for how long it is waited for. No I/O, no clock.

An application that polls no more keeps neither records that were fetched for it, which others could process, nor its
place in the group.
"""

from __future__ import annotations

from sharegroup.protocol.share_fetch import NOTICE_INTERVAL_MS

_PATIENCE_WITH_NOTICE_MS = 200
"""Waiting records that another member waits for are returned when no poll comes for this time."""
_NOTICE_MS = NOTICE_INTERVAL_MS * 3 // 2
"""A notice counts for this time: the next one comes before its end, as long as the other member waits."""


class ApplicationPolls:
    """The polls of one member's application; times are ms of a monotonic clock.

    Args:
        max_interval_ms: time without polls after which the member leaves; None is never.
    """

    def __init__(self, max_interval_ms: int | None, now_ms: int) -> None:
        self._max_interval_ms = max_interval_ms
        self._last_ms = now_ms
        self._waiting_count = 0
        self._notice_until_ms: int | None = None
        self._has_lapsed = False

    def begin(self, now_ms: int) -> None:
        """Count the time from now on."""
        self._has_lapsed = False
        self._last_ms = now_ms

    def polled(self, now_ms: int) -> int | None:
        """Record a poll; return the time since the one before, in ms, if the member left for it."""
        silent_ms, self._last_ms = now_ms - self._last_ms, now_ms
        had_lapsed, self._has_lapsed = self._has_lapsed, False
        return silent_ms if had_lapsed else None

    def wait_begins(self) -> None:
        """Record that a poll begins to wait: until its end, the application counts as polling."""
        self._waiting_count += 1

    def wait_ends(self, now_ms: int) -> None:
        """Record that the wait of a poll has ended."""
        self._waiting_count -= 1
        self._last_ms = now_ms

    def noticed(self, now_ms: int) -> None:
        """Record that another member waits for records that this one may have."""
        self._notice_until_ms = now_ms + _NOTICE_MS

    def has_notice(self, now_ms: int) -> bool:
        """Return True if a notice that another member waits still counts when the patience with it ends."""
        ends_ms = max(self._last_ms + _PATIENCE_WITH_NOTICE_MS, now_ms)
        return self._notice_until_ms is not None and ends_ms < self._notice_until_ms

    def idle_at_ms(self, now_ms: int, patience_ms: int) -> int | None:
        """Return when waiting records are to be returned if no poll comes; None while a poll waits.

        Args:
            patience_ms: time without polls, if no other member waits.
        """
        if self._waiting_count:
            return None
        return self._last_ms + (_PATIENCE_WITH_NOTICE_MS if self.has_notice(now_ms) else patience_ms)

    @property
    def lapse_at_ms(self) -> int | None:
        """When the member leaves if no poll comes; None is never, or that it has left."""
        return None if self._max_interval_ms is None or self._has_lapsed else self._last_ms + self._max_interval_ms

    def lapsed(self) -> None:
        """Record that the member leaves for want of a poll."""
        self._has_lapsed = True
