"""The sizes of polls and fetches, by the speed of the application. No I/O, no clock.

A poll returns as many records as the application processes in a short time, so that other members get the rest
(`client/work_size.py`).

A fetch takes as long as a commit, whatever its number of records. An application that has processed all records before
the next ones arrive spends its time waiting; so the next fetch requests more, until the application no longer waits, or
the held records would keep it busy for too long. A log that is slow, by a quota of the brokers for example, bounds each
fetch by what arrives long before its locks end.
"""

from __future__ import annotations

import sys

from sharegroup.client.settings import FetchSettings
from sharegroup.client.work_size import WorkSize

_POLL_MS = 20
"""Processing time of the records of one poll."""
_LONGEST_POLL_MS = 5_000
"""The same, of a poll whose records are cheaper together."""
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
_READING_PART = 4
"""A fetch requests what is read within this part of its locks' time: after half of it, waiting records go back."""


class Pace:
    """The size of the next poll and of the next fetch."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._least = settings.max_records
        self._most = max(settings.max_records, settings.max_ahead_records)
        self._fetch_records = self._least
        most = settings.max_poll_records
        least = min(self._least, most)
        self._polls = WorkSize(least, least, most, _POLL_MS, _LONGEST_POLL_MS)
        self._was_full = False
        self._delivered_count = 0
        self._delivered_ms: int | None = None
        self._interval_ms = 0.0
        self._record_ms: float | None = None
        """Processing time of a record."""
        self._lock_timeout_ms: int | None = None
        self._read_count = self._reading_ms = 0.0
        """Records that were read, and the time that it took; the latest reads count most."""

    @property
    def fetch_records(self) -> int:
        """The number of records for the next fetch."""
        size = max(self._least, self.poll_records, min(self._fetch_records, self._processed_within(_AHEAD_MS)))
        size = min(size, self._arriving_in_time)
        # A multiple of a poll, where the application has set its size.
        return size - size % self._least if size > self._least else size

    def resize(self, fetch_records: int) -> None:
        """Let all fetches from now on have the same size."""
        self._least = self._most = self._fetch_records = fetch_records

    @property
    def poll_records(self) -> int:
        """The maximum number of records for the next poll."""
        return self._polls.records

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
        self._polls.worked_off(self._delivered_count, worked_ms)

    def delivered(self, record_count: int, now_ms: int) -> None:
        """Record that a poll returns records."""
        self._delivered_count, self._delivered_ms = record_count, now_ms

    def acquired(self, record_count: int, asked_count: int, lock_timeout_ms: int) -> None:
        """Record that a fetch acquired records; if they are fewer than requested, there were no more."""
        self._was_full = record_count >= asked_count > 0
        self._lock_timeout_ms = lock_timeout_ms

    def read(self, record_count: int, took_ms: float) -> None:
        """Record that reading records from the log took so long."""
        self._read_count += record_count - _NEWEST_WEIGHT * self._read_count
        self._reading_ms += took_ms - _NEWEST_WEIGHT * self._reading_ms

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

    @property
    def _arriving_in_time(self) -> int:
        """Return the number of records that are read long before the locks of their fetch end; at least 1."""
        if self._lock_timeout_ms is None or not self._reading_ms:
            return sys.maxsize
        return max(int(self._lock_timeout_ms / _READING_PART * self._read_count / self._reading_ms), 1)

    def _processed_within(self, time_ms: float) -> int:
        return self._most if self._record_ms is None else int(time_ms / self._record_ms)
