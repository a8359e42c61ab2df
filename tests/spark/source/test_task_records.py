"""The records that a task of the source reads, also of topics that were deleted or created again meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sharegroup.client.held_records import HeldRange
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord, TopicDescription
from sharegroup.spark.source.task_records import TaskPartition, read_task
from tests.support.eventually import eventually


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "events.log") as opened:
        yield opened


def held(log: LocalLog, topic: str, count: int) -> HeldRange:
    """All records of a new topic."""
    topic_id = log.create_topic(topic, 1).topic_id
    log.append(topic, 0, [NewRecord(b"key", topic.encode())] * count)
    return HeldRange(topic_id, topic, 0, 0, count - 1, 1)


def values(log: LocalLog, *ranges: HeldRange) -> list[bytes]:
    batches = read_task(TaskPartition(str(log.path), ranges, None))
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def rename(log: LocalLog, topic: str, name: str) -> None:
    """Make a topic unknown by its name, as one is to a Kafka broker that has not learned of it yet."""
    with closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("UPDATE topics SET name = ? WHERE name = ?", (name, topic))


@pytest.mark.slow
def test_records_of_a_deleted_topic_are_left_out(log: LocalLog) -> None:
    ranges = [held(log, topic, 3) for topic in ("orders", "payments")]
    assert values(log, *ranges) == [b"orders"] * 3 + [b"payments"] * 3
    log.delete_topic("orders")
    assert values(log, *ranges) == [b"payments"] * 3


@pytest.mark.long("a missing topic is certain after seconds only")
@pytest.mark.slow
def test_records_of_a_topic_that_was_created_again_are_others(log: LocalLog) -> None:
    former = held(log, "orders", 3)
    log.delete_topic("orders")
    present = held(log, "orders", 2)
    assert values(log, former) == []
    assert values(log, former, present) == [b"orders"] * 2


def test_a_topic_that_one_lookup_misses_is_read(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = [held(log, topic, 3) for topic in ("orders", "payments")]
    lookups: list[str] = []
    describe = LocalLog.describe_topic

    def described(log: LocalLog, name: str) -> TopicDescription:
        lookups.append(name)
        return describe(log, name)

    monkeypatch.setattr(LocalLog, "describe_topic", described)
    rename(log, "orders", "unknown-for-now")
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(values, log, *ranges)
        eventually(lambda: lookups.count("orders") > 1 or reading.done(), "the task looks the topic up again")
        rename(log, "unknown-for-now", "orders")
        assert reading.result() == [b"orders"] * 3 + [b"payments"] * 3


@pytest.mark.slow
def test_a_task_fails_when_a_topic_is_created_again_while_it_reads(log: LocalLog) -> None:
    ranges = [held(log, topic, 3) for topic in ("orders", "payments")]
    batches = read_task(TaskPartition(str(log.path), ranges, None))
    next(batches)
    log.delete_topic("orders")
    log.create_topic("orders", 1)
    with pytest.raises(UnknownTopicError, match="Topic orders was deleted or created again"):
        list(batches)
