"""The local log, seen by one process: what it does beyond the contract of all logs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sharegroup.errors import (
    ConfigurationError,
    LogCorruptedError,
    LogUnavailableError,
    RecordTooLargeError,
    UnknownTopicError,
    UnsupportedFormatVersionError,
)
from sharegroup.logs import local_deletion
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_file import FORMAT_VERSION, LocalFile
from sharegroup.logs.local_partition import MAX_RECORD_BYTES
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import LogRecord, NewRecord, PartitionOffsets
from tests.support.eventually import WAIT_MS
from tests.support.log_sites import read_values, values
from tests.support.odd_names import ODD_NAMES


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


# Paths


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_log_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / name
    with LocalLog(path) as log, closing(log.member_locks()) as locks:
        log.create_topic("events", 1)
        with closing(log.follow("events", {0: 0})) as follower:
            log.append("events", 0, values("a"))
            assert [record.value for record in follower.take(10, 1_000, WAIT_MS)] == [b"a"]
        lock = log.lock_member("orders", "anna")
        assert locks.ended() == []
        lock.close()
    with LocalLog(path, must_exist=True) as log:
        assert read_values(log) == [b"a"]
    assert list(tmp_path.iterdir()) == [path.parent]


def test_a_log_behind_a_symbolic_link_has_one_name_for_all_that_lies_beside_it(
    log: LocalLog, path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.log"
    other.symlink_to(path)
    with LocalLog(other) as behind, closing(behind.member_locks()) as locks:
        assert behind.path == log.path
        behind.append("events", 0, values("a"))
        lock = log.lock_member("orders", "anna")
        assert locks.ended() == []
        lock.close()
    assert read_values(log) == [b"a"]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "new", other]


def test_a_relative_path_is_of_the_folder_in_which_the_log_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    with LocalLog("events.log") as log:
        log.create_topic("events", 1)
        monkeypatch.chdir(second)
        log.append("events", 0, values("a"))
        log.lock_member("orders", "anna").close()
        with closing(log.follow("events", {0: 0})) as follower:
            assert [record.value for record in follower.take(10, 1_000, WAIT_MS)] == [b"a"]
    assert list(second.iterdir()) == []
    assert (first / "events.log-lock").exists()


# Topics


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


def test_append_all_is_one_transaction(log: LocalLog) -> None:
    log.append("events", 0, values("a"))
    batches = [("events", 0, values("b")), ("events", 1, values("c", "d")), ("events", 0, values("e"))]
    assert log.append_all(batches) == [1, 0, 2]
    with pytest.raises(UnknownTopicError):
        log.append_all([("events", 0, values("x")), ("absent", 0, values("y"))])
    assert (read_values(log, partition=0), read_values(log, partition=1)) == ([b"a", b"b", b"e"], [b"c", b"d"])


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


def test_raising_the_end_of_an_unknown_partition(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError, match="events-2"):
        log.raise_end_offset("events", 2, 0)


@pytest.mark.parametrize("waits_for", ["records", "growth"])
def test_a_commit_is_seen_though_its_writer_was_killed_before_it_notified_anybody(
    path: Path, log: LocalLog, waits_for: str
) -> None:
    follower, ends = log.follow("events", {0: 0}), log.watch_ends()
    ends.watch("events", {0: 0})
    with ThreadPoolExecutor(1) as pool:
        if waits_for == "records":
            waiting = pool.submit(lambda: bool(follower.take(10, 10_000, WAIT_MS)))
        else:
            waiting = pool.submit(lambda: bool(ends.wait(WAIT_MS).partitions))
        with closing(sqlite3.connect(path)) as writer, writer:
            writer.execute("INSERT INTO records SELECT rowid, 0, 0, 0, NULL, NULL, NULL FROM topics")
            writer.execute("UPDATE partitions SET end_offset = 1 WHERE partition = 0")
        assert waiting.result()
    follower.close()
    ends.close()


# Failures


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


def test_a_record_that_is_too_large_is_refused_and_so_is_what_was_to_be_appended_with_it(log: LocalLog) -> None:
    records = [NewRecord(None, b"small"), NewRecord(b"k", bytes(MAX_RECORD_BYTES))]
    with pytest.raises(RecordTooLargeError, match=rf"events-0 has {MAX_RECORD_BYTES + 1} bytes"):
        log.append("events", 0, records)
    assert log.offsets("events")[0].end_offset == 0


def test_records_of_a_deleted_topic_go_in_steps(path: Path, log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_deletion, "_RECORDS_PER_DELETION", 10)
    log.create_topic("large", 2)
    for partition in range(2):
        log.append("large", partition, [NewRecord(None, b"v")] * 45)
    log.delete_records("large", 0, 33)
    assert (log.offsets("large")[0].start_offset, record_count(path)) == (33, 57)
    log.delete_topic("large")
    assert record_count(path) == 0
    log.create_topic("large", 1)
    assert log.append("large", 0, [NewRecord(None, b"new")]) == 0


def test_records_that_a_killed_deletion_left_go_with_the_next_topic(path: Path, log: LocalLog) -> None:
    log.create_topic("left", 1)
    log.append("left", 0, [NewRecord(None, b"v")] * 10)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO deleted_topics SELECT rowid FROM topics WHERE name = 'left'")
        connection.execute("DELETE FROM topics WHERE name = 'left'")
    log.create_topic("next", 1)
    log.delete_topic("next")
    assert record_count(path) == 0


def record_count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
