"""What the processor's driver tells the groups: growth of logs, topics, and time; against a real log, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sharegroup.spark.facts import FactSource

from sharegroup.actor.effects import Wake, WatchLog, WatchTopics
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import LogUnavailableError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord, PartitionOffsets
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.internal_messages import LogOffsets, TopicLogOffsets
from sharegroup.protocol.messages import RequestEnvelope, parsed
from sharegroup.spark import facts
from tests.support.eventually import eventually

DAY_MS = 86_400_000


class Driver:
    """A fact source, and everything that it sent."""

    def __init__(self, log: LocalLog) -> None:
        self.sent: list[RequestEnvelope] = []
        self.failures: list[BaseException] = []
        self.facts = FactSource(log, self.sent.extend, self.failures.append)

    def ticked(self) -> list[str]:
        """Groups that got a Tick, in order."""
        return [envelope.group_id for envelope in self.sent if envelope.api_key == ApiKey.TICK]

    def told(self) -> list[TopicLogOffsets]:
        """Everything that was sent of topics, in order."""
        return [topic for envelope in self.sent for topic in topics_of(envelope)]


def topics_of(envelope: RequestEnvelope) -> list[TopicLogOffsets]:
    return parsed(LogOffsets, envelope.body).topics if envelope.api_key == ApiKey.LOG_OFFSETS else []


def ends(topic: TopicLogOffsets) -> dict[int, int]:
    return {partition.partition_index: partition.end_offset for partition in topic.partitions}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as opened:
        yield opened


@pytest.fixture
def driver(log: LocalLog) -> Iterator[Driver]:
    driver = Driver(log)
    driver.facts.start()
    yield driver
    driver.facts.stop()
    assert not driver.failures


def produce(log: LocalLog, topic: str, partition: int, count: int) -> None:
    log.append(topic, partition, [NewRecord(None, b"value")] * count)


def watch(log: LocalLog, topic: str, **above_offset: int) -> WatchLog:
    """A watch on partitions given as `p0=5`."""
    topic_id = log.describe_topic(topic).topic_id
    return WatchLog("group", {(topic, topic_id, int(name[1:])): above for name, above in above_offset.items()})


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# Growth.


def test_offsets_of_many_partitions_are_several_messages(
    log: LocalLog, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "PARTITIONS_PER_MESSAGE", 2)
    sizes = {"a": 1, "b": 4, "c": 3}
    for topic, count in sizes.items():
        log.create_topic(topic, count)
    told = driver.facts.update([WatchTopics("group", dict.fromkeys(sizes, ("", 0)))])
    messages = [[(t.topic, t.partition_count, sorted(ends(t))) for t in topics_of(envelope)] for envelope in told]
    assert messages == [
        [("a", 1, [0]), ("b", 4, [0])],
        [("b", 4, [1, 2])],
        [("b", 4, [3]), ("c", 3, [0])],
        [("c", 3, [1, 2])],
    ]


def test_growth_that_happened_before_the_watch_is_answered_at_once(log: LocalLog) -> None:
    topic_id = log.create_topic("orders", 3).topic_id
    produce(log, "orders", 1, 7)
    (fact,) = Driver(log).facts.update([watch(log, "orders", p0=0, p1=3)])
    (told,) = topics_of(fact)
    assert (told.topic, told.topic_id, told.partition_count, ends(told)) == ("orders", topic_id, 3, {1: 7})


def test_growth_after_the_watch_is_told_once(log: LocalLog, driver: Driver) -> None:
    log.create_topic("orders", 2)
    assert driver.facts.update([watch(log, "orders", p0=0, p1=0)]) == []
    produce(log, "orders", 0, 5)
    eventually(driver.told, "the growth of partition 0 is told")
    produce(log, "orders", 0, 5)
    produce(log, "orders", 1, 1)
    eventually(lambda: len(driver.told()) > 1, "the growth of partition 1 is told")
    assert [ends(topic) for topic in driver.told()] == [{0: 5}, {1: 1}]


class TransactionalLog(LocalLog):
    """A local log in which a transaction is open from an offset on."""

    last_stable_offset = 0

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]:
        found = super().offsets(topic)
        return {p: replace(seen, last_stable_offset=self.last_stable_offset) for p, seen in found.items()}


def test_a_read_committed_watch_is_answered_by_the_last_stable_offset(tmp_path: Path) -> None:
    with TransactionalLog(tmp_path / "log.db") as log:
        log.create_topic("orders", 1)
        driver = Driver(log)
        driver.facts.start()
        committed = replace(watch(log, "orders", p0=0), isolation_level=IsolationLevel.READ_COMMITTED)
        uncommitted = replace(watch(log, "orders", p0=0), group_id="another")
        assert driver.facts.update([committed, uncommitted]) == []
        produce(log, "orders", 0, 5)
        eventually(driver.told, "the growth is told to the group that reads uncommitted records")
        log.last_stable_offset = 3
        eventually(lambda: len(driver.told()) > 1, "the last stable offset is told to the other one")
        driver.facts.stop()
    assert [envelope.group_id for envelope in driver.sent] == ["another", "group"]
    assert [topic.partitions[0].last_stable_offset for topic in driver.told()] == [0, 3]


def test_a_new_watch_is_answered_again(log: LocalLog) -> None:
    log.create_topic("orders", 1)
    produce(log, "orders", 0, 5)
    facts = Driver(log).facts
    assert len(facts.update([watch(log, "orders", p0=0)])) == 1
    assert facts.update([]) == []
    assert facts.update([watch(log, "orders", p0=5)]) == []
    assert len(facts.update([watch(log, "orders", p0=4)])) == 1


def test_a_watch_below_all_offsets_is_answered_for_an_empty_partition(log: LocalLog) -> None:
    log.create_topic("orders", 2)
    (fact,) = Driver(log).facts.update([watch(log, "orders", p1=-1)])
    assert ends(topics_of(fact)[0]) == {1: 0}


def test_a_watch_is_not_answered_for_another_topic_of_the_same_name(log: LocalLog) -> None:
    log.create_topic("orders", 1)
    old = watch(log, "orders", p0=3)
    log.delete_topic("orders")
    log.create_topic("orders", 1)
    produce(log, "orders", 0, 10)
    assert Driver(log).facts.update([old]) == []


def test_a_watch_on_a_deleted_topic_harms_nobody(log: LocalLog, driver: Driver) -> None:
    log.create_topic("gone", 1)
    log.create_topic("orders", 1)
    driver.facts.update([watch(log, "gone", p0=0)])
    log.delete_topic("gone")
    orders_id = log.describe_topic("orders").topic_id
    driver.facts.update([WatchLog("other", {("orders", orders_id, 0): 0})])
    produce(log, "orders", 0, 1)
    eventually(driver.told, "the other group is told")
    assert [envelope.group_id for envelope in driver.sent] == ["other"]


# Topics.


@pytest.mark.parametrize("happens", ["before", "after"])
def test_a_topic_that_the_group_does_not_know_is_told(log: LocalLog, driver: Driver, happens: str) -> None:
    def create() -> None:
        log.create_topic("orders", 2)
        produce(log, "orders", 1, 4)

    if happens == "before":
        create()
    driver.sent += driver.facts.update([WatchTopics("group", {"orders": ("", 0)})])
    if happens == "after":
        create()
    told = eventually(driver.told, "the topic is told")[0]
    assert (told.topic, told.topic_id, told.partition_count) == (
        "orders",
        log.describe_topic("orders").topic_id,
        2,
    )
    assert set(ends(told)) == {0, 1}


def test_a_topic_that_is_as_the_group_knows_it_is_not_told(log: LocalLog) -> None:
    topic_id = log.create_topic("orders", 2).topic_id
    assert Driver(log).facts.update([WatchTopics("group", {"orders": (topic_id, 2), "absent": ("", 0)})]) == []


def test_a_deleted_topic_is_told_without_an_id(log: LocalLog, driver: Driver) -> None:
    topic_id = log.create_topic("orders", 2).topic_id
    driver.facts.update([WatchTopics("group", {"orders": (topic_id, 2)})])
    log.delete_topic("orders")
    told = eventually(driver.told, "the deletion is told")[0]
    assert (told.topic, told.topic_id, told.partition_count, told.partitions) == ("orders", "", 0, [])


def test_a_reset_by_duration_is_resolved_to_offsets(log: LocalLog) -> None:
    log.create_topic("orders", 2)
    for age_days in (3, 2, 1, 0):
        log.append("orders", 0, [NewRecord(None, b"value", timestamp_ms=now_ms() - age_days * DAY_MS)])
    duration_ms = DAY_MS + DAY_MS // 2
    (fact,) = Driver(log).facts.update([WatchTopics("group", {"orders": ("", 0)}, reset_duration_ms=duration_ms)])
    assert [partition.reset_offset for partition in topics_of(fact)[0].partitions] == [2, 0]


# Time.


def test_a_tick_comes_when_it_is_due(driver: Driver) -> None:
    at_ms = now_ms() + 200
    driver.facts.update([Wake("group", ActorRole.LEADER, at_ms)])
    eventually(driver.ticked, "the tick comes")
    assert now_ms() >= at_ms
    assert driver.ticked() == ["group"]


def test_both_actors_of_a_group_share_a_tick(driver: Driver) -> None:
    past = now_ms() - 1_000
    driver.facts.update(
        [
            Wake("first", ActorRole.LEADER, past),
            Wake("first", ActorRole.COORDINATOR, past - 500),
            Wake("second", ActorRole.LEADER, past),
        ]
    )
    eventually(lambda: len(driver.ticked()) > 1, "both groups get a tick")
    assert driver.ticked() == ["first", "second"]


@pytest.mark.parametrize("later", [None, now_ms() + DAY_MS], ids=["none", "later"])
def test_a_new_wish_replaces_the_old_one(driver: Driver, later: int | None) -> None:
    driver.facts.update([Wake("group", ActorRole.LEADER, now_ms() + 300), Wake("group", ActorRole.LEADER, later)])
    driver.facts.update([Wake("other", ActorRole.LEADER, now_ms() + 400)])
    eventually(driver.ticked, "the other group gets its tick")
    assert driver.ticked() == ["other"]


# The thread.


def test_the_end_of_the_thread_is_told_with_its_cause(log: LocalLog) -> None:
    cause = LogUnavailableError("The disk is full.")
    failures: list[BaseException] = []

    def refuse(facts: list[RequestEnvelope]) -> None:
        raise cause

    source = FactSource(log, refuse, failures.append)
    source.start()
    source.update([Wake("group", ActorRole.LEADER, 0)])
    eventually(lambda: failures, "the failure is told")
    source.stop()
    assert failures == [cause]


@pytest.mark.parametrize("watches", [True, False])
def test_a_stopped_source_says_nothing_more(log: LocalLog, watches: bool) -> None:
    log.create_topic("orders", 1)
    driver = Driver(log)
    driver.facts.start()
    if watches:
        driver.facts.update([watch(log, "orders", p0=0)])
    driver.facts.stop()
    driver.facts.update([Wake("group", ActorRole.LEADER, 0)])
    produce(log, "orders", 0, 1)
    assert (driver.sent, driver.failures) == ([], [])


def test_stop_before_start_does_nothing(log: LocalLog) -> None:
    Driver(log).facts.stop()
