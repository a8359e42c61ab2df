"""The watch of partitions' ends: those that are watched for long move to another consumer, and miss nothing."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from sharegroup.logs import kafka_end_watch
from sharegroup.logs.kafka_end_watch import KafkaEndWatch
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from tests.support.eventually import WAIT_MS, eventually

pytestmark = pytest.mark.kafka

SETTLED_AFTER_S = 0.2
SETTLING_MS = 1_700
"""With the second for which a partition stays with both consumers."""


@pytest.fixture
def watch(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaEndWatch]:
    monkeypatch.setattr(kafka_end_watch, "_SETTLED_AFTER_S", SETTLED_AFTER_S)
    watch = log.watch_ends()
    yield watch
    watch.close()


def await_settling(watch: KafkaEndWatch, *, is_complete: bool = True) -> None:
    """Wait until what is watched is with the second consumer, and, if that is to be complete, with no other."""

    def is_settled() -> bool:
        assert not watch.wait(20).partitions
        has_begun = watch._settled is not None and watch._settled.assigned.keys() >= watch._watched.keys()
        return has_begun and not (is_complete and watch._new.assigned)

    eventually(is_settled, "the partitions have moved")


def test_growth_is_seen_after_a_long_watch_and_when_the_partition_is_watched_again(
    log: KafkaLog, watch: KafkaEndWatch
) -> None:
    topic = log.create_topic(f"orders-{uuid4().hex[:8]}", 3).name
    watch.watch(topic, dict.fromkeys(range(3), 0))
    await_settling(watch)
    for end_offset in range(5):
        log.append(topic, 1, [NewRecord(None, b"x")])
        assert watch.wait(WAIT_MS).partitions == {topic: {1}}
        watch.watch(topic, {1: end_offset + 1})
    assert not watch.wait(SETTLING_MS).partitions
    log.append(topic, 0, [NewRecord(None, b"x")])
    assert watch.wait(WAIT_MS).partitions == {topic: {0}}


def test_new_and_settled_partitions_are_watched_side_by_side(log: KafkaLog, watch: KafkaEndWatch) -> None:
    first, second = (log.create_topic(f"orders-{uuid4().hex[:8]}", 1).name for _ in range(2))
    watch.watch(first, {0: 0})
    await_settling(watch)
    watch.watch(second, {0: 0})
    log.append(second, 0, [NewRecord(None, b"x")])
    assert watch.wait(WAIT_MS).partitions == {second: {0}}
    log.append(first, 0, [NewRecord(None, b"x")])
    assert watch.wait(WAIT_MS).partitions == {first: {0}}


def test_what_is_forgotten_while_it_moves_is_not_reported(log: KafkaLog, watch: KafkaEndWatch) -> None:
    topic = log.create_topic(f"orders-{uuid4().hex[:8]}", 2).name
    watch.watch(topic, {0: 0, 1: 0})
    await_settling(watch, is_complete=False)
    watch.forget(topic, [0])
    log.append(topic, 0, [NewRecord(None, b"x")])
    log.append(topic, 1, [NewRecord(None, b"x")])
    assert watch.wait(WAIT_MS).partitions == {topic: {1}}
