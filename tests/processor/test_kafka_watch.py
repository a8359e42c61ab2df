"""Log watches on Kafka: topics that may not be read, and partitions without a leader, concern nobody else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AclOperation,
)

from sharegroup.actor.effects import WatchTopics
from sharegroup.event_log import Event
from sharegroup.logs.kafka_log import KafkaLog
from tests.kafka.access import grant, logged_in
from tests.processor.watching import Watching, ends, produce, watch
from tests.support.eventually import eventually
from tests.support.kafka_broker import USERS, KafkaBroker


@pytest.fixture
def log(kafka_log_4_3_1: KafkaLog) -> KafkaLog:
    return kafka_log_4_3_1


@pytest.fixture
def of_alice(kafka_4_3_1: KafkaBroker) -> Iterator[KafkaLog]:
    """A log of a user who may do nothing yet."""
    with KafkaLog(logged_in(kafka_4_3_1, "alice", USERS["alice"])) as opened:
        yield opened


def new_topic(log: KafkaLog, partition_count: int = 1) -> str:
    return log.create_topic(f"orders-{uuid4().hex[:8]}", partition_count).name


def warnings(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    return [str(r.msg) for r in caplog.records if isinstance(r.msg, Event) and f"topic={topic}" in str(r.msg)]


def test_growth_is_reported_on_kafka(log: KafkaLog) -> None:
    topic = new_topic(log, 3)
    with Watching(log) as watching:
        for end in range(1, 10):
            watching.update(*(watch(log, topic, {0: 0, 1: end - 1}, group_id) for group_id in ("first", "second")))
            produce(log, topic, 1)
            eventually(partial(watching.has_topics, 2 * end), f"growth number {end} is sent")
    assert [ends(seen) for seen in watching.topics("first")] == [{1: end} for end in range(1, 10)]
    assert set(watching.sends) == {2}


def test_a_denied_topic_concerns_only_the_groups_that_watch_it(
    kafka_4_3_1: KafkaBroker, log: KafkaLog, of_alice: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    allowed, denied = new_topic(log), new_topic(log)
    grant(kafka_4_3_1, allowed, AclOperation.READ)
    with Watching(of_alice) as watching:
        watching.update(WatchTopics("denied", {denied: ("", 0)}), watch(log, denied, {0: -1}, "denied"))
        eventually(lambda: warnings(caplog, denied), "the denial is logged")
        watching.update(WatchTopics("group", {allowed: ("", 0)}), watch(log, allowed, {0: 0}))
        eventually(lambda: watching.topics("group"), "the other topic is sent")
        produce(log, allowed, 0)
        eventually(lambda: {0: 1} in map(ends, watching.topics("group")), "its growth is sent")
        assert watching.topics("denied") == []
        grant(kafka_4_3_1, denied, AclOperation.READ)
        eventually(lambda: len(watching.topics("denied")) == 2, "the topic is sent once it is allowed")
    assert len(warnings(caplog, denied)) == 1


def test_growth_is_reported_of_a_topic_that_may_be_described_and_not_read(
    kafka_4_3_1: KafkaBroker, log: KafkaLog, of_alice: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(log)
    grant(kafka_4_3_1, topic, AclOperation.DESCRIBE)
    with Watching(of_alice) as watching:
        watching.update(watch(log, topic, {0: 0}))
        eventually(lambda: warnings(caplog, topic), "the denial is logged")
        produce(log, topic, 0)
        eventually(watching.topics, "the growth is sent by a later poll")
    assert len(warnings(caplog, topic)) == 1


@pytest.fixture
def kafka_pair(tmp_path: Path) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    """A cluster for one test: topics of other ones, internal topics too, could be put on the node that it kills."""
    with (
        KafkaBroker("4.3.1", tmp_path / "first") as first,
        KafkaBroker("4.3.1", tmp_path / "second", joins=first) as second,
    ):
        yield first, second


@pytest.mark.long("a second broker, and partitions without a leader")
@pytest.mark.slow
def test_a_partition_without_a_leader_holds_up_no_other(
    kafka_pair: tuple[KafkaBroker, KafkaBroker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first_broker, second_broker = kafka_pair
    topic, other = (f"orders-{uuid4().hex[:8]}" for _ in range(2))
    first_broker.create_topics({topic: [1, 2], other: [1]})
    with first_broker.open_log() as log, Watching(log) as watching:
        eventually(lambda: {topic, other} <= {seen.name for seen in log.topics()}, "the topics are there")
        watching.update(watch(log, topic, {0: 0, 1: 0}), watch(log, other, {0: 0}, "other"))
        second_broker.kill()
        watching.update(WatchTopics("late", {topic: ("", 0)}), watch(log, topic, {0: -1, 1: -1}, "late"))
        produce(log, topic, 0)
        produce(log, other, 0)
        eventually(lambda: watching.topics("other"), "growth of another topic is sent")
        eventually(lambda: {0: 1} in map(ends, watching.topics("group")), "growth of the other partition is sent")
        # Its end is 0 or 1: the poll comes before the record or after it.
        eventually(lambda: any(0 in ends(seen) for seen in watching.topics("late")), "the other partition is sent")
        eventually(lambda: warnings(caplog, topic), "the partition is logged")
        second_broker.start()
        eventually(lambda: {1: 0} in map(ends, watching.topics("late")), "the partition is sent once it has a leader")
        produce(log, topic, 1)
        eventually(lambda: {1: 1} in map(ends, watching.topics("group")), "its growth is sent")
    assert len(warnings(caplog, topic)) < 6
