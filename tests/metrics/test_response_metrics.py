"""Counters of requests and gauges of share sessions, from the effects of the real actors."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from sharegroup.actor.effects import Effect
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.metrics import catalogue
from sharegroup.metrics.catalogue import Metric
from sharegroup.metrics.processor_metrics import ResponseMetrics
from sharegroup.metrics.registry import MetricsRegistry
from tests.actor.group_harness import Group, LogPartition, Member, group_with, joined
from tests.metrics.values import values

ORDERS_0 = ("orders-id", 0)
REFUNDS_0 = ("refunds-id", 0)
SESSIONS = catalogue.SHARE_SESSIONS_COUNT
PARTITIONS = catalogue.SHARE_PARTITIONS_COUNT
FETCHES = catalogue.TOTAL_SHARE_FETCH_REQUESTS
FAILED_FETCHES = catalogue.FAILED_SHARE_FETCH_REQUESTS
EXPIRED = catalogue.EXPIRED_SHARE_FETCHES
ACKNOWLEDGEMENTS = catalogue.TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS
FAILED_ACKNOWLEDGEMENTS = catalogue.FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS
EVICTIONS = catalogue.SHARE_SESSION_EVICTIONS


def counted(group: Group, max_series: int = 10) -> MetricsRegistry:
    """A registry that sees the effects of all batches from now on."""
    registry = MetricsRegistry(max_series=max_series)
    names = {topic_id: name for name, (topic_id, _) in group.topics.items()}
    metrics = ResponseMetrics(registry, lambda group_id, topic_id: names.get(topic_id))
    run = group.effects_of

    def effects_of(offsets: Iterable[int], cut_ms: int) -> list[Effect]:
        effects = run(offsets, cut_ms)
        metrics.published(effects)
        return effects

    group.effects_of = effects_of  # type: ignore[method-assign]
    return registry


def fetch(member: Member) -> None:
    member.fetch(max_records=10)


def fetch_nothing(member: Member) -> None:
    member.fetch(max_records=10)
    member.fetch(max_records=10, max_wait_ms=0)


def acknowledge(member: Member) -> None:
    member.fetch(max_records=10)
    member.acknowledge({ORDERS_0: [(0, 9, AcknowledgeType.ACCEPT)]})


def acknowledge_twice(member: Member) -> None:
    acknowledge(member)
    member.acknowledge({ORDERS_0: [(5, 5, AcknowledgeType.ACCEPT), (99, 99, AcknowledgeType.ACCEPT)]})


def acknowledge_by_fetch(member: Member) -> None:
    member.fetch(max_records=5)
    member.fetch(acknowledge={ORDERS_0: [(0, 4, AcknowledgeType.ACCEPT)]}, max_records=5)


def close(member: Member) -> None:
    member.fetch(max_records=10)
    member.close()


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (fetch, {FETCHES: 1, SESSIONS: 1, PARTITIONS: 1}),
        (fetch_nothing, {FETCHES: 2, EXPIRED: 1, SESSIONS: 1, PARTITIONS: 1}),
        (acknowledge, {FETCHES: 1, ACKNOWLEDGEMENTS: 1, SESSIONS: 1, PARTITIONS: 1}),
        (
            acknowledge_twice,
            {FETCHES: 1, ACKNOWLEDGEMENTS: 2, FAILED_ACKNOWLEDGEMENTS: 1, SESSIONS: 1, PARTITIONS: 1},
        ),
        (acknowledge_by_fetch, {FETCHES: 2, ACKNOWLEDGEMENTS: 1, SESSIONS: 1, PARTITIONS: 1}),
        (close, {FETCHES: 1, ACKNOWLEDGEMENTS: 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_requests_are_counted_when_they_are_completed(
    what: Callable[[Member], None], expected: dict[Metric, int]
) -> None:
    group = group_with(10)
    (anna,) = joined(group, "anna")
    registry = counted(group)
    what(anna)
    everything = (SESSIONS, PARTITIONS, FETCHES, FAILED_FETCHES, EXPIRED, ACKNOWLEDGEMENTS, FAILED_ACKNOWLEDGEMENTS)
    shown = {metric: values(registry, metric)[()] for metric in everything}
    assert shown == dict.fromkeys(everything, 0) | expected


def test_each_topic_has_requests_of_its_own() -> None:
    group = group_with(10)
    group.create_topic("refunds", "refunds-id", [LogPartition(end=10)])
    (anna,) = joined(group, "anna", topics=("orders", "refunds"))
    registry = counted(group)
    # The records of both topics, then only those of one; then an acknowledgement of the other, and one that is refused.
    acquired = [set(anna.fetch(max_records=records).acquired) for records in (20, 0)]
    anna.acknowledge({ORDERS_0: [(0, 9, AcknowledgeType.ACCEPT)]})
    anna.acknowledge({ORDERS_0: [(0, 99, AcknowledgeType.ACCEPT)], REFUNDS_0: [(0, 4, AcknowledgeType.ACCEPT)]})
    of_topics = [topic_id.removesuffix("-id") for keys in acquired for topic_id, _ in keys]
    expected: dict[tuple[str, ...], float] = {(topic,): of_topics.count(topic) for topic in set(of_topics)}
    assert values(registry, FETCHES) == {(): 2} | expected
    assert values(registry, ACKNOWLEDGEMENTS) == {(): 2, ("orders",): 2, ("refunds",): 1}
    assert values(registry, FAILED_ACKNOWLEDGEMENTS) == {(): 1, ("orders",): 1, ("refunds",): 0}


def test_of_too_many_topics_the_total_is_left() -> None:
    group = group_with(10)
    (anna,) = joined(group, "anna")
    registry = counted(group, max_series=1)
    acknowledge(anna)
    assert values(registry, ACKNOWLEDGEMENTS) == {(): 1}
    assert values(registry, FETCHES) == {(): 1}


def test_a_notice_that_another_member_waits_is_no_response_to_a_request() -> None:
    group = group_with(10)
    anna, ben = joined(group, "anna", "ben")
    registry = counted(group)
    fetch(anna)
    fetch(ben)
    group.advance(300)
    assert group.responses[-1].body["other_member_waits"]
    assert values(registry, FETCHES) == {(): 1, ("orders",): 1}


def test_a_session_that_makes_room_is_an_eviction() -> None:
    group = group_with(30, broker=BrokerConfig(group_share_max_share_sessions=1, group_share_max_size=1))
    anna = Member(group, "anna")
    anna.join()
    registry = counted(group)
    anna.fetch(max_records=1)
    anna.leave()
    group.advance(100_000)
    ben = Member(group, "ben")
    ben.join()
    ben.fetch(max_records=1)
    assert values(registry, EVICTIONS) == {(): 1}
    assert values(registry, SESSIONS) == {(): 1}
