"""How many records a Spark job gets at once: what the last jobs worked off in some seconds, within a bound of bytes.

A range needs some hundred thousand records to be worth a Spark job, if its records are small and quickly done; of slow
ones a worker would hoard them, and do all of them again after a crash. So nobody has to know the number.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable

from sharegroup.client.held_records import HeldRange
from sharegroup.client.work_size import WorkSize
from sharegroup.config.model import Config
from sharegroup.errors import ShareGroupError
from sharegroup.logs.port import Log

_FIRST_RECORDS = 100
_USUAL_MS = 2_000
"""Time in which a range's number of records is worked off, by all ranges in flight together."""
_LONGEST_USUAL_MS = 4_000
"""Time of one range, of those in flight, that is usual; it must not reach the next one by chance."""
_LONGEST_MS = 5_000
"""Time of one range above which it shrinks."""
_MAX_BYTES = 256 * 1024 * 1024
"""Keys, values and headers of a range, by the mean size of the records seen last; where its size is not set."""
_SAMPLE_RECORDS = 100
_SAMPLE_BYTES = 1024 * 1024


class RangeSize:
    """The number of records of the next range; any thread may use it.

    Args:
        config: of a worker or a source: `max.poll.records` bounds the number, and is where it starts if it is set.
        in_flight: ranges that are worked off at once: each takes so many times as long as its part of the time.
    """

    def __init__(self, config: Config, in_flight: int = 1) -> None:
        most = int(config.value("max.poll.records"))
        self._is_set = "max_poll_records" in config.model_fields_set
        first = most if self._is_set else min(_FIRST_RECORDS, most)
        self._lock = threading.Lock()
        usual_ms = min(in_flight * _USUAL_MS, _LONGEST_USUAL_MS)
        self._work = WorkSize(first, 1, most, usual_ms, _LONGEST_MS)
        self._record_bytes = 0.0
        self._latest_began_ms = -math.inf
        """Of the ranges that were taken into account."""
        self._is_settled = self._is_set

    @property
    def is_known(self) -> bool:
        """True if ranges may be acquired in advance: their size does not wait for the time of earlier ones."""
        return self._is_set

    @property
    def is_settled(self) -> bool:
        """False while each range may show that the next ones should have far more records."""
        with self._lock:
            return self._is_settled

    @property
    def records(self) -> int:
        """The number of records of the next range."""
        with self._lock:
            if self._is_set or not self._record_bytes:
                return self._work.records
            return max(min(self._work.records, int(_MAX_BYTES / self._record_bytes)), 1)

    def worked_off(self, record_count: int, began_ms: float, ended_ms: float) -> None:
        """Take into account how long a range of so many records took, unless one that began later has ended before it.

        The later one says more: what held up the other, such as a checkpoint of the table that it wrote to, did not
        hold up all of them.
        """
        with self._lock:
            if record_count and began_ms >= self._latest_began_ms:
                self._latest_began_ms = began_ms
                self._work.worked_off(record_count, ended_ms - began_ms)
                self._is_settled = self._is_set or not self._work.is_growing

    def weigh(self, log: Log, ranges: Iterable[HeldRange]) -> None:
        """Read the first records of the largest range, and take their size into account; ranges may be empty.

        A log that cannot be read says nothing: the reader of the range has the error.
        """
        largest = max(ranges, key=lambda held: held.record_count, default=None)
        if largest is None or self._is_set:
            return
        end = min(largest.last_offset + 1, largest.first_offset + _SAMPLE_RECORDS)
        try:
            records = log.read(
                largest.topic,
                largest.partition,
                largest.first_offset,
                end,
                max_bytes=_SAMPLE_BYTES,
                isolation_level=largest.isolation_level,
            )
        except ShareGroupError:
            return
        if records:
            with self._lock:
                self._record_bytes = sum(record.size_bytes for record in records) / len(records)
