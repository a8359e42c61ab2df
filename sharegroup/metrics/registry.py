"""The registry: the values of all metrics, with a bound on the number of series.

`prometheus_client` counts and renders. It has no quantiles, averages or rates of the last minute, as Kafka's metrics
have: `RecentValues` has them.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from prometheus_client import Counter
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from sharegroup.metrics.catalogue import METRICS, SHARE_PARTITION, Metric

Value = TypeVar("Value")
Labels = tuple[str, ...]
"""Values of a metric's labels, in their order."""

WINDOW_S = 60.0
"""The time window of averages, maxima, rates and quantiles."""
_MOST_VALUES = 1_024
"""Values that are kept for quantiles, as in a histogram of Kafka's."""

SUMMARY_QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""The quantiles of a histogram of Kafka's."""


class Increment(NamedTuple):
    """An amount that a counter goes up by."""

    metric: Metric
    labels: Labels
    amount: int


class Gauge(NamedTuple):
    """A value that is read when the metrics are collected."""

    metric: Metric
    labels: Labels
    value: float


class MetricsRegistry(Collector):
    """Counters, summaries and gauges, as a collector of prometheus_client; safe to use from many threads.

    A metric has at most `max_series` label sets. When there are more, labels are left out from the last to the first,
    and the values that fall together are added up: share-partitions become topics, topics groups, groups one number. Of
    a metric that has a total, the total is left.

    Args:
        max_series: label sets of one metric.
        now_s: a clock for durations, in seconds.
        domain: value of a label `domain` of all metrics; "" is no such label.
    """

    def __init__(self, max_series: int, now_s: Callable[[], float] = time.monotonic, domain: str = "") -> None:
        self._max_series = max_series
        self._common = {"domain": domain} if domain else {}
        self._now_s = now_s
        self._lock = threading.Lock()
        self._counters: dict[Metric, Counter] = {}
        self._summaries: defaultdict[Metric, dict[Labels, RecentValues]] = defaultdict(dict)
        self._gauges: list[Callable[[], Iterable[Gauge]]] = []

    def recent_values(self) -> RecentValues:
        """Return a window of values by this registry's clock."""
        return RecentValues(self._now_s)

    def add(self, increments: Iterable[Increment]) -> None:
        """Increase counters."""
        with self._lock:
            for metric, labels, amount in increments:
                if metric not in self._counters:
                    self._counters[metric] = Counter(metric.name, metric.meaning, metric.labels, registry=None)
                counter = self._counters[metric]
                (counter.labels(*labels) if labels else counter).inc(amount)

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Add a value to a summary."""
        with self._lock:
            summaries = self._summaries[metric]
            if labels not in summaries:
                summaries[labels] = self.recent_values()
            summaries[labels].add(value)

    def add_gauges(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        """Add a function that returns values at each collection, those of counters kept elsewhere included."""
        self._gauges.append(gauges)

    def forget(self, gone: Labels) -> None:
        """Drop the counts of a group (group), or of a share-partition (group, topic, partition)."""
        with self._lock:
            for metric, counter in self._counters.items():
                if _is_of(metric, gone):
                    for labels, _ in _counts(metric, counter):
                        if labels[: len(gone)] == gone:
                            counter.remove(*labels)
            for metric, series in self._summaries.items():
                if _is_of(metric, gone):
                    for labels in [labels for labels in series if labels[: len(gone)] == gone]:
                        del series[labels]

    def collect(self) -> Iterator[Family]:
        """Yield all metrics that have a value, in the order of the catalogue."""
        for _, family in self.families():
            yield family

    def families(self) -> list[tuple[Metric, Family]]:
        """Return all metrics that have a value, in the order of the catalogue, each with its samples."""
        values: defaultdict[Metric, list[tuple[Labels, float]]] = defaultdict(list)
        summaries: dict[Metric, list[tuple[Labels, _Summary]]] = {}
        for gauges in self._gauges:
            for metric, labels, value in gauges():
                values[metric].append((labels, value))
        with self._lock:
            for metric, counter in self._counters.items():
                values[metric] += _counts(metric, counter)
            for metric, series in self._summaries.items():
                summaries[metric] = [(labels, _Summary(v.kept(), v.count, v.sum)) for labels, v in series.items()]
        families = []
        for metric in METRICS:
            if metric in summaries:
                families.append((metric, self._summary(metric, summaries[metric])))
            elif metric in values:
                families.append((metric, self._family(metric, values[metric])))
        return families

    def _family(self, metric: Metric, series: Sequence[tuple[Labels, float]]) -> Family:
        family = _empty_family(metric)
        if metric.has_total and len(series) > self._max_series:
            series = [(labels, value) for labels, value in series if labels == metric.total]
        for labels, values in sorted(self._bounded(series, len(metric.labels)).items()):
            family.add_sample(metric.name, self._named(metric, labels), sum(values))
        return family

    def _summary(self, metric: Metric, series: Sequence[tuple[Labels, _Summary]]) -> Family:
        family = _empty_family(metric)
        for labels, parts in sorted(self._bounded(series, len(metric.labels)).items()):
            named = self._named(metric, labels)
            kept = sorted(value for part in parts for value in part.kept)
            for share in SUMMARY_QUANTILES:
                family.add_sample(metric.name, {**named, "quantile": str(share)}, quantile(kept, share))
            family.add_sample(f"{metric.name}_count", named, sum(part.value_count for part in parts))
            family.add_sample(f"{metric.name}_sum", named, sum(part.value_sum for part in parts))
        return family

    def _named(self, metric: Metric, labels: Labels) -> dict[str, str]:
        if metric.has_total and labels == metric.total:
            return dict(self._common)
        return {**self._common, **dict(zip(metric.labels, labels, strict=False))}

    def _bounded(self, series: Sequence[tuple[Labels, Value]], label_count: int) -> dict[Labels, list[Value]]:
        """Group values by as many labels as the bound allows."""
        while True:
            merged: defaultdict[Labels, list[Value]] = defaultdict(list)
            for labels, value in series:
                merged[labels[:label_count]].append(value)
            if len(merged) <= self._max_series or not label_count:
                return merged
            label_count -= 1


class _Summary(NamedTuple):
    """The last values of a summary, ascending, and the number and the sum of all."""

    kept: list[float]
    value_count: int
    value_sum: float


def _is_of(metric: Metric, gone: Labels) -> bool:
    """Return True if the first labels of a metric name a group or share-partition like this one."""
    return metric.labels[: len(gone)] == SHARE_PARTITION[: len(gone)]


def _counts(metric: Metric, counter: Counter) -> list[tuple[Labels, float]]:
    return [
        (tuple(sample.labels[label] for label in metric.labels), sample.value)
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    ]


def _empty_family(metric: Metric) -> Family:
    help_text = f"{metric.meaning} Kafka: {metric.kafka_name}" if metric.kafka_name else metric.meaning
    return Family(metric.name.removesuffix("_total"), help_text, metric.kind.value)


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
        """Add a value of now."""
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
        """Return the last values, however old, in ascending order."""
        return sorted(value for _, value in self._values)

    def of_window(self) -> list[float]:
        """Return the values of the last minute, in ascending order."""
        since_s = self._now_s() - WINDOW_S
        return sorted(value for at_s, value in self._values if at_s >= since_s)

    def average(self) -> float:
        """Return the average of the last minute; NaN when it had no value, as in Kafka."""
        self._drop_old(self._now_s())
        count = sum(second.count for second in self._seconds)
        return sum(second.sum for second in self._seconds) / count if count else math.nan

    def rate(self) -> float:
        """Return the sum of the last minute's values, a second."""
        self._drop_old(self._now_s())
        return sum(second.sum for second in self._seconds) / WINDOW_S

    def frequency(self) -> float:
        """Return the number of the last minute's values, a second."""
        self._drop_old(self._now_s())
        return sum(second.count for second in self._seconds) / WINDOW_S

    def _drop_old(self, now_s: float) -> None:
        while self._seconds and self._seconds[0].at_s < now_s - WINDOW_S:
            self._seconds.popleft()


def quantile(values: list[float], share: float) -> float:
    """Return the value that this share of ascending values does not exceed; NaN without values."""
    return values[min(math.ceil(share * len(values)), len(values)) - 1] if values else math.nan
