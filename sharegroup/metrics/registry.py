"""The registry: the values of all metrics, with a bound on the number of series."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from sharegroup.metrics.catalogue import METRICS
from sharegroup.metrics.metric import SHARE_PARTITION, Metric
from sharegroup.metrics.recent_values import RecentValues, quantile

Value = TypeVar("Value")
Labels = tuple[str, ...]
"""Values of a metric's labels, in their order."""

SUMMARY_QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of a histogram of Kafka's."""


class Increment(NamedTuple):
    """An amount that a counter goes up by."""

    metric: Metric
    labels: Labels
    amount: int


class Gauge(NamedTuple):
    """A value that is known when somebody looks."""

    metric: Metric
    labels: Labels
    value: float


class Sample(NamedTuple):
    """One series of a metric and its value now.

    Attributes:
        suffix: what a summary appends to its name: "", `_count` or `_sum`.
        labels: label → value; those that the bound leaves out are not there.
        value: the value.
    """

    suffix: str
    labels: Mapping[str, str]
    value: float


class MetricsRegistry:
    """Counters, summaries and gauges; safe to use from many threads.

    A metric has at most `max_series` label sets. When there are more, labels are left out from the last to the first,
    and the values that fall together are added up: share-partitions become topics, topics groups, groups one number.

    Args:
        max_series: label sets of one metric.
        now_s: a clock for durations, in seconds.
    """

    def __init__(self, max_series: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._max_series = max_series
        self._now_s = now_s
        self._lock = threading.Lock()
        self._counters: defaultdict[Metric, defaultdict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._summaries: defaultdict[Metric, dict[Labels, RecentValues]] = defaultdict(dict)
        self._gauges: list[Callable[[], Iterable[Gauge]]] = []

    def recent_values(self) -> RecentValues:
        """A window of values by this registry's clock."""
        return RecentValues(self._now_s)

    def add(self, increments: Iterable[Increment]) -> None:
        """Let counters go up."""
        with self._lock:
            for metric, labels, amount in increments:
                self._counters[metric][labels] += amount

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Add a value to a summary."""
        with self._lock:
            summaries = self._summaries[metric]
            if labels not in summaries:
                summaries[labels] = self.recent_values()
            summaries[labels].add(value)

    def add_gauges(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        """Have values asked for whenever somebody looks; counters that are counted elsewhere may be among them."""
        self._gauges.append(gauges)

    def forget(self, gone: Labels) -> None:
        """Drop what was counted for a group that is gone (group), or a share-partition (group, topic, partition)."""
        with self._lock:
            for counted in (self._counters, self._summaries):
                for metric, series in counted.items():
                    if metric.labels[: len(gone)] == SHARE_PARTITION[: len(gone)]:
                        for labels in [labels for labels in series if labels[: len(gone)] == gone]:
                            del series[labels]

    def collect(self) -> list[tuple[Metric, list[Sample]]]:
        """All metrics that have a value, in the order of the catalogue, and their samples."""
        values: defaultdict[Metric, list[tuple[Labels, float]]] = defaultdict(list)
        for gauges in self._gauges:
            for metric, labels, value in gauges():
                values[metric].append((labels, value))
        summaries: dict[Metric, list[tuple[Labels, _Summary]]] = {}
        with self._lock:
            for metric, counters in self._counters.items():
                values[metric] += counters.items()
            for metric, series in self._summaries.items():
                summaries[metric] = [(labels, _Summary(v.kept(), v.count, v.sum)) for labels, v in series.items()]
        return [
            (metric, self._summary_samples(metric, summaries[metric]))
            if metric in summaries
            else (metric, self._samples(metric, values[metric]))
            for metric in METRICS
            if metric in summaries or metric in values
        ]

    def _samples(self, metric: Metric, series: Sequence[tuple[Labels, float]]) -> list[Sample]:
        merged = self._bounded(series, len(metric.labels))
        return [Sample("", _named(metric, labels), sum(values)) for labels, values in sorted(merged.items())]

    def _summary_samples(self, metric: Metric, series: Sequence[tuple[Labels, _Summary]]) -> list[Sample]:
        samples = []
        for labels, parts in sorted(self._bounded(series, len(metric.labels)).items()):
            named = _named(metric, labels)
            kept = sorted(value for part in parts for value in part.kept)
            samples += [
                Sample("", {**named, "quantile": str(share)}, quantile(kept, share)) for share in SUMMARY_QUANTILES
            ]
            samples.append(Sample("_count", named, sum(part.value_count for part in parts)))
            samples.append(Sample("_sum", named, sum(part.value_sum for part in parts)))
        return samples

    def _bounded(self, series: Sequence[tuple[Labels, Value]], label_count: int) -> dict[Labels, list[Value]]:
        """Values by as many labels as the bound allows."""
        while True:
            merged: defaultdict[Labels, list[Value]] = defaultdict(list)
            for labels, value in series:
                merged[labels[:label_count]].append(value)
            if len(merged) <= self._max_series or not label_count:
                return merged
            label_count -= 1


class _Summary(NamedTuple):
    """What a summary holds now: its last values, ascending, and the number and the sum of all."""

    kept: list[float]
    value_count: int
    value_sum: float


def _named(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=False))
