"""Lookups of topics that arrive late, overtake each other, or are parts of one lookup: no live state ends by them."""

from __future__ import annotations

import pytest

from sharegroup.actor.effects import WatchTopics
from tests.actor.coordinator_driver import CoordinatorDriver, with_orders


def initialized_topics(driver: CoordinatorDriver) -> set[str]:
    return {topic_id for topic_id, topic in driver.state.topics.items() if topic.initialized}


@pytest.mark.parametrize("topic_id", ["", "former-id"])
def test_a_lookup_that_was_overtaken_ends_no_state(topic_id: str) -> None:
    driver = with_orders()
    assert driver.apply(driver.lookup(9, topic_id)) == []
    assert initialized_topics(driver) == {"orders-id"}


@pytest.mark.parametrize("topic_id", ["", "other-id"])
def test_two_lookups_of_one_sequence_cannot_contradict_each_other(topic_id: str) -> None:
    driver = with_orders()
    assert driver.apply(driver.lookup(10, topic_id)) == []
    assert initialized_topics(driver) == {"orders-id"}


@pytest.mark.parametrize("topic_id", ["", "other-id"])
def test_a_later_lookup_ends_the_state_of_a_topic_that_is_gone(topic_id: str) -> None:
    driver = with_orders()
    driver.apply(driver.lookup(11, topic_id))
    assert initialized_topics(driver) == set()
    assert driver.state.topics["orders-id"].deleting == {0}


def test_a_lookup_of_the_former_topic_changes_nothing_for_the_present_one() -> None:
    driver = with_orders()
    driver.apply(driver.lookup(12, "other-id"))
    driver.apply(driver.deleted("orders-id"))
    driver.apply(driver.initialized("other-id"))
    assert driver.apply(driver.lookup(11, "orders-id")) == []
    assert initialized_topics(driver) == {"other-id"}


def test_an_overtaken_lookup_adds_no_partitions() -> None:
    driver = with_orders(2)
    assert driver.apply(driver.lookup(9, "orders-id", 5)) == []
    assert driver.state.topics["orders-id"].partitions == {0, 1}


def test_each_topic_has_its_own_order() -> None:
    driver = with_orders()
    driver.apply(driver.join("ben", "payments"))
    driver.apply(driver.lookup(3, "payments-id", topic="payments"))
    assert set(driver.state.topics) == {"orders-id", "payments-id"}


def test_parts_of_one_lookup_and_later_lookups_of_a_topic_that_stays_change_nothing() -> None:
    driver = with_orders()
    assert (
        driver.apply(driver.lookup(10, "orders-id"), driver.lookup(10, "orders-id"), driver.lookup(11, "orders-id"))
        == []
    )


def test_a_topic_is_looked_up_again_when_its_state_has_ended_beside_it() -> None:
    """The lookup arrives while the former state of the same topic is ending, so that nothing can begin yet."""
    driver = with_orders()
    driver.apply(driver.lookup(11, ""))
    driver.apply(driver.lookup(12, "orders-id"), driver.deleted("orders-id"))
    assert [watch.topics for watch in driver.of_type(WatchTopics)] == [{"orders": ("", 0)}]
    driver.apply(driver.lookup(12, "orders-id"))
    assert driver.state.topics["orders-id"].initializing.keys() == {0}
