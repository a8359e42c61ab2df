"""Subscription by pattern: all topics of a name, those that come later too."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sharegroup.client.kafka_types import IllegalStateException
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from tests.client.consumers import TIMEOUT_S, Consume
from tests.client.processor_peer import eventually

Produce = Callable[[str, int], None]


def read_all(consumer: ShareConsumer, count: int) -> set[str]:
    """The topics of so many records."""
    topics: list[str] = []

    def has_all() -> bool:
        topics.extend(message.topic() or "" for message in consumer.poll(0.2))
        return len(topics) >= count

    eventually(has_all, f"{count} records")
    return set(topics)


def test_a_whole_name_must_match_and_internal_topics_are_left_out(
    consume: Consume, produce: Produce, log: LocalLog
) -> None:
    for topic in ("orders-eu", "orders-us", "my-orders-eu", "__orders-eu"):
        produce(topic, 5)
    consumer = consume()
    consumer.subscribe(re.compile(r".*orders-\w+"))
    assert consumer.subscription() == ["my-orders-eu", "orders-eu", "orders-us"]
    consumer.subscribe(re.compile(r"orders-\w+"))
    assert consumer.subscription() == ["orders-eu", "orders-us"]
    assert read_all(consumer, 10) == {"orders-eu", "orders-us"}


def test_topics_that_come_later_are_consumed(consume: Consume, produce: Produce) -> None:
    consumer = consume(metadata_max_age_ms=20)
    consumer.subscribe(re.compile("late-.*"))
    assert consumer.subscription() == []
    assert consumer.poll(0.1).is_empty()
    produce("late-1", 5)
    assert read_all(consumer, 5) == {"late-1"}
    produce("late-2", 5)
    assert read_all(consumer, 5) == {"late-2"}
    assert consumer.subscription() == ["late-1", "late-2"]


def test_topics_that_come_during_an_endless_poll_are_consumed(
    consume: Consume, produce: Produce, log: LocalLog
) -> None:
    consumer = consume(metadata_max_age_ms=20)
    consumer.subscribe(re.compile("late-.*"))
    produce("late-1", 5)
    assert not consumer.poll(-1).is_empty()


def test_names_take_the_place_of_a_pattern(consume: Consume, produce: Produce) -> None:
    consumer = consume(metadata_max_age_ms=0)
    consumer.subscribe(re.compile("nothing-.*"))
    consumer.unsubscribe()
    with pytest.raises(IllegalStateException, match=r"^Consumer is not subscribed to any topics$"):
        consumer.poll(0)
    consumer.subscribe(["cl-1"])
    produce("nothing-1", 5)
    assert read_all(consumer, 10) == {"cl-1"}
    assert not consumer.poll(TIMEOUT_S).is_empty()


def test_a_pattern_is_of_text(consume: Consume) -> None:
    with pytest.raises(TypeError, match=r"^expected list of topic unicode strings$"):
        consume().subscribe(re.compile(b"orders"))  # type: ignore[arg-type]
