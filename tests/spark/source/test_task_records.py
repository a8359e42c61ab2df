"""The records that a task of the source reads, also of topics that were deleted or created again meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.client.held_records import HeldRange
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.source.task_records import TaskPartition, read_task


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


def test_records_of_a_deleted_topic_are_left_out(log: LocalLog) -> None:
    ranges = [held(log, topic, 3) for topic in ("orders", "payments")]
    assert values(log, *ranges) == [b"orders"] * 3 + [b"payments"] * 3
    log.delete_topic("orders")
    assert values(log, *ranges) == [b"payments"] * 3


def test_records_of_a_topic_that_was_created_again_are_others(log: LocalLog) -> None:
    former = held(log, "orders", 3)
    log.delete_topic("orders")
    present = held(log, "orders", 2)
    assert values(log, former) == []
    assert values(log, former, present) == [b"orders"] * 2


def test_a_task_fails_when_a_topic_is_created_again_while_it_reads(log: LocalLog) -> None:
    ranges = [held(log, topic, 3) for topic in ("orders", "payments")]
    batches = read_task(TaskPartition(str(log.path), ranges, None))
    next(batches)
    log.delete_topic("orders")
    log.create_topic("orders", 1)
    with pytest.raises(UnknownTopicError, match="Topic orders was deleted or created again"):
        list(batches)
