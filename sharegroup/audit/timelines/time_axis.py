"""The time axis of a picture: a bounded number of bins of one width."""

from __future__ import annotations

from dataclasses import dataclass

MAX_TIME_BINS = 240
"""A bin is about five pixels wide on a screen, and a report of a long history stays small."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Bins from one time to another.

    Attributes:
        since_ms: the first time; epoch ms.
        until_ms: the last time, inclusive; epoch ms.
    """

    since_ms: int
    until_ms: int
    max_bins: int = MAX_TIME_BINS

    @property
    def bin_ms(self) -> int:
        """Width of a bin; ms."""
        return max(self.until_ms - self.since_ms, 0) // self.max_bins + 1

    @property
    def bin_count(self) -> int:
        """Number of bins."""
        return max(self.until_ms - self.since_ms, 0) // self.bin_ms + 1

    def bin_of(self, time_ms: int) -> int:
        """Return the bin of a time; a time before the axis is in the first bin, one after it in the last."""
        return (min(max(time_ms, self.since_ms), self.until_ms) - self.since_ms) // self.bin_ms

    def contains(self, time_ms: int) -> bool:
        """Return True if a time is within the axis."""
        return self.since_ms <= time_ms <= self.until_ms

    def start_ms(self, index: int) -> int:
        """Return the first time of a bin; epoch ms."""
        return self.since_ms + index * self.bin_ms
