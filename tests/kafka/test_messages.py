"""Acquired ranges read from a real broker: several partitions, deletion, another topic of the name, no leader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.client.held_records import HeldRange, offset_of
from sharegroup.client.record_reader import Chunk, RecordReader
from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord, OffsetSpan, TopicIdentity
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker
from tests.support.silent_broker import SilentBroker

pytestmark = pytest.mark.kafka

RECORDS = 300
VALUE = b"x" * 10_000
"""A megabyte, which one fetch brings of a partition, is a third of it."""


@pytest.fixture
def topic(log: KafkaLog) -> str:
    """Two partitions of 300 records of 10,000 bytes."""
    name = log.create_topic(f"messages-{uuid4().hex[:8]}", 2).name
    for partition in range(2):
        for first in range(0, RECORDS, 50):
            log.append(name, partition, [NewRecord(b"%d" % (first + n), VALUE, (("h", b"1"),)) for n in range(50)])
    return name


def held(log: KafkaLog, topic: str, *ranges: tuple[int, int, int]) -> list[HeldRange]:
    topic_id = log.describe_topic(topic).topic_id
    return [HeldRange(topic_id, topic, partition, first, last, 1) for partition, first, last in ranges]


def leaderless(log: KafkaLog, topic: str) -> frozenset[int]:
    """The partitions without a leader; all of them, while a broker does not know the topic."""
    identity = log.identify([topic])[topic]
    return identity.leaderless if isinstance(identity, TopicIdentity) else frozenset(range(3))


def offsets(chunk: Chunk) -> list[tuple[int, int]]:
    return [(read.held.partition, offset_of(record)) for read in chunk.ranges for record in read.records]


def unreadable(chunk: Chunk) -> list[tuple[int, int, int, str]]:
    """Partition, first and last offset and reason of the ranges that are returned unread."""
    returned = [missing for read in chunk.unreadable for missing in read.missing]
    assert all(ack.acknowledge_type is AcknowledgeType.UNREAD for ack in returned)
    return [(ack.partition, ack.first_offset, ack.last_offset, ack.reason) for ack in returned]


def test_everything_is_read_once_in_reads_that_end_at_the_bound(log: KafkaLog, topic: str) -> None:
    reader = RecordReader(log, 50_000_000, 1_000_000)
    rest = tuple(held(log, topic, (0, 0, RECORDS - 1), (1, 0, RECORDS - 1)))
    read: list[tuple[int, int]] = []
    while rest:
        chunk = reader.read(rest, 1_000)
        assert chunk.missing == []
        read += offsets(chunk)
        rest = chunk.rest
    assert sorted(read) == [(partition, offset) for partition in range(2) for offset in range(RECORDS)]


def test_a_message_has_all_that_the_record_has(log: KafkaLog, topic: str) -> None:
    (read,) = RecordReader(log, 1_000_000).read(held(log, topic, (1, 7, 7)), 10).ranges
    (record,) = read.records
    assert (record.topic(), record.partition(), record.offset()) == (topic, 1, 7)
    assert (record.key(), record.value(), record.headers()) == (b"7", VALUE, [("h", b"1")])
    assert record.timestamp()[0] == 1


def test_ranges_of_others_in_between_are_left_out(log: KafkaLog, topic: str) -> None:
    chunk = RecordReader(log, 50_000_000).read(held(log, topic, (0, 3, 4), (0, 9, 9), (1, 0, 1), (0, 290, 299)), 100)
    assert offsets(chunk) == [(0, o) for o in (3, 4, 9, *range(290, 300))] + [(1, 0), (1, 1)]
    assert chunk.rest == ()


def test_deleted_records_are_gaps(log: KafkaLog, topic: str) -> None:
    reader = RecordReader(log, 50_000_000)
    assert offsets(reader.read(held(log, topic, (0, 0, 1)), 10)) == [(0, 0), (0, 1)]
    log.delete_records(topic, 0, 200)
    # Records below were fetched along with the first ones, and may be read all the same.
    chunk = reader.read(held(log, topic, (0, 150, 201)), 100)
    seen = [offset for _, offset in offsets(chunk)]
    assert seen[-2:] == [200, 201]
    missing = [(ack.first_offset, ack.last_offset, ack.acknowledge_type) for ack in chunk.missing]
    assert missing in ([], [(150, 199, AcknowledgeType.GAP)])
    again = RecordReader(log, 50_000_000).read(held(log, topic, (0, 299, 305)), 100)
    assert offsets(again) == [(0, 299)]
    (rest,) = RecordReader(log, 50_000_000).read(again.rest, 100).missing
    assert (rest.first_offset, rest.last_offset, rest.acknowledge_type) == (300, 305, AcknowledgeType.UNREAD)


def test_a_topic_that_was_created_again_is_not_read(log: KafkaLog, topic: str) -> None:
    reader = RecordReader(log, 50_000_000)
    ranges = held(log, topic, (0, 0, 9))
    log.delete_topic(topic)
    log.create_topic(topic, 2)
    log.append(topic, 0, [NewRecord(None, b"new")] * 20)
    chunk = reader.read(ranges, 100)
    assert (chunk.ranges, chunk.rest) == ([], ())
    assert unreadable(chunk) == [(0, 0, 9, "the topic does not exist, or was created again")]


def test_a_partition_whose_first_records_are_deleted_meanwhile_has_no_hole(log: KafkaLog, topic: str) -> None:
    topic_id = log.describe_topic(topic).topic_id
    log.delete_records(topic, 0, 200)
    # The bounds of the log were read before the deletion.
    spans = {0: OffsetSpan(150, 210, known_end_offset=210), 1: OffsetSpan(0, 1, known_end_offset=1)}
    assert set(log.read_messages(topic, topic_id, spans, 1_000_000)) == {1}


@pytest.fixture
def second_broker(kafka_to_kill: KafkaBroker, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A node for one test, beside a broker that no other kind of test needs: internal topics may be put on it."""
    with KafkaBroker("4.3.1", tmp_path / "second", joins=kafka_to_kill) as second:
        yield second


