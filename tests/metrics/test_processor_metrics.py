"""Latencies and rates, on a clock of the test's own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.metrics import catalogue
from sharegroup.metrics.catalogue import Metric
from sharegroup.metrics.group_metrics import request_backlog
from sharegroup.metrics.processor_metrics import ProcessorMetrics
from sharegroup.metrics.registry import MetricsRegistry
from sharegroup.protocol.rows import RecordType, StateRow
from tests.metrics.values import values

WRITE = StateRow(record_type=RecordType.SHARE_UPDATE, group_id="g", topic="orders", partition=0)


def test_latencies_and_rates_are_those_of_the_last_minute() -> None:
    clock = [0.0]
    registry = MetricsRegistry(max_series=10, now_s=lambda: clock[0])
    metrics = ProcessorMetrics(registry, load_ms=250)

    def value(metric: Metric) -> float:
        return values(registry, metric)[()]

    assert math.isnan(value(catalogue.WRITE_LATENCY_AVG))
    assert value(catalogue.THREAD_IDLE_RATIO_AVG) == 1
    metrics.published([WRITE], [5_000], commit_ms=900, processing_ms=9_000)
    clock[0] = 61.0
    for commit_ms in (10, 30):
        metrics.published([WRITE] * 30, [100, 200], commit_ms, processing_ms=2_500)
    metrics.published([], [], commit_ms=None, processing_ms=1_000)
    expected = {
        catalogue.WRITE_LATENCY_AVG: 20,
        catalogue.WRITE_LATENCY_MAX: 30,
        catalogue.WRITE_RATE: 1,
        catalogue.BATCH_FLUSH_RATE: 2 / 60,
        catalogue.THREAD_IDLE_RATIO_AVG: 0.9,
        catalogue.PARTITION_LOAD_TIME_MAX: 250,
        catalogue.LATENCY_METRICS[catalogue.EVENT_QUEUE_TIME, "p50"]: 100,
        catalogue.LATENCY_METRICS[catalogue.EVENT_QUEUE_TIME, "max"]: 200,
        catalogue.LATENCY_METRICS[catalogue.EVENT_PROCESSING_TIME, "p99"]: 2_500,
        catalogue.LATENCY_METRICS[catalogue.BATCH_FLUSH_TIME, "p999"]: 30,
    }
    assert {metric: value(metric) for metric in expected} == expected


def test_rates_count_more_commits_than_are_kept_for_quantiles() -> None:
    clock = [0.0]
    registry = MetricsRegistry(max_series=10, now_s=lambda: clock[0])
    metrics = ProcessorMetrics(registry, load_ms=0)
    for number in range(6_000):
        clock[0] = number / 100
        metrics.published([WRITE], [], commit_ms=5, processing_ms=8)
    shown = {
        metric: values(registry, metric)[()]
        for metric in (catalogue.BATCH_FLUSH_RATE, catalogue.WRITE_RATE, catalogue.THREAD_IDLE_RATIO_AVG)
    }
    assert shown == {
        catalogue.BATCH_FLUSH_RATE: 100,
        catalogue.WRITE_RATE: 100,
        catalogue.THREAD_IDLE_RATIO_AVG: pytest.approx(0.2),
    }


def test_the_backlog_counts_unapplied_messages(tmp_path: Path) -> None:
    with LocalLog(tmp_path / "log.db") as log:
        assert request_backlog(log, "requests", {}) is None
        log.create_topic("requests", 2)
        log.append("requests", 0, [NewRecord(None, b"v")] * 7)
        log.append("requests", 1, [NewRecord(None, b"v")] * 2)
        assert request_backlog(log, "requests", {0: 3}) == 6
        assert request_backlog(log, "requests", {0: 7, 1: 1}) == 1
        log.delete_records("requests", 1, 2)
        assert request_backlog(log, "requests", {0: 7, 1: 1}) == 0
