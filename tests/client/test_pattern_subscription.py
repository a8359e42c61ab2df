"""Subscription by pattern: all topics of a name, those that come later too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from sharegroup.client.kafka_exceptions import IllegalStateException
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.client.subscription import Subscription
from sharegroup.logs.local import LocalLog
from sharegroup.protocol.group_messages import MAX_SUBSCRIBED_TOPICS
from tests.client.consumers import Consume
from tests.support.eventually import DEADLINE_S, eventually

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
    eventually(lambda: consumer.subscription() == ["my-orders-eu", "orders-eu", "orders-us"], "the topics are listed")
    consumer.subscribe(re.compile(r"orders-\w+"))
    eventually(lambda: consumer.subscription() == ["orders-eu", "orders-us"], "the topics are listed")
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
    assert not consumer.poll(DEADLINE_S).is_empty()


def test_a_pattern_is_of_text(consume: Consume) -> None:
    with pytest.raises(TypeError, match=r"^expected list of topic unicode strings$"):
        consume().subscribe(re.compile(b"orders"))  # type: ignore[arg-type]


def test_of_more_than_1000_topics_the_first_by_name_are_taken(log: LocalLog, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"many-{number:04}" for number in range(MAX_SUBSCRIBED_TOPICS + 2)]
    for name in names[1:]:
        log.create_topic(name, 1)
    clock = itertools.count(0.0)
    subscription = Subscription(log, max_age_ms=0, on_listed=lambda: None)
    subscription.change(re.compile("many-.*"), next(clock))
    eventually(lambda: subscription.refresh(next(clock)), "the topics are listed")
    assert subscription.names == names[1:-1]
    assert "1001 topics match the pattern many-.*" in caplog.text
    caplog.clear()
    log.create_topic(names[0], 1)
    eventually(lambda: subscription.refresh(next(clock)), "the topics are listed again")
    assert subscription.names == names[:-2]
    (warned,) = caplog.messages
    assert warned.startswith("1002 topics match")
