"""The contract of all logs: the local log, and Kafka of each version that is tested."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import ConfigurationError, LogError, OffsetOutOfRangeError, TopicExistsError, UnknownTopicError
from sharegroup.logs.port import Log, LogRecord, NewRecord, PartitionOffsets
from tests.support import processes
from tests.support.log_sites import STAMPED, Site, read_values, values

# Topics


def test_a_topic_is_described_as_created(site: Site, log: Log, events: str) -> None:
    name = site.name("requests")
    created = log.create_topic(name, 3, {**STAMPED, "retention.ms": "3600000"})
    assert (created.name, created.partition_count) == (name, 3)
    assert created.config.items() >= {**STAMPED, "retention.ms": "3600000"}.items()
    assert log.describe_topic(name) == created
    described = {topic.name: topic for topic in log.topics()}
    assert list(described) == sorted(described)
    assert (described[name], described[events]) == (created, log.describe_topic(events))
    assert log.offsets(name) == {partition: PartitionOffsets(0, 0, 0) for partition in range(3)}


def test_topic_ids_are_written_as_kafka_does(log: Log, events: str) -> None:
    topic_id = log.describe_topic(events).topic_id
    assert len(topic_id) == 22
    assert not set(topic_id) & set("+/=")


def test_creating_a_topic_twice(log: Log, events: str) -> None:
    with pytest.raises(TopicExistsError, match=events):
        log.create_topic(events, 2)
    assert log.create_topic(events, 5, if_not_exists=True) == log.describe_topic(events)


def test_a_topic_created_again_is_another_topic(log: Log, events: str) -> None:
    first = log.describe_topic(events)
    log.append(events, 0, values("a"))
    assert read_values(log, events) == [b"a"]
    log.delete_topic(events)
    assert events not in {topic.name for topic in log.topics()}
    assert log.create_topic(events, 2).topic_id != first.topic_id
    assert read_values(log, events) == []
    log.append(events, 0, values("b"))
    assert read_values(log, events) == [b"b"]


@pytest.mark.parametrize(
    ("name", "partition_count", "config"),
    [
        ("", 1, {}),
        ("..", 1, {}),
        ("a b", 1, {}),
        ("a\n", 1, {}),
        ("a" * 250, 1, {}),
        ("fine", 0, {}),
        ("fine", -1, {}),
        ("fine", 1, {"message.timestamp.type": "now"}),
    ],
)
def test_topics_that_cannot_be(log: Log, name: str, partition_count: int, config: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        log.create_topic(name, partition_count, config)
    assert refusal.value.remedy
    assert name not in {topic.name for topic in log.topics()}


@pytest.mark.parametrize(
    "operation",
    [
        lambda log, events: log.describe_topic("absent"),
        lambda log, events: log.delete_topic("absent"),
        lambda log, events: log.offsets("absent"),
        lambda log, events: log.append("absent", 0, values("a")),
        lambda log, events: log.append(events, 2, values("a")),
        lambda log, events: log.append(events, 2, []),
        lambda log, events: log.read("absent", 0, 0, 1),
        lambda log, events: log.read(events, -1, 0, 1),
        lambda log, events: log.offset_for_time(events, 2, 0),
        lambda log, events: log.delete_records(events, 2, 0),
    ],
)
def test_unknown_topics_and_partitions(log: Log, events: str, operation: Callable[[Log, str], object]) -> None:
    with pytest.raises(UnknownTopicError, match=r"absent|events-"):
        operation(log, events)
    assert "absent" not in {topic.name for topic in log.topics()}


# Append and read


def test_records_come_back_as_they_were(log: Log, events: str) -> None:
    headers = (("trace", b"\x00\xff"), ("trace", None), ("ünï", b""))
    records = [NewRecord(b"key", b"value", headers, 5), NewRecord(None, None, (), 6), NewRecord(b"", b"", (), 7)]
    assert log.append(events, 1, values("first")) == 0
    assert log.append(events, 1, records) == 1
    assert log.read(events, 1, 1, 4) == [
        LogRecord(events, 1, 1, 5, b"key", b"value", headers),
        LogRecord(events, 1, 2, 6, None, None),
        LogRecord(events, 1, 3, 7, b"", b""),
    ]


def test_appending_nothing_tells_the_end(log: Log, events: str) -> None:
    log.append(events, 0, values("a", "b"))
    assert log.append(events, 0, []) == 2
    assert log.append_all([(events, 0, []), (events, 1, values("c")), (events, 1, [])]) == [2, 0, 1]
    assert log.append_all([]) == []
    assert log.offsets(events)[0] == PartitionOffsets(0, 2, 2)


def test_append_all_keeps_the_order_of_each_partition(site: Site, log: Log, events: str) -> None:
    other = log.create_topic(site.name("other"), 1).name
    log.append(events, 0, values("a"))
    batches = [(events, 0, values("b")), (events, 1, values("c", "d")), (other, 0, values("x"))]
    assert log.append_all([*batches, (events, 0, values("e"))]) == [1, 0, 0, 2]
    assert (read_values(log, events), read_values(log, events, 1)) == ([b"a", b"b", b"e"], [b"c", b"d"])


def test_append_all_with_an_unknown_topic_appends_nothing(log: Log, events: str) -> None:
    with pytest.raises(UnknownTopicError, match="absent"):
        log.append_all([(events, 0, values("x")), ("absent", 0, values("y"))])
    assert read_values(log, events) == []


def test_a_record_that_is_not_bytes_is_refused_with_its_batch(log: Log, events: str) -> None:
    with pytest.raises(LogError, match="refused"):
        log.append(events, 0, [NewRecord(None, b"a"), NewRecord(None, "b")])  # type: ignore[arg-type]
    assert log.append(events, 0, values("c")) == 0


@pytest.mark.parametrize(
    ("start", "end", "max_records", "max_bytes", "offsets"),
    [
        (0, 5, None, None, [0, 1, 2, 3, 4]),
        (1, 3, None, None, [1, 2]),
        (3, 99, None, None, [3, 4]),
        (4, 4, None, None, []),
        (9, 12, None, None, []),
        (0, 5, 2, None, [0, 1]),
        (1, 5, None, 20, [1, 2]),
        (1, 5, None, 29, [1, 2]),
        (1, 5, None, 1, [1]),
        (0, 5, 1, 1_000, [0]),
    ],
)
@pytest.mark.parametrize("isolation_level", IsolationLevel)
def test_limits_of_a_read(
    log: Log,
    events: str,
    start: int,
    end: int,
    max_records: int | None,
    max_bytes: int | None,
    offsets: list[int],
    isolation_level: IsolationLevel,
) -> None:
    log.append(events, 0, [NewRecord(b"12345", b"67890")] * 5)
    records = log.read(events, 0, start, end, max_records, max_bytes, isolation_level)
    assert [record.offset for record in records] == offsets


def test_reads_that_go_on_where_the_last_one_ended(log: Log, events: str) -> None:
    log.append(events, 0, values(*map(str, range(10))))
    seen = [log.read(events, 0, start, 10, 3)[0].offset for start in (0, 3, 6, 9, 2, 5)]
    assert seen == [0, 3, 6, 9, 2, 5]
    log.append(events, 0, values("new"))
    assert [record.offset for record in log.read(events, 0, 8, 11)] == [8, 9, 10]


def test_headers_count_towards_the_bytes_of_a_read(log: Log, events: str) -> None:
    log.append(events, 0, [NewRecord(None, None, (("name", b"x" * 100),))] * 2)
    assert len(log.read(events, 0, 0, 2, max_bytes=150)) == 1


def test_many_records_in_one_append(log: Log, events: str) -> None:
    count = 3_000
    assert log.append(events, 0, [NewRecord(None, b"%d" % i + b"." * 500) for i in range(count)]) == 0
    records = log.read(events, 0, 0, count)
    assert [record.offset for record in records] == list(range(count))
    assert [int((record.value or b"").rstrip(b".")) for record in records] == list(range(count))


# Time


def test_a_log_that_stamps_records_never_goes_back(site: Site, log: Log) -> None:
    requests = log.create_topic(site.name("requests"), 1, STAMPED).name
    for _ in range(3):
        log.append(requests, 0, [NewRecord(None, None, timestamp_ms=7), NewRecord(None, None)])
    stamps = [record.timestamp_ms for record in log.read(requests, 0, 0, 10)]
    assert len(stamps) == 6
    assert stamps[0] > 1_600_000_000_000
    assert stamps == sorted(stamps)


def test_the_time_of_the_log_is_no_earlier_than_a_stamp_that_was_read(site: Site, log: Log) -> None:
    requests = log.create_topic(site.name("requests"), 1, STAMPED).name
    log.append(requests, 0, values("a"))
    (record,) = log.read(requests, 0, 0, 1)
    first, second = log.now_ms(), log.now_ms()
    assert record.timestamp_ms <= first <= second


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"), [(-1, 0), (0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (3_000, 2), (3_001, 3)]
)
def test_the_first_offset_as_young_as_a_time(log: Log, events: str, timestamp_ms: int, offset: int) -> None:
    log.append(events, 0, [NewRecord(None, b"x", timestamp_ms=stamp) for stamp in (1_000, 2_000, 3_000)])
    assert log.offset_for_time(events, 0, timestamp_ms) == offset


# Offsets


def test_offsets_are_never_given_out_twice(site: Site, events: str) -> None:
    with site.open() as log:
        log.append(events, 0, values("a", "b", "c"))
        log.delete_records(events, 0, 3)
        assert log.offsets(events)[0] == PartitionOffsets(3, 3, 3)
    with site.open() as again:
        assert again.append(events, 0, values("d")) == 3
        (record,) = again.read(events, 0, 0, 9)
        assert (record.offset, record.value) == (3, b"d")


def test_deleting_records_moves_the_start_only_forwards(log: Log, events: str) -> None:
    log.append_all([(events, 0, values("a", "b", "c")), (events, 1, values("z"))])
    assert log.read(events, 0, 0, 1)[0].value == b"a"
    log.delete_records(events, 0, 2)
    log.delete_records(events, 0, 1)
    assert log.offsets(events) == {0: PartitionOffsets(2, 3, 3), 1: PartitionOffsets(0, 1, 1)}
    assert (read_values(log, events), read_values(log, events, 1)) == ([b"c"], [b"z"])
    assert log.read(events, 0, 0, 2) == []


@pytest.mark.parametrize("before_offset", [-1, 4])
def test_deleting_outside_of_the_log(log: Log, events: str, before_offset: int) -> None:
    log.append(events, 0, values("a", "b", "c"))
    with pytest.raises(OffsetOutOfRangeError, match=f"offset {before_offset}.*end offset, 3"):
        log.delete_records(events, 0, before_offset)
    assert len(read_values(log, events)) == 3


# Threads and processes


def test_threads_share_one_log(log: Log, events: str) -> None:
    def use(number: int) -> int:
        first = log.append(events, 0, values("a", "b"))
        assert [record.offset for record in log.read(events, 0, first, first + 2)] == [first, first + 1], number
        return first

    with ThreadPoolExecutor(4) as pool:
        firsts = list(pool.map(use, range(40)))
    assert sorted(firsts) == list(range(0, 80, 2))


@pytest.mark.parametrize(
    "operation",
    [
        lambda log, events: log.offsets(events),
        lambda log, events: log.append(events, 0, values("a")),
        lambda log, events: log.read(events, 0, 0, 1),
        lambda log, events: log.follow(events, {0: 0}),
    ],
)
def test_a_closed_log_refuses_everything(site: Site, events: str, operation: Callable[[Log, str], object]) -> None:
    log = site.open()
    log.close()
    log.close()
    with pytest.raises(LogError, match="is closed"):
        operation(log, events)


def offsets_in_fork(log: Log, topic: str) -> str:
    try:
        log.offsets(topic)
    except LogError as error:
        return str(error)
    return "no error"


def test_a_forked_process_must_open_its_own(log: Log, events: str) -> None:
    log.append(events, 0, values("a"))
    assert "forked" in processes.in_fork(offsets_in_fork, log, events)
    assert read_values(log, events) == [b"a"]
