"""When a worker or a query stops: on request, or when there is nothing left that it could acquire."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import HeldRange
from sharegroup.client.settings import FetchSettings
from sharegroup.core.offset_ranges import intersect
from sharegroup.errors import RequestTimedOutError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log, PartitionOffsets

logger = logging.getLogger("sharegroup.spark.worker")

_EMPTY_FETCHES = 2
"""The first may have been sent while records were processed; the second was sent after the response to the first."""
_UNASSIGNED_S = 15.0
"""Longer than two heartbeats: by then a member has the partitions that it can get."""
_RESPONSE_TIMEOUT_S = 60.0


class StopOnRequest:
    """Stops when `stop` is set.

    Attributes:
        max_fetch_wait_ms: how long a fetch may wait for records.
    """

    max_fetch_wait_ms = FetchSettings().max_wait_ms

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    @property
    def is_requested(self) -> bool:
        """True if `stop` is set."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> None:
        """Wait before the next attempt, or until `stop` is set."""
        self._stop.wait(seconds)

    def is_reached(self, member: GroupMember, is_busy: bool) -> bool:
        """Return True if the member should stop now."""
        return self.is_requested


class StopWhenDrained(StopOnRequest):
    """Stops on request, or when there is nothing that the member could acquire.

    Args:
        stop: stops it before.
        timeout_s: how long it waits for a response of a processor.
    """

    max_fetch_wait_ms = 1_000

    def __init__(self, stop: threading.Event, timeout_s: float) -> None:
        super().__init__(stop)
        self._timeout_s = timeout_s
        self._response_count = 0
        self._response_at_s = time.monotonic()
        self._unassigned_since_s: float | None = None
        self._busy_empty_fetch_count = 0

    def wait(self, seconds: float) -> None:
        """Wait before the next attempt.

        Raises:
            RequestTimedOutError: no processor responded in time.
        """
        super().wait(seconds)
        self._check_responses()

    def is_reached(self, member: GroupMember, is_busy: bool) -> bool:
        """Return True if the member should stop now.

        Raises:
            RequestTimedOutError: no processor responded in time.
        """
        standing = member.standing()
        # 1. Check that a processor responds.
        if standing.response_count != self._response_count:
            self._response_count = standing.response_count
            self._response_at_s = time.monotonic()
        if self.is_requested:
            return True
        self._check_responses()
        # 2. Count empty fetches since the last records, and since the responses to their acknowledgements.
        if is_busy or member.unconfirmed_partitions():
            self._busy_empty_fetch_count = standing.empty_fetch_count
            return False
        if standing.empty_fetch_count - self._busy_empty_fetch_count >= _EMPTY_FETCHES:
            return True
        # 3. A member without partitions sends no fetches.
        return self._has_stayed_unassigned(standing.is_stable and not standing.partition_count)

    def _check_responses(self) -> None:
        if time.monotonic() - self._response_at_s > self._timeout_s:
            raise RequestTimedOutError(
                f"No processor responded within {self._timeout_s:g} s.",
                "Start one with the same configuration, or wait longer.",
            )

    def _has_stayed_unassigned(self, is_unassigned: bool) -> bool:
        """Return True if the member has been in the group for _UNASSIGNED_S without a partition."""
        now_s = time.monotonic()
        if not is_unassigned:
            self._unassigned_since_s = None
        elif self._unassigned_since_s is None:
            self._unassigned_since_s = now_s
        elif now_s - self._unassigned_since_s > _UNASSIGNED_S:
            logger.warning(Event("nothing_assigned", reason="the topics do not exist, or other members have them"))
            return True
        return False


class Drain(StopWhenDrained):
    """Ends a query (`Trigger.AvailableNow`) when it has acquired the records that its topics had at its start.

    Records that were appended later are returned unread. A member cannot fetch from one partition only, so the query
    also ends when more acquisitions in a row than there are partitions had only such records: each response begins with
    another partition.

    Args:
        topics: the topics of the query; a missing topic has no records.
    """

    def __init__(self, log: Log, topics: Iterable[str]) -> None:
        super().__init__(threading.Event(), _RESPONSE_TIMEOUT_S)
        self._end_offsets = {
            (topic, partition): offsets.end_offset
            for topic in topics
            for partition, offsets in _offsets(log, topic).items()
        }
        self._later_acquisition_count = 0

    def split(self, ranges: Iterable[HeldRange]) -> tuple[tuple[HeldRange, ...], tuple[HeldRange, ...]]:
        """Return the ranges of an acquisition that the drain covers, and those that were appended later."""
        covered: list[HeldRange] = []
        appended_later: list[HeldRange] = []
        for held in ranges:
            end = self._end_offsets.get((held.topic, held.partition), 0)
            covered += intersect([held], 0, end - 1)
            appended_later += intersect([held], end, held.last_offset)
        self._later_acquisition_count = 0 if covered else self._later_acquisition_count + 1
        return tuple(covered), tuple(appended_later)

    def begin(self, member: GroupMember) -> None:
        """Count empty responses from now on: earlier ones were to fetches that only carried acknowledgements."""
        super().is_reached(member, is_busy=True)

    def is_reached(self, member: GroupMember, is_busy: bool = False) -> bool:
        """Return True if the query should end now.

        Raises:
            RequestTimedOutError: no processor responded in time.
        """
        return self._later_acquisition_count > len(self._end_offsets) or super().is_reached(member, is_busy)


def _offsets(log: Log, topic: str) -> dict[int, PartitionOffsets]:
    try:
        return log.offsets(topic)
    except UnknownTopicError:
        return {}
