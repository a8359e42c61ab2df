"""The sizes of polls and fetches, by the speed of the application. No I/O, no clock.

A poll returns as many records as the application processes in a short time, so that other members get the rest. It
starts small and grows with the measured speed. Where a larger poll takes little more time than a smaller one, since the
application writes its records together, polls grow, too: a larger one is tried from time to time.

A fetch takes as long as a commit, whatever its number of records. An application that has processed all records before
the next ones arrive spends its time waiting; so the next fetch requests more, until the application no longer waits, or
the held records would keep it busy for too long.
"""

from __future__ import annotations

from sharegroup.client.settings import FetchSettings

_POLL_MS = 20
"""Processing time of the records of one poll."""
_WORTHWHILE = 0.75
"""A larger poll is kept if a record takes at most this part of its time in the smaller one."""
_POLLS_BETWEEN_TRIALS = 32
_AHEAD_MS = 150
"""Longest processing time of records that are fetched ahead."""
_MOMENT_MS = 10
"""Fetches grow fast as long as their records are processed within this time."""
_FAST_GROWTH = 8
_GROWTH = 2
_SHORTEST_MS = 0.5
"""A time that the clock shows as 0 ms."""
_USUAL_INTERVALS = 3
_LEAST_IDLE_MS = 1_000
"""Waiting records are returned when no poll comes for three usual intervals, but not before this time."""
_NEWEST_WEIGHT = 0.25


class Pace:
    """The size of the next poll and of the next fetch."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._least = settings.max_records
        self._most = max(settings.max_records, settings.max_ahead_records)
        self._fetch_records = self._least
        self._poll_records = min(self._least, settings.max_poll_records)
        self._kept = (self._poll_records, 0.0)
        """Size of polls after the last trial, and the processing time of a record."""
        self._polls_until_trial = 0
        self._was_full = False
        self._delivered_count = 0
        self._delivered_ms: int | None = None
        self._interval_ms = 0.0
        self._record_ms: float | None = None
        """Processing time of a record."""

    @property
    def fetch_records(self) -> int:
        """The number of records for the next fetch."""
        size = max(self._least, self._poll_records, min(self._fetch_records, self._processed_within(_AHEAD_MS)))
        # A multiple of a poll, where the application has set its size.
        return size - size % self._least

    @property
    def poll_records(self) -> int:
        """The maximum number of records for the next poll."""
        return self._poll_records

    @property
    def patience_ms(self) -> int:
        """The time after which waiting records are returned if no poll comes."""
        return max(_LEAST_IDLE_MS, int(_USUAL_INTERVALS * self._interval_ms))

    def polled(self, now_ms: int) -> None:
        """Record that the application polls: it has processed the records of the last poll."""
        if self._delivered_ms is None:
            return
        worked_ms = max(now_ms - self._delivered_ms, _SHORTEST_MS)
        self._delivered_ms = None
        weight = _NEWEST_WEIGHT if self._interval_ms else 1.0
        self._interval_ms += weight * (worked_ms - self._interval_ms)
        self._record_ms = worked_ms / self._delivered_count
        size = self._processed_within(_POLL_MS)
        if size > self._delivered_count:
            size = min(size, max(_FAST_GROWTH * self._delivered_count, self._poll_records))
        else:
            size = self._tried(self._delivered_count, self._record_ms)
        most = self._settings.max_poll_records
        self._poll_records = max(min(self._least, most), min(size, most))

    def delivered(self, record_count: int, now_ms: int) -> None:
        """Record that a poll returns records."""
        self._delivered_count, self._delivered_ms = record_count, now_ms

    def acquired(self, record_count: int, asked_count: int) -> None:
        """Record that a fetch acquired records; if they are fewer than requested, there were no more."""
        self._was_full = record_count >= asked_count > 0

    def ran_out(self) -> None:
        """Grow the fetches if there were more records: the application polls, and none wait."""
        if self._was_full:
            self._was_full = False
            size = self.fetch_records
            growth = _FAST_GROWTH if size * (self._record_ms or 0.0) <= _MOMENT_MS else _GROWTH
            self._fetch_records = min(growth * size, self._most)

    def went_stale(self) -> None:
        """Shrink the fetches: the application was too slow for the fetched records."""
        self._was_full = False
        self._fetch_records = self._least

    def is_due(self, waiting_count: int) -> bool:
        """Return True if the next fetch should be sent early: the waiting records would not last until its response.

        Records that were acquired up to the group's limit must be acknowledged before there are more.
        """
        size = self.fetch_records
        return self._was_full and size > self._least and waiting_count <= size // 2

    def _tried(self, count: int, record_ms: float) -> int:
        """Return the size of the next poll, after one that took long: the same, or another one for a trial."""
        if count < self._poll_records:
            return self._poll_records
        kept_count, kept_ms = self._kept
        if count > kept_count and record_ms >= _WORTHWHILE * kept_ms:
            self._polls_until_trial = _POLLS_BETWEEN_TRIALS
            return kept_count
        self._kept = count, record_ms
        if self._polls_until_trial > 1:
            self._polls_until_trial -= 1
            return count
        if self._polls_until_trial == 1 and count > 1:
            # A smaller poll may do as well by now; the larger one is tried after it.
            self._polls_until_trial = 0
            return count // 2
        self._polls_until_trial = 0
        return _GROWTH * count

    def _processed_within(self, time_ms: float) -> int:
        return self._most if self._record_ms is None else int(time_ms / self._record_ms)
