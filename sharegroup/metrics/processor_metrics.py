"""Latencies of the processor: how long messages wait, and how long commits and their processing take."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharegroup.metrics.catalogue import (
    BATCH_FLUSH_RATE,
    BATCH_FLUSH_TIME,
    EVENT_PROCESSING_TIME,
    EVENT_QUEUE_TIME,
    LATENCIES,
    LATENCY_METRICS,
    PARTITION_LOAD_TIME,
    PARTITION_LOAD_TIME_AVG,
    PARTITION_LOAD_TIME_MAX,
    QUANTILES,
    SHARE_GROUP_REBALANCE_RATE,
    THREAD_IDLE_RATIO_AVG,
    WRITE_LATENCY_AVG,
    WRITE_LATENCY_MAX,
    WRITE_RATE,
)
from sharegroup.metrics.recent_values import quantile
from sharegroup.metrics.registry import Gauge, MetricsRegistry
from sharegroup.metrics.row_increments import WRITES, group_epoch_count
from sharegroup.protocol.rows import StateRow


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """Durations of a published commit.

    Attributes:
        waited_ms: for each group and cut, how long its oldest message had waited for the cut.
        commit_ms: the commit to the state table; None when nothing durable happened.
        processing_ms: from the first message taken to everything published.
    """

    waited_ms: Sequence[float]
    commit_ms: float | None
    processing_ms: float


class ProcessorMetrics:
    """Latencies and rates of one processor.

    Args:
        registry: where they are kept.
        load_ms: how long it took to load all share-partitions.
    """

    def __init__(self, registry: MetricsRegistry, load_ms: float) -> None:
        self._registry = registry
        self._load_ms = load_ms
        self._latencies = {name: registry.recent_values() for name in LATENCIES}
        self._writes = registry.recent_values()
        self._rebalances = registry.recent_values()
        self._lock = threading.Lock()
        registry.observe(PARTITION_LOAD_TIME, (), load_ms)
        registry.add_gauges(self._gauges)

    def published(self, rows: Iterable[StateRow], times: CommitTimes) -> None:
        """Update from the rows and durations of a published commit."""
        rows = list(rows)
        with self._lock:
            for waited_ms in times.waited_ms:
                self._latencies[EVENT_QUEUE_TIME].add(waited_ms)
            if times.commit_ms is not None:
                self._latencies[BATCH_FLUSH_TIME].add(times.commit_ms)
            self._latencies[EVENT_PROCESSING_TIME].add(times.processing_ms)
            self._writes.add(sum(row.record_type in WRITES for row in rows))
            self._rebalances.add(sum(map(group_epoch_count, rows)))

    def _gauges(self) -> list[Gauge]:
        with self._lock:
            commits = self._latencies[BATCH_FLUSH_TIME]
            busy_share = self._latencies[EVENT_PROCESSING_TIME].rate() / 1000
            figures = [
                Gauge(LATENCY_METRICS[name, suffix], (), quantile(values, share))
                for name, recent in self._latencies.items()
                for values in [recent.of_window()]
                for suffix, share in QUANTILES.items()
            ]
            return [
                *figures,
                Gauge(WRITE_LATENCY_AVG, (), commits.average()),
                Gauge(WRITE_LATENCY_MAX, (), quantile(commits.of_window(), 1.0)),
                Gauge(BATCH_FLUSH_RATE, (), commits.frequency()),
                Gauge(WRITE_RATE, (), self._writes.rate()),
                Gauge(SHARE_GROUP_REBALANCE_RATE, (), self._rebalances.rate()),
                Gauge(THREAD_IDLE_RATIO_AVG, (), max(0.0, 1.0 - busy_share)),
                Gauge(PARTITION_LOAD_TIME_AVG, (), self._load_ms),
                Gauge(PARTITION_LOAD_TIME_MAX, (), self._load_ms),
            ]
