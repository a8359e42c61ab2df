"""The local log, seen by one process."""

from __future__ import annotations

import multiprocessing
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest

from sharegroup.errors import (
    ConfigurationError,
    LogCorruptedError,
    LogError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedFormatVersionError,
)
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_file import FORMAT_VERSION, LocalFile
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import Log, LogRecord, NewRecord, PartitionOffsets

WAIT_MS = 20_000
"""Far longer than any test needs; only a failure takes that long."""


class Clock(LogClock):
    """A clock that tests set; milliseconds.

    Attributes:
        now_wall_ms: the machine's time.
        passed_ms: what has passed since some moment.
    """

    def __init__(self) -> None:
        self.now_wall_ms = 1_000
        self.passed_ms = 0
        super().__init__(lambda: self.now_wall_ms, lambda: self.passed_ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder" / "events.log"


@pytest.fixture
def log(path: Path, clock: Clock) -> Iterator[LocalLog]:
    with LocalLog(path, clock) as opened:
        opened.create_topic("events", 2)
        yield opened


def values(*texts: str) -> list[NewRecord]:
    return [NewRecord(None, text.encode()) for text in texts]


def read_values(log: Log, topic: str = "events", partition: int = 0) -> list[bytes | None]:
    found = log.offsets(topic)[partition]
    return [record.value for record in log.read(topic, partition, found.start_offset, found.end_offset)]


# Topics


def test_a_topic_is_described_as_created(log: LocalLog) -> None:
    created = log.create_topic("requests", 3, {"message.timestamp.type": "LogAppendTime", "retention.ms": "1000"})
    assert (created.name, created.partition_count) == ("requests", 3)
    assert created.config == {"message.timestamp.type": "LogAppendTime", "retention.ms": "1000"}
    assert log.describe_topic("requests") == created
    assert log.topics() == [log.describe_topic("events"), created]
    assert log.offsets("requests") == {partition: PartitionOffsets(0, 0, 0) for partition in range(3)}


def test_creating_a_topic_twice(log: LocalLog) -> None:
    with pytest.raises(TopicExistsError, match="events"):
        log.create_topic("events", 2)
    assert log.create_topic("events", 5, if_not_exists=True) == log.describe_topic("events")


def test_a_topic_created_again_is_another_topic(log: LocalLog) -> None:
    first = log.describe_topic("events")
    log.append("events", 0, values("a"))
    log.delete_topic("events")
    assert log.topics() == []
    assert log.create_topic("events", 2).topic_id != first.topic_id
    assert read_values(log) == []


@pytest.mark.parametrize(
    ("name", "partition_count", "config", "complaint"),
    [
        ("", 1, {}, "topic name ''"),
        ("..", 1, {}, r"topic name '\.\.'"),
        ("a b", 1, {}, "topic name 'a b'"),
        ("a\n", 1, {}, "topic name"),
        ("a" * 250, 1, {}, "1 to 249"),
        ("fine", 0, {}, "partition count of topic fine is 0"),
        ("fine", 1, {"message.timestamp.type": "now"}, "message.timestamp.type of topic fine is 'now'"),
    ],
)
def test_topics_that_cannot_be(
    log: LocalLog, name: str, partition_count: int, config: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        log.create_topic(name, partition_count, config)
    assert [topic.name for topic in log.topics()] == ["events"]


@pytest.mark.parametrize(
    "operation",
    [
        lambda log: log.describe_topic("absent"),
        lambda log: log.delete_topic("absent"),
        lambda log: log.offsets("absent"),
        lambda log: log.append("absent", 0, values("a")),
        lambda log: log.append("events", 2, values("a")),
        lambda log: log.read("events", -1, 0, 1),
        lambda log: log.delete_records("events", 2, 0),
        lambda log: log.raise_end_offset("events", 2, 0),
        lambda log: log.wait({("absent", 0): 0}, 0),
    ],
)
def test_unknown_topics_and_partitions(log: LocalLog, operation: Callable[[LocalLog], object]) -> None:
    with pytest.raises(UnknownTopicError, match=r"absent|events-"):
        operation(log)


# Append and read


def test_records_come_back_as_they_were(log: LocalLog) -> None:
    records = [
        NewRecord(b"key", b"value", (("trace", b"\x00\xff"), ("trace", None), ("ünï", b"")), 5),
        NewRecord(None, None),
        NewRecord(b"", b"", (), 0),
    ]
    assert log.append("events", 1, values("first")) == 0
    assert log.append("events", 1, records) == 1
    assert log.read("events", 1, 1, 4) == [
        LogRecord("events", 1, 1, 5, b"key", b"value", (("trace", b"\x00\xff"), ("trace", None), ("ünï", b""))),
        LogRecord("events", 1, 2, 1_000, None, None),
        LogRecord("events", 1, 3, 0, b"", b""),
    ]


def test_appending_nothing_tells_the_end(log: LocalLog) -> None:
    log.append("events", 0, values("a", "b"))
    assert log.append("events", 0, []) == 2
    assert log.offsets("events")[0] == PartitionOffsets(0, 2, 2)


def test_append_all_is_one_transaction(log: LocalLog) -> None:
    log.append("events", 0, values("a"))
    batches = [("events", 0, values("b")), ("events", 1, values("c", "d")), ("events", 0, values("e"))]
    assert log.append_all(batches) == [1, 0, 2]
    with pytest.raises(UnknownTopicError):
        log.append_all([("events", 0, values("x")), ("absent", 0, values("y"))])
    assert (read_values(log, partition=0), read_values(log, partition=1)) == ([b"a", b"b", b"e"], [b"c", b"d"])


def test_a_record_that_is_not_bytes_is_refused_with_its_batch(log: LocalLog) -> None:
    with pytest.raises(LogError, match="refused"):
        log.append("events", 0, [NewRecord(None, b"a"), NewRecord(None, "b")])  # type: ignore[arg-type]
    assert log.append("events", 0, values("c")) == 0


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
def test_limits_of_a_read(
    log: LocalLog, start: int, end: int, max_records: int | None, max_bytes: int | None, offsets: list[int]
) -> None:
    log.append("events", 0, [NewRecord(b"12345", b"67890")] * 5)
    assert [record.offset for record in log.read("events", 0, start, end, max_records, max_bytes)] == offsets


def test_headers_count_towards_the_bytes_of_a_read(log: LocalLog) -> None:
    log.append("events", 0, [NewRecord(None, None, (("name", b"x" * 100),))] * 2)
    assert len(log.read("events", 0, 0, 2, max_bytes=150)) == 1


# Time


def stamps(log: LocalLog) -> list[int]:
    return [record.timestamp_ms for record in log.read("requests", 0, 0, 100)]


def test_log_append_time_never_decreases(log: LocalLog, clock: Clock) -> None:
    log.create_topic("requests", 1, {"message.timestamp.type": "LogAppendTime"})
    for now_ms in (1_000, 1_500, 900, 1_501, 0):
        clock.now_wall_ms = now_ms
        log.append("requests", 0, [NewRecord(None, None, timestamp_ms=7), NewRecord(None, None)])
    assert stamps(log) == [1_000, 1_000, 1_500, 1_500, 1_500, 1_500, 1_501, 1_501, 1_501, 1_501]


def test_log_append_time_runs_on_while_the_machines_clock_is_set_back(log: LocalLog, clock: Clock) -> None:
    log.create_topic("requests", 1, {"message.timestamp.type": "LogAppendTime"})
    clock.now_wall_ms = 3_600_000
    for passed_ms in (0, 40, 100):
        clock.passed_ms = passed_ms
        log.append("requests", 0, values("a"))
        clock.now_wall_ms = passed_ms
    assert stamps(log) == [3_600_000, 3_600_040, 3_600_100]
    assert log.now_ms() == 3_600_100


def test_log_append_time_goes_on_from_what_others_stamped(path: Path, log: LocalLog, clock: Clock) -> None:
    log.create_topic("requests", 1, {"message.timestamp.type": "LogAppendTime"})
    other_clock = Clock()
    with LocalLog(path, other_clock) as other:
        clock.now_wall_ms = 9_000
        log.append("requests", 0, values("a"))
        other.append("requests", 0, values("b"))
        other_clock.passed_ms = 30
        other.append("requests", 0, values("c"))
    with LocalLog(path, Clock()) as later:
        assert later.now_ms() == 9_030
    assert stamps(log) == [9_000, 9_000, 9_030]


def test_log_append_time_survives_reopening_and_deletion(path: Path, clock: Clock) -> None:
    clock.now_wall_ms = 9_000
    with LocalLog(path, clock) as log:
        log.create_topic("requests", 1, {"message.timestamp.type": "LogAppendTime"})
        log.append("requests", 0, values("a"))
        log.delete_records("requests", 0, 1)
    with LocalLog(path, Clock()) as log:
        log.append("requests", 0, values("b"))
        assert stamps(log) == [9_000]


# Offsets


def test_offsets_are_never_given_out_twice(log: LocalLog, path: Path, clock: Clock) -> None:
    log.append("events", 0, values("a", "b", "c"))
    log.delete_records("events", 0, 3)
    assert log.offsets("events")[0] == PartitionOffsets(3, 3, 3)
    log.close()
    with LocalLog(path, clock) as again:
        assert again.append("events", 0, values("d")) == 3
        assert again.read("events", 0, 0, 9) == [LogRecord("events", 0, 3, 1_000, None, b"d")]


def test_deleting_records_moves_the_start_only_forwards(log: LocalLog) -> None:
    log.append_all([("events", 0, values("a", "b", "c")), ("events", 1, values("z"))])
    log.delete_records("events", 0, 2)
    log.delete_records("events", 0, 1)
    assert log.offsets("events") == {0: PartitionOffsets(2, 3, 3), 1: PartitionOffsets(0, 1, 1)}
    assert (read_values(log, partition=0), read_values(log, partition=1)) == ([b"c"], [b"z"])


@pytest.mark.parametrize("before_offset", [-1, 4])
def test_deleting_outside_of_the_log(log: LocalLog, before_offset: int) -> None:
    log.append("events", 0, values("a", "b", "c"))
    with pytest.raises(OffsetOutOfRangeError, match=f"offset {before_offset}.*end offset, 3"):
        log.delete_records("events", 0, before_offset)
    assert len(read_values(log)) == 3


@pytest.mark.parametrize(
    ("present", "raised_to", "offsets"),
    [
        ([], 10, PartitionOffsets(10, 10, 10)),
        (["a"], 10, PartitionOffsets(0, 10, 10)),
        (["a", "b"], 1, PartitionOffsets(0, 2, 2)),
        ([], 0, PartitionOffsets(0, 0, 0)),
    ],
)
def test_raising_the_end_offset(log: LocalLog, present: list[str], raised_to: int, offsets: PartitionOffsets) -> None:
    log.append("events", 0, values(*present))
    log.raise_end_offset("events", 0, raised_to)
    assert log.offsets("events")[0] == offsets
    assert log.append("events", 0, values("next")) == offsets.end_offset
    assert log.read("events", 0, offsets.end_offset, offsets.end_offset + 1)[0].value == b"next"


# Wait


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"), [(0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (3_000, 2), (3_001, 3)]
)
def test_the_first_offset_as_young_as_a_time(log: LocalLog, timestamp_ms: int, offset: int) -> None:
    log.create_topic("dated", 1)
    log.append("dated", 0, [NewRecord(None, b"x", timestamp_ms=stamp) for stamp in (1_000, 2_000, 3_000)])
    assert log.offset_for_time("dated", 0, timestamp_ms) == offset


def test_waiting_for_what_is_there_and_for_what_is_not(log: LocalLog) -> None:
    log.append("events", 1, values("a"))
    assert log.wait({("events", 0): 0, ("events", 1): 0}, WAIT_MS)
    assert not log.wait({("events", 0): 0, ("events", 1): 1}, 30)


def test_an_append_ends_the_wait(log: LocalLog, path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, LocalLog(path) as other:
        waiting = pool.submit(log.wait, {("events", 0): 0}, WAIT_MS)
        other.append("events", 1, values("elsewhere"))
        assert not waiting.done()
        other.append("events", 0, values("here"))
        assert waiting.result()


def test_closing_ends_the_wait(path: Path, log: LocalLog) -> None:
    waiter = LocalLog(path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.wait, {("events", 0): 0}, WAIT_MS)
        waiter.close()
        # The log may be closed before the wait has begun.
        refused = waiting.exception()
        assert waiting.result() is False if refused is None else "is closed" in str(refused)


# Threads, processes, failures


def test_threads_share_one_log(log: LocalLog) -> None:
    with ThreadPoolExecutor(4) as pool:
        firsts = list(pool.map(lambda _: log.append("events", 0, values("a", "b")), range(100)))
    assert sorted(firsts) == list(range(0, 200, 2))


def test_a_closed_log_refuses_everything(log: LocalLog) -> None:
    log.close()
    log.close()
    with pytest.raises(LogError, match="is closed"):
        log.offsets("events")


def _use(log: LocalLog, answer: SimpleQueue[str]) -> None:
    try:
        log.offsets("events")
    except LogError as error:
        answer.put(str(error))
    else:
        answer.put("")


def test_a_forked_process_must_open_its_own(log: LocalLog) -> None:
    log.append("events", 0, values("a"))
    fork = multiprocessing.get_context("fork")
    answer: SimpleQueue[str] = fork.SimpleQueue()
    child = fork.Process(target=_use, args=(log, answer))
    child.start()
    assert "forked" in answer.get()
    child.join()
    assert read_values(log) == [b"a"]


def test_a_locked_log_is_unavailable_for_now(path: Path, log: LocalLog) -> None:
    log.append("events", 0, values("a"))
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with LocalLog(path, busy_timeout_ms=10) as impatient:
        with pytest.raises(LogUnavailableError, match=r"locked .* for 10 ms.*Try again"):
            impatient.append("events", 0, values("b"))
        assert read_values(impatient) == [b"a"]
        writer.execute("ROLLBACK")
        assert impatient.append("events", 0, values("c")) == 1
    writer.close()


def test_a_full_disk_takes_nothing(path: Path, log: LocalLog) -> None:
    log.close()
    file = LocalFile(path, 1_000)
    with file.connection() as connection:
        connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(LogUnavailableError, match="disk is full"), file.transaction() as connection:
        connection.executemany(
            "INSERT INTO records VALUES (1, 0, ?, 0, NULL, zeroblob(1000), NULL)", ((n,) for n in range(1_000))
        )
    file.close()
    with LocalLog(path) as again:
        assert again.read("events", 0, 0, 1_000) == []
        assert again.append("events", 0, values("a")) == 0


def _no_database(path: Path) -> None:
    path.write_bytes(b"This is a text, and no log at all. " * 100)


def _foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE guests (name TEXT)")
    connection.close()


def _scrambled_log(path: Path) -> None:
    with LocalLog(path) as log:
        log.create_topic("events", 1)
        log.append("events", 0, [NewRecord(None, b"v" * 500)] * 1_000)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(1_000)
        file.write(b"\xa5" * (size - 1_000))


@pytest.mark.parametrize("spoil", [_no_database, _foreign_database, _scrambled_log])
def test_a_file_that_is_no_log_says_so_in_one_line(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / "events.log"
    spoil(path)
    with pytest.raises(LogCorruptedError) as failure, LocalLog(path) as log:
        log.read("events", 0, 0, 1_000)
    assert str(path) in str(failure.value)
    assert failure.value.remedy
    assert "\n" not in str(failure.value)


def test_a_log_of_another_format_version_is_left_alone(path: Path, log: LocalLog) -> None:
    log.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE log_format SET format_version = format_version + 1")
    connection.commit()
    connection.close()
    with pytest.raises(UnsupportedFormatVersionError, match=f"version {FORMAT_VERSION + 1}.*reads {FORMAT_VERSION}"):
        LocalLog(path)


def test_paths_where_no_log_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path, tmp_path / "file" / "events.log"):
        with pytest.raises(LogUnavailableError, match=re.escape(str(path))):
            LocalLog(path)


def test_a_path_with_special_characters(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=ro#% ü.log"
    with LocalLog(path) as log:
        log.create_topic("events", 1)
    assert path.is_file()


def test_a_file_that_vanished_does_not_come_back_empty(path: Path, log: LocalLog) -> None:
    log.close()
    file = LocalFile(path, 1_000)
    with file.connection():
        path.unlink()
        with pytest.raises(LogUnavailableError, match="cannot be read"), file.connection():
            pass
    file.close()
    assert not path.exists()
