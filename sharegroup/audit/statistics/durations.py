"""Durations of records, summed up in constant memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

_EXACT_BITS = 6


@dataclass(frozen=True, slots=True)
class DurationSummary:
    """Durations of records.

    Attributes:
        record_count: records; one counts each time.
        mean_ms: their mean; None without any.
        p50_ms: half of them are not longer; up to 4 percent too high.
        p99_ms: 99 percent of them are not longer; up to 4 percent too high.
    """

    record_count: int
    mean_ms: int | None
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class Durations:
    """A distribution of durations: those from 64 ms on are counted by their leading six bits."""

    def __init__(self) -> None:
        self._record_counts: Counter[int] = Counter()
        self._total_ms = self._max_ms = 0

    def add(self, duration_ms: int, record_count: int) -> None:
        """Add the duration of some records."""
        # Request partitions have clocks of their own, but a share-partition's times come from one.
        duration_ms = max(duration_ms, 0)
        rest_bits = max(duration_ms.bit_length() - _EXACT_BITS, 0)
        self._record_counts[duration_ms | ((1 << rest_bits) - 1)] += record_count
        self._total_ms += duration_ms * record_count
        self._max_ms = max(self._max_ms, duration_ms)

    def merge(self, other: Durations) -> None:
        """Add all durations of another distribution."""
        self._record_counts.update(other._record_counts)
        self._total_ms += other._total_ms
        self._max_ms = max(self._max_ms, other._max_ms)

    def summary(self) -> DurationSummary:
        """Return the summary of all durations."""
        record_count = self._record_counts.total()
        if not record_count:
            return DurationSummary(0, None, None, None, None)
        mean_ms = round(self._total_ms / record_count)
        return DurationSummary(record_count, mean_ms, self._percentile(50), self._percentile(99), self._max_ms)

    def _percentile(self, percent: int) -> int:
        rest = -(-self._record_counts.total() * percent // 100)
        for duration_ms, record_count in sorted(self._record_counts.items()):
            rest -= record_count
            if rest <= 0:
                return min(duration_ms, self._max_ms)
        return self._max_ms
