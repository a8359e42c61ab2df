"""The share consumer's own metrics: names of the Java client, values of what the consumer did."""

from __future__ import annotations

import math

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.measurements import (
    CONSUMER_GROUP,
    COORDINATOR_GROUP,
    FETCH_GROUP,
    ConsumerMeasurements,
    MetricName,
    WindowedValues,
)
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from tests.client.consumers import Consume
from tests.support.eventually import DEADLINE_S


def value(consumer: ShareConsumer, name: str, group: str = FETCH_GROUP) -> float:
    return consumer.metrics()[MetricName(name, group)]


def test_a_consumer_counts_what_it_does(consume: Consume) -> None:
    consumer = consume("cl-1", mode="explicit")
    messages = consumer.poll(DEADLINE_S)
    for message in messages:
        consumer.acknowledge(message)
    consumer.commit_sync()
    assert value(consumer, "records-consumed-total") == 10
    assert value(consumer, "records-per-request-max") == 10
    assert value(consumer, "bytes-consumed-total") == value(consumer, "fetch-size-avg") == 10 * len(b"v0")
    assert value(consumer, "acknowledgements-send-total") == 10
    assert value(consumer, "acknowledgements-error-total") == 0
    assert value(consumer, "fetch-total") >= 1
    assert value(consumer, "fetch-latency-max") > 0
    assert value(consumer, "heartbeat-total", COORDINATOR_GROUP) >= 1
    assert value(consumer, "heartbeat-response-time-max", COORDINATOR_GROUP) > 0
    assert value(consumer, "last-heartbeat-seconds-ago", COORDINATOR_GROUP) >= 0
    assert value(consumer, "rebalance-total", COORDINATOR_GROUP) == 1
    assert value(consumer, "rebalance-rate-per-hour", COORDINATOR_GROUP) > 0
    assert 0 < value(consumer, "poll-idle-ratio-avg", CONSUMER_GROUP) <= 1
    assert value(consumer, "last-poll-seconds-ago", CONSUMER_GROUP) >= 0


def test_refused_acknowledgements_are_errors(consume: Consume, log: LocalLog) -> None:
    AdminClient(log).alter_group_config("g", {"share.renew.acknowledge.enable": "false"})
    consumer = consume("cl-1", mode="explicit")
    for message in consumer.poll(DEADLINE_S):
        consumer.acknowledge(message, AcknowledgeType.RENEW)
    consumer.commit_sync()
    assert value(consumer, "acknowledgements-send-total") == 10
    assert value(consumer, "acknowledgements-error-total") == 10


def test_before_anything_happens_there_are_no_values(consume: Consume) -> None:
    consumer = consume()
    metrics = consumer.metrics()
    assert metrics[MetricName("last-poll-seconds-ago", CONSUMER_GROUP)] == -1
    assert math.isnan(metrics[MetricName("records-per-request-avg", FETCH_GROUP)])
    assert metrics[MetricName("records-consumed-rate", FETCH_GROUP)] == 0


def test_half_of_the_time_between_polls_is_idle() -> None:
    measured = ConsumerMeasurements()
    for start_s in (0, 10, 20):
        measured.poll_started(start_s)
        measured.poll_ended(start_s + 10 * (start_s > 0))
    metrics = measured.metrics(30)
    assert metrics[MetricName("poll-idle-ratio-avg", CONSUMER_GROUP)] == pytest.approx((0 + 0.5 + 0.5) / 3)
    assert metrics[MetricName("time-between-poll-max", CONSUMER_GROUP)] == 10_000
    assert metrics[MetricName("last-poll-seconds-ago", CONSUMER_GROUP)] == 10


@pytest.mark.parametrize(
    ("now_s", "rate", "average", "maximum"),
    [
        (0, 9 / 30, 4.5, 6),
        (35, 9 / 35, 4.5, 6),
        (59, 9 / 59, 4.5, 6),
        (60, 0, math.nan, math.nan),
    ],
)
def test_values_are_of_the_last_minute(now_s: float, rate: float, average: float, maximum: float) -> None:
    values = WindowedValues()
    values.add(3, 0)
    values.add(6, 0)
    assert values.total == 9
    assert values.rate(now_s) == pytest.approx(rate)
    assert values.average(now_s) == pytest.approx(average, nan_ok=True)
    assert values.maximum(now_s) == pytest.approx(maximum, nan_ok=True)


def test_a_value_leaves_when_its_window_is_over() -> None:
    values = WindowedValues()
    for at_s in (0, 30, 60):
        values.add(at_s, at_s)
    assert values.maximum(60) == 60
    assert values.rate(60) == 90 / 30
    assert values.total == 90
