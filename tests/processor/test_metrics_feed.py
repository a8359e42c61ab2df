"""The metrics of a processor: fed by commits that real actors made, read by HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.actor.effects import Address, Persist, response_to
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.loader import Settings, load_settings
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.metrics import catalogue
from sharegroup.metrics.catalogue import Metric
from sharegroup.metrics.processor_metrics import LoopFigures
from sharegroup.metrics.registry import MetricsRegistry
from sharegroup.processor.dead_letters.writer import DeadLetterMetrics
from sharegroup.processor.followers.metrics_feed import MetricsFeed
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.share_fetch import AcquiredRecords, PartitionResponse, ShareFetchResponse, TopicResponse
from sharegroup.state.fold import FoldedState, fold_order
from tests.actor.group_harness import GROUP_ID
from tests.audit.conftest import worked_on
from tests.metrics.values import values
from tests.processor.commits import published


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    values = {"log.path": tmp_path / "log.db", "state.table.path": tmp_path / "s", "checkpoint.path": tmp_path / "c"}
    with LocalLog(tmp_path / "log.db") as log:
        log.create_topic("__share_requests", 1)
        log.append("__share_requests", 0, [NewRecord(None, b"v")] * 7)
        yield load_settings(None, {}, [f"{key}={value}" for key, value in values.items()])


def test_a_published_commit_shows_in_every_metric(settings: Settings) -> None:
    registry = MetricsRegistry(max_series=100)
    figures = LoopFigures(
        messages=5, commits=1, responses=2, cuts=3, take_ms=1.5, apply_ms=2, commit_ms=8, publish_ms=4
    )
    dead_letters = DeadLetterMetrics()
    dead_letters.appended({GROUP_ID: 3})
    dead_letters.append_failed([GROUP_ID, "porters"])
    ends = {0: 2}
    feed = MetricsFeed(registry, settings, FoldedState(), lambda: ends, 4, 250.0, figures, lambda: dead_letters)

    def value(metric: Metric, *labels: str) -> float:
        return values(registry, metric)[labels]

    assert value(catalogue.EVENT_QUEUE_SIZE) == 5
    rows = sorted(worked_on(BrokerConfig()), key=fold_order)
    acquired = PartitionResponse(
        partition_index=0, acquired_records=[AcquiredRecords(first_offset=0, last_offset=9, delivery_count=1)]
    )
    (topic_id,) = {row.topic_id for row in rows if row.topic == "orders"}
    body = ShareFetchResponse(responses=[TopicResponse(topic_id=topic_id, partitions=[acquired])])
    response = response_to(Address(0, ApiKey.SHARE_FETCH, 1, GROUP_ID, "anna"), body, 4)
    feed.published(published(*map(Persist, rows), response, group_id=GROUP_ID, commit_ms=8.0))
    ends[0] = 6
    expected: dict[tuple[Metric, *tuple[str, ...]], float] = {
        (catalogue.EVENT_QUEUE_SIZE,): 1,
        (catalogue.RECORD_ACKNOWLEDGEMENTS, "Accept"): 15,
        (catalogue.TOTAL_SHARE_FETCH_REQUESTS,): 1,
        (catalogue.TOTAL_SHARE_FETCH_REQUESTS, "orders"): 1,
        (catalogue.MEMBERS, GROUP_ID): 3,
        (catalogue.WRITE_LATENCY_MAX,): 8,
        (catalogue.LATENCY_METRICS[catalogue.EVENT_QUEUE_TIME, "max"],): 100,
        (catalogue.LATENCY_METRICS[catalogue.EVENT_PROCESSING_TIME, "max"],): 20,
        (catalogue.PARTITION_LOAD_TIME_MAX,): 250,
        (catalogue.LEADER_EPOCH,): 4,
        (catalogue.MESSAGES,): 5,
        (catalogue.COMMITS,): 1,
        (catalogue.CUTS,): 3,
        (catalogue.RESPONSES,): 2,
        (catalogue.LOOP_MILLISECONDS, "take"): 1.5,
        (catalogue.LOOP_MILLISECONDS, "publish"): 4,
        (catalogue.DEAD_LETTER_QUEUE_RECORD_COUNT, GROUP_ID): 3,
        (catalogue.DEAD_LETTER_QUEUE_RECORD_COUNT, "porters"): 0,
        (catalogue.DEAD_LETTER_QUEUE_TOTAL_PRODUCE_REQUESTS, GROUP_ID): 2,
        (catalogue.DEAD_LETTER_QUEUE_FAILED_PRODUCE_REQUESTS, GROUP_ID): 1,
        (catalogue.DEAD_LETTER_QUEUE_FAILED_PRODUCE_REQUESTS, "porters"): 1,
    }
    assert {key: value(*key) for key in expected} == expected
    figures.messages = 9
    figures.upkeep_failures = 1
    assert (value(catalogue.MESSAGES), value(catalogue.UPKEEP_FAILURES)) == (9, 1)
    feed.close()


def test_a_commit_without_anything_durable_has_no_commit_time(settings: Settings) -> None:
    registry = MetricsRegistry(max_series=100)
    feed = MetricsFeed(registry, settings, FoldedState(), dict, 4, 0.0, LoopFigures(), DeadLetterMetrics)
    feed.published(published(commit_id=None, commit_ms=0.0))
    assert values(registry, catalogue.BATCH_FLUSH_RATE)[()] == 0
    assert values(registry, catalogue.LATENCY_METRICS[catalogue.EVENT_PROCESSING_TIME, "max"])[()] == 20
    feed.close()


def test_figures_of_a_part_of_the_time() -> None:
    figures = LoopFigures(messages=5, take_ms=1.5)
    before = figures.copy()
    figures.messages += 2
    figures.take_ms += 0.5
    assert figures.since(before) == LoopFigures(messages=2, take_ms=0.5)
