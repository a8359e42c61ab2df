"""Growth of watched partitions, sent to the groups that watch them; at a real log."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.config.group import TimedReset
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import LogUnavailableError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import PartitionOffsets
from sharegroup.processor.watches.log_watch import LogWatch
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import RequestEnvelope
from tests.processor.watching import EPOCH, Watching, ends, forget, produce, watch
from tests.support.eventually import eventually


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as opened:
        yield opened


@pytest.fixture
def watching(log: LocalLog) -> Iterator[Watching]:
    with Watching(log) as started:
        yield started


def marker(log: LocalLog, watching: Watching) -> None:
    """Wait until the watch has handled all that came before: a later growth is sent."""
    log.create_topic("marker", 1, if_not_exists=True)
    before = len(watching.topics("marker"))
    produce(log, "marker", 0)
    watching.update(watch(log, "marker", {0: 0}, "marker"))
    eventually(lambda: len(watching.topics("marker")) > before, "the marker is sent")


def test_growth_that_happened_before_the_watch_is_reported(log: LocalLog, watching: Watching) -> None:
    topic_id = log.create_topic("orders", 3).topic_id
    produce(log, "orders", 1, 7)
    watching.update(watch(log, "orders", {0: 0, 1: 3}))
    (topic,) = eventually(watching.topics, "the growth is sent")
    assert (topic.topic, topic.topic_id, topic.partition_count, ends(topic)) == ("orders", topic_id, 3, {1: 7})
    (envelope,) = watching.sent
    assert (envelope.api_key, envelope.group_id, envelope.leader_epoch) == (ApiKey.LOG_OFFSETS, "group", EPOCH)


def test_growth_after_the_watch_is_reported_once(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 2)
    watching.update(watch(log, "orders", {0: 0, 1: 0}))
    marker(log, watching)
    produce(log, "orders", 0, 5)
    eventually(lambda: watching.topics("group"), "the growth of partition 0 is sent")
    produce(log, "orders", 0, 5)
    produce(log, "orders", 1, 1)
    eventually(lambda: len(watching.topics("group")) > 1, "the growth of partition 1 is sent")
    assert [ends(topic) for topic in watching.topics("group")] == [{0: 5}, {1: 1}]


def test_watches_add_up(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 2)
    watching.update(watch(log, "orders", {0: 0}), watch(log, "orders", {1: 0}))
    produce(log, "orders", 0)
    eventually(lambda: {0: 1} in map(ends, watching.topics()), "the growth of partition 0 is sent")
    produce(log, "orders", 1)
    eventually(lambda: {1: 1} in map(ends, watching.topics()), "the growth of partition 1 is sent")


def test_a_forgotten_watch_of_a_former_topic_leaves_the_present_one(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 1)
    watching.update(watch(log, "orders", {0: 0}, "former"))
    marker(log, watching)
    forgotten = forget(log, "orders", [0], "former")
    log.delete_topic("orders")
    topic_id = log.create_topic("orders", 1).topic_id
    # Two polls: the second one would mend a watch that the first one has missed.
    seen = partial(watching.watch._topics.identity, "orders")
    eventually(lambda: (present := seen()) and present[0].topic_id == topic_id, "the new topic is seen")
    eventually(lambda: watching.watch._topics._views["orders"]._seen_count > 1, "it is seen again")
    watching.update(watch(log, "orders", {0: 0}))
    marker(log, watching)
    watching.update(forgotten)
    marker(log, watching)
    produce(log, "orders", 0)
    eventually(lambda: watching.topics("group"), "the growth is sent")


def test_a_forgotten_watch_is_not_reported(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 2)
    watching.update(watch(log, "orders", {0: 0, 1: 0}))
    marker(log, watching)
    watching.update(forget(log, "orders", [0]))
    produce(log, "orders", 0)
    marker(log, watching)
    produce(log, "orders", 1)
    eventually(lambda: watching.topics("group"), "the growth of partition 1 is sent")
    assert [ends(topic) for topic in watching.topics("group")] == [{1: 1}]


def test_a_new_watch_on_a_reported_partition_is_reported_again(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 1)
    for end in range(1, 20):
        watching.update(watch(log, "orders", {0: end - 1}))
        produce(log, "orders", 0)
        eventually(partial(watching.has_topics, end), f"growth number {end} is sent", pause_s=0.001)
    assert [ends(topic) for topic in watching.topics()] == [{0: end} for end in range(1, 20)]


def test_a_watch_below_all_offsets_is_reported_for_an_empty_partition(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 2)
    watching.update(watch(log, "orders", {1: -1}))
    (topic,) = eventually(watching.topics, "the offsets are sent")
    assert ends(topic) == {1: 0}


def test_a_watch_below_all_offsets_gets_the_start_by_duration(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 1)
    produce(log, "orders", 0, 3)
    topic_id = log.describe_topic("orders").topic_id
    watching.update(WatchTopics("group", {"orders": (topic_id, 1)}, reset=TimedReset(3_600_000)))
    marker(log, watching)
    log.delete_records("orders", 0, 1)
    watching.update(watch(log, "orders", {0: -1}))
    eventually(lambda: watching.topics("group"), "the offsets are sent")
    (topic,) = watching.topics("group")
    assert [partition.reset_offset for partition in topic.partitions] == [1]


def test_only_the_groups_that_watch_a_partition_are_reported_in_one_append(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 10)
    groups = [f"group-{number:03}" for number in range(100)]
    watching.update(*(watch(log, "orders", {number % 2: 0, 2 + number % 8: 0}, g) for number, g in enumerate(groups)))
    marker(log, watching)
    sends = len(watching.sends)
    produce(log, "orders", 1)
    eventually(lambda: len(watching.sends) > sends, "the growth is sent")
    assert watching.sends[sends:] == [50]
    assert watching.groups()[-50:] == groups[1::2]
    assert ends(watching.topics()[-1]) == {1: 1}


def test_growth_in_several_topics_is_one_message_a_group(log: LocalLog, watching: Watching) -> None:
    for topic in ("orders", "payments"):
        log.create_topic(topic, 1)
        produce(log, topic, 0)
    watching.watch.update([watch(log, "orders", {0: 1}), watch(log, "payments", {0: 1})])
    marker(log, watching)
    watching.watch.update([watch(log, "orders", {0: 0}), watch(log, "payments", {0: 0})])
    eventually(lambda: len(watching.topics("group")) == 2, "both are informed")
    assert {topic.topic for topic in watching.topics("group")} == {"orders", "payments"}


class TransactionalLog(LocalLog):
    """A local log in which a transaction is open from an offset on."""

    last_stable_offset = 0

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, PartitionOffsets]:
        seen = super().offsets(topic, partitions, timeout_ms)
        return {p: replace(offsets, last_stable_offset=self.last_stable_offset) for p, offsets in seen.items()}


def test_a_read_committed_watch_is_reported_by_the_last_stable_offset(tmp_path: Path) -> None:
    with TransactionalLog(tmp_path / "log.db") as log, Watching(log) as watching:
        log.create_topic("orders", 1)
        committed = watch(log, "orders", {0: 0})._replace(isolation_level=IsolationLevel.READ_COMMITTED)
        watching.update(committed, watch(log, "orders", {0: 0}, "another"))
        produce(log, "orders", 0, 5)
        eventually(watching.topics, "the growth is sent to the group that reads uncommitted records")
        assert watching.groups() == ["another"]
        log.last_stable_offset = 3
        eventually(lambda: len(watching.sent) > 1, "the last stable offset is sent to the other one")
        assert watching.groups() == ["another", "group"]
        assert [topic.partitions[0].last_stable_offset for topic in watching.topics()] == [0, 3]


def test_a_group_that_turns_to_read_uncommitted_is_reported_what_was_not_stable(tmp_path: Path) -> None:
    with TransactionalLog(tmp_path / "log.db") as log, Watching(log) as watching:
        topic_id = log.create_topic("orders", 1).topic_id
        produce(log, "orders", 0, 5)
        watching.update(watch(log, "orders", {0: 0})._replace(isolation_level=IsolationLevel.READ_COMMITTED))
        watching.update(WatchLog("group", {}, isolation_level=IsolationLevel.READ_UNCOMMITTED))
        (topic,) = eventually(watching.topics, "the end is sent")
        assert (topic.topic_id, ends(topic)) == (topic_id, {0: 5})


def test_a_watch_is_not_reported_for_another_topic_of_the_same_name(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 1)
    old = watch(log, "orders", {0: 3})
    log.delete_topic("orders")
    log.create_topic("orders", 1)
    produce(log, "orders", 0, 10)
    watching.update(old)
    marker(log, watching)
    assert watching.topics("group") == []


def test_a_watch_on_a_deleted_topic_harms_nobody(log: LocalLog, watching: Watching) -> None:
    log.create_topic("gone", 1)
    log.create_topic("orders", 1)
    watching.update(watch(log, "gone", {0: 0}))
    marker(log, watching)
    log.delete_topic("gone")
    watching.update(watch(log, "orders", {0: 0}, "other"))
    produce(log, "orders", 0)
    eventually(lambda: watching.topics("other"), "the other group is informed")
    assert watching.topics("group") == []


def test_the_end_of_a_thread_is_reported_with_its_cause(log: LocalLog) -> None:
    cause = LogUnavailableError("The disk is full.")
    failures: list[BaseException] = []

    def refuse(messages: list[RequestEnvelope]) -> None:
        raise cause

    log.create_topic("orders", 1)
    log_watch = LogWatch(log, refuse, EPOCH, failures.append)
    log_watch.start()
    log_watch.update([watch(log, "orders", {0: -1})])
    eventually(lambda: failures, "the failure is reported")
    log_watch.stop()
    assert failures == [cause]


@pytest.mark.parametrize("watches", [True, False])
def test_a_stopped_watch_sends_nothing_more(log: LocalLog, watches: bool) -> None:
    log.create_topic("orders", 1)
    before = set(threading.enumerate())
    with Watching(log) as watching:
        if watches:
            watching.update(watch(log, "orders", {0: 0}))
    watching.update(watch(log, "orders", {0: 0}))
    produce(log, "orders", 0)
    assert watching.sent == []
    assert set(threading.enumerate()) <= before


def test_stop_before_start_does_nothing(log: LocalLog) -> None:
    Watching(log).watch.stop()
