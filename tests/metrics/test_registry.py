"""The registry: what it keeps, and how many series it shows."""

from __future__ import annotations

import math

import pytest

from sharegroup.metrics.catalogue import (
    IN_FLIGHT_BATCH_MESSAGE_COUNT,
    IN_FLIGHT_MESSAGE_COUNT,
    METRICS,
    TRANSITIONS,
)
from sharegroup.metrics.registry import Gauge, Increment, MetricsRegistry, RecentValues, quantile
from tests.metrics.values import values
from tools.metrics_reference import WITHOUT_MEANING

FOUR = [("g", "a", "0"), ("g", "a", "1"), ("g", "b", "0"), ("h", "a", "0")]


@pytest.mark.parametrize(
    ("max_series", "expected"),
    [
        (4, {("g", "a", "0"): 1, ("g", "a", "1"): 2, ("g", "b", "0"): 3, ("h", "a", "0"): 4}),
        (3, {("g", "a"): 3, ("g", "b"): 3, ("h", "a"): 4}),
        (2, {("g",): 6, ("h",): 4}),
        (1, {(): 10}),
    ],
)
def test_series_are_bounded_by_leaving_out_labels(max_series: int, expected: dict[tuple[str, ...], float]) -> None:
    registry = MetricsRegistry(max_series)
    registry.add(Increment(TRANSITIONS, labels, number + 1) for number, labels in enumerate(FOUR))
    registry.add_gauges(
        lambda: [Gauge(IN_FLIGHT_MESSAGE_COUNT, labels, number + 1) for number, labels in enumerate(FOUR)]
    )
    assert values(registry, TRANSITIONS) == values(registry, IN_FLIGHT_MESSAGE_COUNT) == expected


def test_summaries_are_bounded_too() -> None:
    registry = MetricsRegistry(max_series=1)
    for number, labels in enumerate(FOUR):
        registry.observe(IN_FLIGHT_BATCH_MESSAGE_COUNT, labels, number + 1)
    shown = values(registry, IN_FLIGHT_BATCH_MESSAGE_COUNT)
    assert shown[("0.5",)] == 2
    assert shown[("0.999",)] == 4
    (family,) = registry.collect()
    totals = {sample.name.removeprefix(family.name): sample.value for sample in family.samples}
    assert (totals["_count"], totals["_sum"]) == (4, 10)


def test_removed_groups_and_partitions_are_forgotten() -> None:
    registry = MetricsRegistry(max_series=10)
    registry.add(Increment(TRANSITIONS, labels, 1) for labels in FOUR)
    registry.observe(IN_FLIGHT_BATCH_MESSAGE_COUNT, FOUR[0], 1)
    registry.forget(("g", "a", "0"))
    assert values(registry, IN_FLIGHT_BATCH_MESSAGE_COUNT) == {}
    assert set(values(registry, TRANSITIONS)) == set(FOUR)
    registry.forget(("g",))
    assert set(values(registry, TRANSITIONS)) == {("h", "a", "0")}


def test_recent_values_are_those_of_the_last_minute() -> None:
    clock = [0.0]
    recent = RecentValues(lambda: clock[0])
    assert math.isnan(recent.average())
    for now_s, value in ((0.0, 60.0), (30.0, 10.0), (61.0, 20.0)):
        clock[0] = now_s
        recent.add(value)
    assert (recent.average(), recent.rate(), recent.of_window()) == (15.0, 0.5, [10.0, 20.0])
    assert (recent.count, recent.sum, recent.kept()) == (3, 90.0, [10.0, 20.0, 60.0])


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.75, 3), (0.999, 4), (1.0, 4)])
def test_quantile(share: float, expected: float) -> None:
    assert quantile([1, 2, 3, 4], share) == expected


def test_names_are_unique_and_each_metric_has_a_meaning_or_none() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    kafka_names = {metric.kafka_name for metric in METRICS if metric.kafka_name}
    assert kafka_names.isdisjoint(WITHOUT_MEANING)


def test_a_domain_is_a_label_of_every_series_and_counts_as_none() -> None:
    registry = MetricsRegistry(max_series=1, domain="alice")
    registry.add(Increment(TRANSITIONS, labels, 1) for labels in FOUR)
    registry.observe(IN_FLIGHT_BATCH_MESSAGE_COUNT, FOUR[0], 1)
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert {sample.labels.get("domain") for sample in samples} == {"alice"}
    assert [(sample.labels, sample.value) for sample in samples if sample.name == TRANSITIONS.name] == [
        ({"domain": "alice"}, 4)
    ]
