"""Topics that appear, change and disappear, sent to the groups that watch them; at a real log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sharegroup.actor.effects import WatchTopics
from sharegroup.config.group import TimedReset
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol import message_portions
from sharegroup.protocol.message_portions import LOG_OFFSETS_BYTES, TOPIC_BYTES
from tests.processor.watching import EPOCH, Watching, ends, produce, topics_of
from tests.support.eventually import eventually

DAY_MS = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as opened:
        yield opened


@pytest.fixture
def watching(log: LocalLog) -> Iterator[Watching]:
    with Watching(log) as started:
        yield started


@pytest.mark.parametrize("happens", ["before", "after"])
def test_a_topic_that_the_group_does_not_know_is_reported(log: LocalLog, watching: Watching, happens: str) -> None:
    def create() -> None:
        log.create_topic("orders", 2)
        produce(log, "orders", 1, 4)

    if happens == "before":
        create()
    watching.update(WatchTopics("group", {"orders": ("", 0)}))
    if happens == "after":
        create()
    topic = eventually(watching.topics, "the topic is sent")[0]
    assert (topic.topic, topic.topic_id, topic.partition_count) == ("orders", log.describe_topic("orders").topic_id, 2)
    assert ends(topic).keys() == {0, 1}
    assert watching.sent[0].leader_epoch == EPOCH


def test_a_topic_that_is_as_the_group_knows_it_is_not_reported(log: LocalLog, watching: Watching) -> None:
    topic_id = log.create_topic("orders", 2).topic_id
    log.create_topic("others", 1)
    watching.update(WatchTopics("group", {"orders": (topic_id, 2), "absent": ("", 0)}))
    watching.update(WatchTopics("other", {"others": ("", 0)}))
    eventually(lambda: watching.topics("other"), "the other group is informed")
    assert watching.topics("group") == []


def test_all_groups_that_watch_a_topic_are_reported_in_one_append(log: LocalLog, watching: Watching) -> None:
    groups = [f"group-{number}" for number in range(9)]
    watching.update(*(WatchTopics(group_id, {"orders": ("", 0)}) for group_id in groups))
    log.create_topic("orders", 1)
    eventually(watching.topics, "the topic is sent")
    assert (watching.groups(), watching.sends) == (groups, [9])


@pytest.mark.slow
def test_a_topic_that_is_not_looked_up_yet_is_reported_whatever_it_is(log: LocalLog, watching: Watching) -> None:
    topic_id = log.create_topic("orders", 2).topic_id
    watching.update(WatchTopics("group", {"orders": ("", -1), "absent": ("", -1)}))
    eventually(lambda: len(watching.topics()) == 2, "both topics are sent")
    assert [(t.topic, t.topic_id, t.partition_count) for t in watching.topics()] == [
        ("orders", topic_id, 2),
        ("absent", "", 0),
    ]


@pytest.mark.slow
def test_a_deleted_topic_is_reported_without_an_id_after_some_seconds(log: LocalLog, watching: Watching) -> None:
    topic_id = log.create_topic("orders", 2).topic_id
    watching.update(WatchTopics("group", {"orders": (topic_id, 2)}), WatchTopics("marker", {"marker": ("", 0)}))
    log.delete_topic("orders")
    log.create_topic("marker", 1)
    eventually(lambda: watching.topics("marker"), "a lookup was made")
    assert watching.topics("group") == []
    (topic,) = eventually(lambda: watching.topics("group"), "the deletion is sent")
    assert (topic.topic, topic.topic_id, topic.partition_count, topic.partitions) == ("orders", "", 0, [])


def test_a_topic_that_was_created_again_is_reported_with_its_new_id_only(log: LocalLog, watching: Watching) -> None:
    old_id = log.create_topic("orders", 2).topic_id
    watching.update(WatchTopics("group", {"orders": (old_id, 2)}))
    log.delete_topic("orders")
    new_id = log.create_topic("orders", 3).topic_id
    (topic,) = eventually(watching.topics, "the new topic is sent")
    assert (topic.topic_id, topic.partition_count, ends(topic)) == (new_id, 3, {0: 0, 1: 0, 2: 0})


def test_later_lookups_have_a_higher_sequence(log: LocalLog, watching: Watching) -> None:
    log.create_topic("orders", 2)
    for count in range(1, 4):
        watching.update(WatchTopics("group", {"orders": ("", 0)}))
        eventually(partial(watching.has_topics, count), "the topic is sent")
    sequences = [topic.sequence for topic in watching.topics()]
    assert sequences[0] > 0
    assert sequences == sorted(set(sequences))


def test_a_group_that_watches_no_topics_any_more_is_not_reported(log: LocalLog, watching: Watching) -> None:
    watching.update(WatchTopics("group", {"orders": ("", 0)}), WatchTopics("group", {}))
    watching.update(WatchTopics("other", {"orders": ("", 0)}))
    log.create_topic("orders", 1)
    eventually(watching.topics, "the other group is informed")
    assert watching.groups() == ["other"]


@pytest.mark.parametrize("kind", ["by duration", "to a point of time"])
def test_a_reset_by_time_is_resolved_to_offsets(log: LocalLog, watching: Watching, kind: str) -> None:
    log.create_topic("orders", 2)
    for age_days in (3, 2, 1, 0):
        log.append("orders", 0, [NewRecord(None, b"value", timestamp_ms=log.now_ms() - age_days * DAY_MS)])
    age_ms = DAY_MS + DAY_MS // 2
    reset = TimedReset(age_ms) if kind == "by duration" else TimedReset(since_ms=log.now_ms() - age_ms)
    watching.update(
        WatchTopics("group", {"orders": ("", 0)}, reset=reset),
        WatchTopics("other", {"orders": ("", 0)}),
    )
    eventually(lambda: len(watching.sent) == 2, "both groups are informed")
    resets = {
        group_id: [p.reset_offset for p in watching.topics(group_id)[0].partitions] for group_id in watching.groups()
    }
    assert resets == {"group": [2, 0], "other": [-1, -1]}


class VanishingTopicLog(LocalLog):
    """A local log of which a topic is deleted at the moment when a time is looked up in it."""

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        if topic == "vanishing":
            self.delete_topic(topic)
        return super().offset_for_time(topic, partition, timestamp_ms)


def test_a_topic_that_is_deleted_while_a_reset_is_resolved_harms_nobody(tmp_path: Path) -> None:
    with VanishingTopicLog(tmp_path / "log.db") as log, Watching(log) as watching:
        log.create_topic("vanishing", 1)
        watching.update(WatchTopics("group", {"vanishing": ("", 0)}, reset=TimedReset(DAY_MS)))
        watching.update(WatchTopics("other", {"orders": ("", 0)}, reset=TimedReset(DAY_MS)))
        eventually(lambda: all(topic.name != "vanishing" for topic in log.topics()), "the topic is deleted")
        log.create_topic("orders", 1)
        eventually(watching.topics, "the other topic is sent")
        assert watching.groups() == ["other"]


def test_offsets_of_many_partitions_are_several_messages(
    log: LocalLog, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_portions, "MAX_PORTION_BYTES", TOPIC_BYTES + 2 * LOG_OFFSETS_BYTES)
    log.create_topic("orders", 5)
    watching.update(WatchTopics("group", {"orders": ("", 0)}))
    eventually(watching.topics, "the topic is sent")
    messages = [
        [(t.topic, t.partition_count, sorted(ends(t))) for t in topics_of(envelope)] for envelope in watching.sent
    ]
    assert messages == [[("orders", 5, [0, 1])], [("orders", 5, [2, 3])], [("orders", 5, [4])]]