@pytest.fixture
def log_to_kill(kafka_to_kill: KafkaBroker) -> Iterator[KafkaLog]:
    with kafka_to_kill.open_log() as opened:
        yield opened


@pytest.mark.long("a second broker, and partitions without a leader")
@pytest.mark.slow
def test_a_partition_without_a_leader_holds_up_no_other(
    kafka_to_kill: KafkaBroker, second_broker: KafkaBroker, log_to_kill: KafkaLog
) -> None:
    log, topic = log_to_kill, f"messages-{uuid4().hex[:8]}"
    kafka_to_kill.create_topics({topic: [1, 2, 1]})
    eventually(lambda: not leaderless(log, topic), "all partitions have leaders")
    for partition in range(2):
        log.append(topic, partition, [NewRecord(None, b"v")] * 10)
    # The third partition has no records.
    ranges = held(log, topic, (0, 0, 9), (1, 0, 9), (2, 0, 9))
    reader = RecordReader(log, 50_000_000)
    second_broker.kill()
    # The metadata may still name the broker that is gone.
    first = reader.read(ranges, 100)
    assert offsets(first) == [(0, offset) for offset in range(10)]
    assert {missing.partition for missing in first.missing} == {2}
    left = [held.partition for held in first.rest] + [read.held.partition for read in first.unreadable]
    assert left == [1]
    eventually(lambda: leaderless(log, topic) == {1}, "the cluster knows that the partition has no leader")
    second = RecordReader(log, 50_000_000).read(ranges, 100)
    assert offsets(second) == offsets(first)
    assert unreadable(second) == [(1, 0, 9, "the partition has no leader")]
    alone = reader.read(ranges[1:2], 100)
    assert (alone.ranges, alone.rest, unreadable(alone)) == ([], (), unreadable(second))
    second_broker.start()
    eventually(lambda: not leaderless(log, topic), "the partition has a leader again")
    assert offsets(reader.read(ranges[1:2], 100)) == [(1, offset) for offset in range(10)]


@pytest.mark.long("a leader that does not respond for seconds")
@pytest.mark.slow
def test_a_leader_that_does_not_respond_holds_up_no_other_partition(kafka_to_kill: KafkaBroker, tmp_path: Path) -> None:
    topic = f"messages-{uuid4().hex[:8]}"
    with (
        SilentBroker("4.3.1", tmp_path / "second", kafka_to_kill) as second,
        KafkaLog(KafkaConfig(bootstrap_servers=kafka_to_kill.bootstrap_servers), timeout_ms=30_000) as log,
    ):
        kafka_to_kill.create_topics({topic: [1, 2]})

        def is_known() -> bool:
            """Return True if both leaders know the topic: brokers' metadata lags."""
            try:
                return len(log.offsets(topic)) == 2
            except UnknownTopicError:
                return False

        eventually(is_known, "all partitions have leaders")
        for partition in range(2):
            log.append(topic, partition, [NewRecord(None, b"v")] * 10)
        ranges = held(log, topic, (0, 0, 9), (1, 0, 9))
        reader = RecordReader(log, 50_000_000)
        assert len(offsets(reader.read(ranges, 100))) == 20
        second.fall_silent()
        first = reader.read(ranges, 100)
        assert offsets(first) == [(0, offset) for offset in range(10)]
        assert (first.rest, first.unreadable) == ((ranges[1],), [])
        # A cluster that is away altogether is waited for, and such a read fails.
        alone = reader.read(first.rest, 100)
        assert leaderless(log, topic) == frozenset()
        assert (alone.ranges, alone.rest) == ([], ())
        assert unreadable(alone) == [(1, 0, 9, "the leader of the partition does not respond")]
        # From then on it holds up no read.
        again = reader.read(ranges, 100)
        assert offsets(again) == offsets(first)
        assert again.rest == first.rest
