"""The metrics of a processor: fed by commits that real actors made, read by HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.actor.effects import Persist, Respond
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.loader import Settings, load_settings
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.metrics import catalogue
from sharegroup.metrics.metric import Metric
from sharegroup.metrics.progress import LOOP_FIGURES
from sharegroup.metrics.registry import MetricsRegistry
from sharegroup.processor.commit import AppliedGroup, Commit
from sharegroup.processor.dead_letter_writer import DeadLetterMetrics
from sharegroup.processor.figures import LoopFigures
from sharegroup.processor.metrics_feed import MetricsFeed
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import ResponseEnvelope
from sharegroup.state.fold import FoldedState, fold_order
from tests.actor.group_harness import GROUP_ID
from tests.audit.conftest import worked_on
from tests.metrics.values import values


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    values = {"log.path": tmp_path / "log.db", "state.table.path": tmp_path / "s", "checkpoint.path": tmp_path / "c"}
    with LocalLog(tmp_path / "log.db") as log:
        log.create_topic("__share_requests", 1)
        log.append("__share_requests", 0, [NewRecord(None, b"v")] * 7)
        yield load_settings(None, {}, [f"{key}={value}" for key, value in values.items()])


def test_a_published_commit_shows_in_every_metric(settings: Settings) -> None:
    registry = MetricsRegistry(max_series=100)
    figures = LoopFigures(messages=5, commits=1, answers=2, cuts=3, take_ms=1.5, apply_ms=2, commit_ms=8, publish_ms=4)
    dead_letters = DeadLetterMetrics(written_records=3, failed_appends=2)
    feed = MetricsFeed(registry, settings, FoldedState(), {0: 2}, 4, 250.0, figures, lambda: dead_letters)

    def value(metric: Metric, *labels: str) -> float:
        return values(registry, metric)[labels]

    assert value(catalogue.EVENT_QUEUE_SIZE) == 5
    rows = sorted(worked_on(BrokerConfig()), key=fold_order)
    response = ResponseEnvelope(api_key=ApiKey.SHARE_FETCH, correlation_id=1, group_id=GROUP_ID, member_id="anna")
    group = AppliedGroup(GROUP_ID, 0, 5, 900, 1_000, [*map(Persist, rows), Respond(0, response)])
    feed.published(Commit(1, 4, [], [group], {0: 6}, 8.0, 20.0))
    expected = {
        (catalogue.EVENT_QUEUE_SIZE,): 1,
        (catalogue.RECORD_ACKNOWLEDGEMENTS, "Accept"): 15,
        (catalogue.TOTAL_SHARE_FETCH_REQUESTS,): 1,
        (catalogue.MEMBERS, GROUP_ID): 2,
        (catalogue.WRITE_LATENCY_MAX,): 8,
        (catalogue.LATENCY_METRICS[catalogue.EVENT_QUEUE_TIME, "max"],): 100,
        (catalogue.LATENCY_METRICS[catalogue.EVENT_PROCESSING_TIME, "max"],): 20,
        (catalogue.PARTITION_LOAD_TIME_MAX,): 250,
        (catalogue.LEADER_EPOCH,): 4,
        (catalogue.MESSAGES,): 5,
        (catalogue.COMMITS,): 1,
        (catalogue.CUTS,): 3,
        (catalogue.ANSWERS,): 2,
        (catalogue.LOOP_MILLISECONDS, "take"): 1.5,
        (catalogue.LOOP_MILLISECONDS, "publish"): 4,
        (catalogue.DEAD_LETTERS_WRITTEN,): 3,
        (catalogue.DEAD_LETTER_APPENDS_FAILED,): 2,
    }
    assert {key: value(*key) for key in expected} == expected
    figures.messages = 9
    figures.upkeep_failures = 1
    assert (value(catalogue.MESSAGES), value(catalogue.UPKEEP_FAILURES)) == (9, 1)
    feed.close()


def test_a_commit_without_anything_durable_has_no_commit_time(settings: Settings) -> None:
    registry = MetricsRegistry(max_series=100)
    feed = MetricsFeed(registry, settings, FoldedState(), {}, 4, 0.0, LoopFigures(), DeadLetterMetrics)
    feed.published(Commit(None, 4, [], [AppliedGroup(GROUP_ID, 0, 1, 900, 1_000, [])], {0: 1}, 0.0, 20.0))
    assert values(registry, catalogue.BATCH_FLUSH_RATE)[()] == 0
    assert values(registry, catalogue.LATENCY_METRICS[catalogue.EVENT_PROCESSING_TIME, "max"])[()] == 20
    feed.close()


def test_the_progress_has_every_figure_of_the_loop() -> None:
    assert list(LOOP_FIGURES) == list(LoopFigures().named())


def test_figures_of_a_part_of_the_time() -> None:
    figures = LoopFigures(messages=5, take_ms=1.5)
    before = figures.copy()
    figures.messages += 2
    figures.take_ms += 0.5
    assert figures.since(before) == LoopFigures(messages=2, take_ms=0.5)
