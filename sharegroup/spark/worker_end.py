"""When a Spark worker ends: when it is told to, or when nothing is left for it."""

from __future__ import annotations

import logging
import threading
import time

from sharegroup.client.group_member import GroupMember
from sharegroup.client.settings import FetchSettings
from sharegroup.errors import RequestTimedOutError
from sharegroup.event_log import Event

logger = logging.getLogger("sharegroup.spark.worker")

_EMPTY_FETCHES = 2
"""The first may have been sent while records were at hand; the second one was sent after the first was answered."""
_UNASSIGNED_S = 15.0
"""Longer than two heartbeats: time enough to be assigned what there is."""


class EndWhenAsked:
    """A worker that runs until `stop` is set.

    Attributes:
        longest_fetch_ms: how long a fetch may wait for records at most.
    """

    longest_fetch_ms = FetchSettings().max_wait_ms

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    @property
    def is_asked_for(self) -> bool:
        """Whether `stop` is set."""
        return self._stop.is_set()

    def wait_unanswered(self, seconds: float) -> None:
        """Wait for a processor to appear, or for the end."""
        self._stop.wait(seconds)

    def is_reached(self, member: GroupMember, is_busy: bool) -> bool:
        """Whether the worker shall end now.

        Args:
            member: the worker's membership.
            is_busy: whether ranges are at hand.
        """
        return self.is_asked_for


class EndWhenDrained(EndWhenAsked):
    """A worker that also ends when there is nothing that it could acquire.

    Args:
        stop: ends it before.
        timeout_s: how long it waits for an answer of a processor.
    """

    longest_fetch_ms = 1_000

    def __init__(self, stop: threading.Event, timeout_s: float) -> None:
        super().__init__(stop)
        self._timeout_s = timeout_s
        self._answer_count = 0
        self._answered_at_s = time.monotonic()
        self._unassigned_since_s: float | None = None
        self._empty_fetches_before = 0

    def wait_unanswered(self, seconds: float) -> None:
        """As its base, but not for ever.

        Raises:
            RequestTimedOutError: no processor appeared in time.
        """
        super().wait_unanswered(seconds)
        self._check_answered()

    def is_reached(self, member: GroupMember, is_busy: bool) -> bool:
        """Whether the worker shall end now.

        Raises:
            RequestTimedOutError: no processor answered in time.
        """
        standing = member.standing()
        if standing.answer_count != self._answer_count:
            self._answer_count = standing.answer_count
            self._answered_at_s = time.monotonic()
        if self.is_asked_for:
            return True
        self._check_answered()
        if is_busy or member.unanswered_partitions():
            self._empty_fetches_before = standing.empty_fetch_count
            return False
        if standing.empty_fetch_count - self._empty_fetches_before >= _EMPTY_FETCHES:
            return True
        return self._is_unassigned(standing.is_stable and not standing.partition_count)

    def _check_answered(self) -> None:
        if time.monotonic() - self._answered_at_s > self._timeout_s:
            raise RequestTimedOutError(
                f"No processor answered within {self._timeout_s:g} s.",
                "Start one with the same configuration, or wait longer.",
            )

    def _is_unassigned(self, is_unassigned: bool) -> bool:
        """Whether the member has been in the group for long without anything to fetch from."""
        now_s = time.monotonic()
        if not is_unassigned:
            self._unassigned_since_s = None
        elif self._unassigned_since_s is None:
            self._unassigned_since_s = now_s
        elif now_s - self._unassigned_since_s > _UNASSIGNED_S:
            logger.warning(Event("nothing_assigned", reason="the topics do not exist, or other members have them"))
            return True
        return False
