"""Values of the last minute, for the figures that Kafka gives as averages, maxima, rates and quantiles."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

WINDOW_S = 60.0
"""How far back averages, maxima, rates and quantiles of a time window look."""
_MOST_VALUES = 1_024
"""Values that are kept for quantiles: as many as a histogram of Kafka's has."""


class _Second:
    """The values of one second."""

    __slots__ = ("at_s", "count", "sum")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.count = 0
        self.sum = 0.0


class RecentValues:
    """Counts and adds all values, keeps the last of them, and the sums of each second of the window.

    Args:
        now_s: a clock for durations, in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._values: deque[tuple[float, float]] = deque(maxlen=_MOST_VALUES)
        # A busy processor has more values in the window than are kept.
        self._seconds: deque[_Second] = deque()
        self.count = 0
        """Values ever seen."""
        self.sum = 0.0
        """Their sum."""

    def add(self, value: float) -> None:
        """Take in a value of now."""
        now_s = self._now_s()
        self._values.append((now_s, value))
        if not self._seconds or now_s - self._seconds[-1].at_s >= 1:
            self._drop_old(now_s)
            self._seconds.append(_Second(now_s))
        self._seconds[-1].count += 1
        self._seconds[-1].sum += value
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
        self._drop_old(self._now_s())
        count = sum(second.count for second in self._seconds)
        return sum(second.sum for second in self._seconds) / count if count else math.nan

    def rate(self) -> float:
        """Sum of the last minute's values, a second."""
        self._drop_old(self._now_s())
        return sum(second.sum for second in self._seconds) / WINDOW_S

    def frequency(self) -> float:
        """Number of the last minute's values, a second."""
        self._drop_old(self._now_s())
        return sum(second.count for second in self._seconds) / WINDOW_S

    def _drop_old(self, now_s: float) -> None:
        while self._seconds and self._seconds[0].at_s < now_s - WINDOW_S:
            self._seconds.popleft()


def quantile(values: list[float], share: float) -> float:
    """The value that this share of ascending values does not exceed; NaN without values."""
    return values[min(math.ceil(share * len(values)), len(values)) - 1] if values else math.nan
