"""How many records an application gets at once: what it works off in a certain time. No I/O, no clock.

The size starts small and grows with the measured speed. Where more records take little more time than fewer, since the
application writes its records together or starts a job for them, a larger size is tried from time to time, and kept if
it makes a record cheaper. A size whose records take too long shrinks at once, to half at first where they may have been
held up, else and then by the time that they took. If fewer records take nearly as long, the time is not theirs, but
that of a job on a busy machine, for example: then the size is what it was, and grows. If they take far less than their
part, it was a delay that has passed, such as a checkpoint of the application's table: then, too, it is what it was.
"""

from __future__ import annotations

_WORTHWHILE = 0.75
"""A larger size is kept if a record takes at most this part of its time in the smaller one."""
_SIZES_BETWEEN_TRIALS = 32
_FAST_GROWTH = 8
_GROWTH = 2
_SAME_TIME = 1.25
"""A larger size that takes at most so much longer may grow fast."""
_PASSED_DELAY = 0.5
"""A delay was not the records' if they take at most this part of their time once the size has shrunk."""
_FAR_LONGER = 8
"""A piece that takes at most so many times the acceptable time may have been held up: the next one tells."""
_SHORTEST_MS = 0.5
"""A time that the clock shows as 0 ms."""


class WorkSize:
    """The number of records for the next piece of work; several may be in work at once.

    Args:
        first: where it starts.
        least: its lower bound.
        most: its upper bound; `first` and `least` are within it.
        usual_ms: time in which the records are worked off.
        longest_ms: time up to which larger sizes are tried. A longer one shrinks the size.
    """

    def __init__(self, first: int, least: int, most: int, usual_ms: int, longest_ms: int) -> None:
        self._least, self._most = least, most
        self._usual_ms, self._longest_ms = usual_ms, longest_ms
        self._records = first
        self._acceptable_ms: float = longest_ms
        """As `longest_ms`, longer only while fewer records take as long."""
        self._has_shrunk = False
        self._shrunk_from = (0, 0.0)
        """Size before it shrank, and the time of a record that was the reason."""
        self._is_growing = False
        self._kept = (first, 0.0)
        """Size after the last trial, and the time of a record."""
        self._sizes_until_trial = 0

    @property
    def records(self) -> int:
        """The number of records for the next piece of work."""
        return self._records

    @property
    def is_growing(self) -> bool:
        """True if the last piece of work showed that far more records take the usual time."""
        return self._is_growing

    def worked_off(self, record_count: int, worked_ms: float) -> None:
        """Take into account that so many records, at least one, took so long; the size may have changed since."""
        worked_ms = max(worked_ms, _SHORTEST_MS)
        usual_count = int(record_count * self._usual_ms / worked_ms)
        self._is_growing = False
        if self._has_shrunk and self._is_as_long(record_count, worked_ms):
            size = self._restored(record_count, worked_ms)
        elif worked_ms > self._acceptable_ms:
            size = self._shrunk(record_count, worked_ms, usual_count)
        elif usual_count > record_count:
            self._acceptable_ms = max(self._acceptable_ms / _GROWTH, self._longest_ms)
            size = self._grown(record_count, worked_ms, usual_count)
        else:
            self._has_shrunk, self._shrunk_from = False, (0, 0.0)
            size = self._tried(record_count, worked_ms, usual_count)
        self._records = max(self._least, min(size, self._most))

    def _is_as_long(self, count: int, worked_ms: float) -> bool:
        """Return True if a piece takes nearly as long as one of more records took before the size shrank."""
        before, record_ms = self._shrunk_from
        return _GROWTH * count <= before and 2 * worked_ms > record_ms * (before + count)

    def _restored(self, count: int, worked_ms: float) -> int:
        """Return the size from before it shrank: that has not helped, so the time is not the records'."""
        before, record_ms = self._shrunk_from
        self._acceptable_ms = _GROWTH * max(worked_ms, record_ms * before)
        self._has_shrunk, self._shrunk_from = False, (0, 0.0)
        self._kept, self._sizes_until_trial = (count, worked_ms / count), 0
        return before

    def _grown(self, count: int, worked_ms: float, usual_count: int) -> int:
        """Return a size that should take the usual time; after a time that was not the records', the one before it."""
        self._has_shrunk = False
        before, record_ms = self._shrunk_from
        if before and _GROWTH * count >= self._records:
            self._shrunk_from = 0, 0.0
            if worked_ms <= _PASSED_DELAY * record_ms * count:
                return max(self._records, before)
        # A few records at the end of a queue say little about many.
        size = max(self._records, min(usual_count, _FAST_GROWTH * count))
        self._is_growing = min(size, self._most) >= _GROWTH * self._records
        return size

    def _shrunk(self, count: int, worked_ms: float, usual_count: int) -> int:
        """Return a size that should take the usual time: half at first, where the piece may have been held up.

        Where nothing larger has been seen that took longer, it is a larger size: the time may not be the records'.
        """
        is_first = not self._has_shrunk or count > self._records
        self._kept = count, worked_ms / count
        if not is_first and self._shrunk_from[0] < _GROWTH * count:
            self._has_shrunk, self._shrunk_from = False, (0, 0.0)
            self._sizes_until_trial = 0
            self._acceptable_ms = _GROWTH * worked_ms
            return _GROWTH * count
        before = max(self._shrunk_from[0], self._records) if is_first else count
        self._has_shrunk, self._shrunk_from = True, (before, worked_ms / count)
        may_be_held_up = is_first and worked_ms <= _FAR_LONGER * self._acceptable_ms
        return max(usual_count, count // 2) if may_be_held_up else usual_count

    def _tried(self, count: int, worked_ms: float, usual_count: int) -> int:
        """Return the next size after one that took its time: the same, or another one for a trial."""
        record_ms = worked_ms / count
        kept_count, kept_ms = self._kept
        kept_total_ms = kept_count * kept_ms
        if count < self._records:
            most = self._records if worked_ms <= _SAME_TIME * kept_total_ms else _FAST_GROWTH * count
            return min(self._records, most)
        if not kept_ms:
            self._kept = count, record_ms
            self._shrunk_from = count, record_ms
            return usual_count
        if count > kept_count and record_ms >= _WORTHWHILE * kept_ms:
            self._sizes_until_trial = self._sizes_between_trials
            return kept_count
        if count < kept_count and kept_ms < _WORTHWHILE * record_ms:
            self._sizes_until_trial = 0
            more_ms = max(kept_total_ms - worked_ms, 0) / (kept_count - count)
            return min(kept_count, self._larger(count, worked_ms, kept_count, more_ms))
        self._kept = count, record_ms
        if count < kept_count:
            self._sizes_until_trial = self._sizes_between_trials
            return count
        if count > kept_count:
            growth = _FAST_GROWTH if worked_ms <= _SAME_TIME * kept_total_ms else _GROWTH
            more_ms = max(worked_ms - kept_total_ms, 0) / (count - kept_count)
            return self._larger(count, worked_ms, growth, more_ms)
        if self._sizes_until_trial > 1:
            self._sizes_until_trial -= 1
            return count
        if self._sizes_until_trial == 1 and count > 1:
            # Fewer records may do as well by now.
            self._sizes_until_trial = 0
            return max(usual_count, count // 2)
        self._sizes_until_trial = 0
        return self._larger(count, worked_ms, _GROWTH, record_ms)

    @property
    def _sizes_between_trials(self) -> int:
        """Return how many pieces keep their size after a trial; few where fewer records take as long."""
        return _SIZES_BETWEEN_TRIALS if self._acceptable_ms <= self._longest_ms else _GROWTH

    def _larger(self, count: int, worked_ms: float, growth: int, more_ms: float) -> int:
        """Return a larger size that takes an acceptable time, if another record takes `more_ms`."""
        spare_ms = self._acceptable_ms - worked_ms
        return growth * count if spare_ms >= more_ms * (growth - 1) * count else count + int(spare_ms / more_ms)
