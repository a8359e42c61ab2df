"""Offsets without a record on a real broker: markers, aborted records, compaction, deletion, retention."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord, PartitionOffsets
from tests.kafka.compacted_topic import compacted_topic
from tests.kafka.conftest import Begin
from tests.support.eventually import WAIT_MS, eventually
from tests.support.kafka_broker import KafkaBroker

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def offsets_of(log: KafkaLog, topic: str, start: int, end: int, isolation_level: IsolationLevel) -> list[int]:
    return [record.offset for record in log.read(topic, 0, start, end, isolation_level=isolation_level)]


def test_markers_and_aborted_records(log: KafkaLog, events: str, begin: Begin) -> None:
    begin(events, ["a", "b"]).commit_transaction(30)  # offsets 0 and 1, marker at 2
    # The brokers write the marker after they have responded to the commit.
    eventually(lambda: log.offsets(events)[0].last_stable_offset == 3, "the first transaction is over")
    begin(events, ["x", "y"]).abort_transaction(30)  # offsets 3 and 4, marker at 5
    eventually(lambda: log.offsets(events)[0].last_stable_offset == 6, "the second transaction is over")
    log.append(events, 0, [NewRecord(None, b"z")])
    assert log.offsets(events)[0] == PartitionOffsets(0, 7, 7)
    assert offsets_of(log, events, 0, 7, UNCOMMITTED) == [0, 1, 3, 4, 6]
    assert offsets_of(log, events, 0, 7, COMMITTED) == [0, 1, 6]
    # Ranges that begin or end at a gap, or are nothing else.
    assert offsets_of(log, events, 2, 4, UNCOMMITTED) == [3]
    assert offsets_of(log, events, 2, 6, COMMITTED) == []
    assert offsets_of(log, events, 3, 5, COMMITTED) == []
    assert offsets_of(log, events, 5, 6, UNCOMMITTED) == []
    assert offsets_of(log, events, 1, 3, COMMITTED) == [1]


@pytest.mark.parametrize("isolation_level", IsolationLevel)
def test_a_marker_at_the_end_of_the_log(
    log: KafkaLog, events: str, begin: Begin, isolation_level: IsolationLevel
) -> None:
    begin(events, ["a"]).commit_transaction(30)
    eventually(lambda: log.offsets(events)[0] == PartitionOffsets(0, 2, 2), "the transaction is over")
    assert offsets_of(log, events, 0, 2, isolation_level) == [0]
    assert offsets_of(log, events, 1, 2, isolation_level) == []
    assert log.append(events, 0, [NewRecord(None, b"b")]) == 2
    assert offsets_of(log, events, 1, 3, isolation_level) == [2]


def test_the_last_stable_offset_of_an_open_transaction(log: KafkaLog, events: str, begin: Begin) -> None:
    log.append(events, 0, [NewRecord(None, b"before")])
    transaction = begin(events, ["a", "b"])
    log.append(events, 0, [NewRecord(None, b"after")])
    assert log.offsets(events)[0] == PartitionOffsets(0, 4, 1)
    assert offsets_of(log, events, 0, 4, UNCOMMITTED) == [0, 1, 2, 3]
    assert offsets_of(log, events, 0, 4, COMMITTED) == [0]
    assert offsets_of(log, events, 2, 4, COMMITTED) == []
    transaction.commit_transaction(30)
    eventually(lambda: log.offsets(events)[0] == PartitionOffsets(0, 5, 5), "the transaction is over")
    assert offsets_of(log, events, 0, 5, COMMITTED) == [0, 1, 2, 3]


def has_grown(log: KafkaLog, topic: str, end_offsets: dict[int, int], timeout_ms: int) -> bool:
    """Wait until a partition grows above its offset; return False when the time is over first."""
    watch = log.watch_ends()
    watch.watch(topic, end_offsets)
    try:
        return bool(watch.wait(timeout_ms).partitions)
    finally:
        watch.close()


def test_a_compacted_topic(log: KafkaLog) -> None:
    topic = compacted_topic(log)

    def remaining() -> list[int]:
        # Only segments that are closed are compacted, and an append closes one that is old enough.
        log.append(topic, 0, [NewRecord(b"filler", b"")])
        records = log.read(topic, 0, 0, 12)
        return [record.offset for record in records] if len(records) < 12 else []

    assert eventually(remaining, "the topic is compacted") == [9, 10, 11]
    assert [record.offset for record in log.read(topic, 0, 2, 10)] == [9]
    assert log.read(topic, 0, 3, 8) == []
    assert log.offsets(topic)[0].start_offset == 0


def test_records_deleted_below_a_reader(log: KafkaLog, events: str) -> None:
    log.append(events, 0, [NewRecord(None, b"%d" % number) for number in range(10)])
    assert [record.offset for record in log.read(events, 0, 0, 10, 2)] == [0, 1]
    log.delete_records(events, 0, 6)
    assert log.offsets(events)[0] == PartitionOffsets(6, 10, 10)
    # What an earlier read fetched ahead is not in the log any more.
    assert [record.offset for record in log.read(events, 0, 2, 8)] == [6, 7]
    assert log.read(events, 0, 0, 6) == []
    log.delete_records(events, 0, 10)
    assert log.read(events, 0, 0, 10) == []
    assert has_grown(log, events, {0: 3}, WAIT_MS)
    assert not has_grown(log, events, {0: 10}, 30)


def test_retention(log: KafkaLog) -> None:
    topic = log.create_topic(f"short-{uuid4().hex[:8]}", 1, {"retention.ms": "1000"}).name
    log.append(topic, 0, [NewRecord(None, b"old", timestamp_ms=1)] * 3)
    eventually(lambda: log.offsets(topic)[0] == PartitionOffsets(3, 3, 3), "the broker deletes what is old")
    assert log.read(topic, 0, 0, 3) == []
    assert log.append(topic, 0, [NewRecord(None, b"new", timestamp_ms=log.now_ms() + 1_800_000)]) == 3
    assert [record.offset for record in log.read(topic, 0, 0, 4)] == [3]


def test_partitions_that_are_added(log: KafkaLog, events: str, broker: KafkaBroker) -> None:
    log.append(events, 0, [NewRecord(None, b"a")])
    before = log.describe_topic(events)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(events, 3)]).values():
        future.result()
    eventually(lambda: log.describe_topic(events).partition_count == 3, "the brokers know the new partitions")
    assert log.describe_topic(events).topic_id == before.topic_id
    assert log.offsets(events) == {
        0: PartitionOffsets(0, 1, 1),
        1: PartitionOffsets(0, 0, 0),
        2: PartitionOffsets(0, 0, 0),
    }
    assert not has_grown(log, events, {0: 1, 2: 0}, 30)
    assert log.append(events, 2, [NewRecord(None, b"b")]) == 0
    assert has_grown(log, events, {0: 1, 2: 0}, WAIT_MS)
    assert [record.value for record in log.read(events, 2, 0, 1)] == [b"b"]
