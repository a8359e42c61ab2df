"""What a consumer measures of itself: metric names as the Java client has them, and values of the last minute."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

_WINDOW_S = 30.0
"""`metrics.sample.window.ms`; with `metrics.num.samples`, 2, these are the Java client's defaults."""
_WINDOW_COUNT = 2


class MetricName(NamedTuple):
    """Name of a metric.

    Attributes:
        name: as in `fetch-total`.
        group: as in `consumer-share-fetch-manager-metrics`.
    """

    name: str
    group: str


@dataclass(slots=True)
class _Window:
    start_s: float
    count: int = 0
    sum: float = 0.0
    maximum: float = -math.inf


class RecentValues:
    """Adds up all values, and knows average, maximum and rate of those of the last two windows."""

    def __init__(self) -> None:
        self.total = 0.0
        """Sum of all values."""
        self._windows: deque[_Window] = deque(maxlen=_WINDOW_COUNT)

    def add(self, value: float, now_s: float) -> None:
        """Take in a value of now, seconds on a clock that does not go back."""
        self.total += value
        if not self._windows or now_s >= self._windows[-1].start_s + _WINDOW_S:
            self._windows.append(_Window(now_s))
        window = self._windows[-1]
        window.count += 1
        window.sum += value
        window.maximum = max(window.maximum, value)

    def average(self, now_s: float) -> float:
        """Average value; NaN without values, as in Kafka."""
        windows = self._recent(now_s)
        count = sum(window.count for window in windows)
        return sum(window.sum for window in windows) / count if count else math.nan

    def maximum(self, now_s: float) -> float:
        """Highest value; NaN without values, as in Kafka."""
        return max((window.maximum for window in self._recent(now_s)), default=math.nan)

    def rate(self, now_s: float) -> float:
        """Sum of the values, a second."""
        windows = self._recent(now_s)
        if not windows:
            return 0.0
        return sum(window.sum for window in windows) / max(now_s - windows[0].start_s, _WINDOW_S)

    def _recent(self, now_s: float) -> list[_Window]:
        return [window for window in self._windows if now_s < window.start_s + _WINDOW_COUNT * _WINDOW_S]
