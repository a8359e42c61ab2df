"""Values of the last minute, for the figures that Kafka gives as averages, maxima, rates and quantiles."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

WINDOW_S = 60.0
"""How far back averages, maxima, rates and quantiles of a time window look."""
_MOST_VALUES = 1_024
"""Values that are kept: as many as a histogram of Kafka's has."""


class RecentValues:
    """Counts and adds all values, and keeps the last of them.

    Args:
        now_s: a clock for durations, in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._values: deque[tuple[float, float]] = deque(maxlen=_MOST_VALUES)
        self.count = 0
        """Values ever seen."""
        self.sum = 0.0
        """Their sum."""

    def add(self, value: float) -> None:
        """Take in a value of now."""
        self._values.append((self._now_s(), value))
        self.count += 1
        self.sum += value

    def kept(self) -> list[float]:
        """The last values, whenever they were seen, in ascending order."""
        return sorted(value for _, value in self._values)

    def of_window(self) -> list[float]:
        """Those of the last minute, in ascending order."""
        since_s = self._now_s() - WINDOW_S
        return sorted(value for at_s, value in self._values if at_s >= since_s)

    def average(self) -> float:
        """Average of the last minute; NaN when it had no value, as in Kafka."""
        values = self.of_window()
        return sum(values) / len(values) if values else math.nan

    def rate(self) -> float:
        """Sum of the last minute's values, a second."""
        return sum(self.of_window()) / WINDOW_S


def quantile(values: list[float], share: float) -> float:
    """The value that this share of ascending values does not exceed; NaN without values."""
    return values[min(math.ceil(share * len(values)), len(values)) - 1] if values else math.nan
