"""Followers, which do the same on every log: the local log, and Kafka of each version that is tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharegroup.errors import LogError, UnknownTopicError
from sharegroup.logs.port import Follower, Log, LogRecord, NewRecord
from tests.support.eventually import WAIT_MS
from tests.support.log_sites import STAMPED, Site, values

MANY = 10_000
"""More records, and more bytes, than any test appends but one."""

Follow = Callable[..., Follower]


@pytest.fixture
def follow(log: Log, events: str) -> Iterator[Follow]:
    """Follows partitions of the topic; without arguments its first partition from 0 on. Closed at the end."""
    followers: list[Follower] = []

    def followed(positions: dict[int, int] | None = None) -> Follower:
        followers.append(log.follow(events, {0: 0} if positions is None else positions))
        return followers[-1]

    yield followed
    for follower in followers:
        follower.close()


def taken(follower: Follower, max_records: int = MANY, max_bytes: int = MANY) -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) of a take that waits for the first record only."""
    return [
        (record.partition, record.offset, record.value) for record in follower.take(max_records, max_bytes, WAIT_MS)
    ]


def taken_until(follower: Follower, count: int) -> list[LogRecord]:
    """As many takes as it needs for so many records."""
    records: list[LogRecord] = []
    while len(records) < count:
        records += follower.take(MANY, MANY, WAIT_MS) or pytest.fail(f"only {len(records)} of {count} records came")
    return records


def test_records_come_as_they_are_appended(log: Log, events: str, follow: Follow) -> None:
    headers = (("trace", b"\x00\xff"), ("trace", None))
    log.append(events, 0, values("before"))
    follower = follow()
    assert taken(follower) == [(0, 0, b"before")]
    for offset in (1, 2):
        log.append(events, 0, [NewRecord(b"key", b"value", headers, 5)])
        assert follower.take(MANY, MANY, WAIT_MS) == [LogRecord(events, 0, offset, 5, b"key", b"value", headers)]
    assert follower.positions == {0: 3}


def test_a_follower_begins_at_its_positions_and_sees_no_other_partition(log: Log, events: str, follow: Follow) -> None:
    log.append_all([(events, 0, values("a", "b", "c")), (events, 1, values("x"))])
    assert taken(follow({0: 2})) == [(0, 2, b"c")]


def test_nothing_comes_when_the_time_is_over(log: Log, events: str, follow: Follow) -> None:
    log.append(events, 0, values("a"))
    follower = follow({0: 1})
    assert follower.take(MANY, MANY, 0) == []
    assert follower.take(MANY, MANY, 30) == []
    assert follower.positions == {0: 1}


def test_an_append_ends_the_take(site: Site, events: str, follow: Follow) -> None:
    follower = follow()
    with ThreadPoolExecutor(1) as pool, site.open() as other:
        taking = pool.submit(taken, follower)
        other.append(events, 1, values("elsewhere"))
        other.append(events, 0, values("here"))
        assert taking.result() == [(0, 0, b"here")]


def test_all_partitions_are_followed(log: Log, events: str, follow: Follow) -> None:
    follower = follow({0: 0, 1: 0})
    for _ in range(3):
        log.append_all([(events, 0, values("a", "b")), (events, 1, values("c"))])
    records = taken_until(follower, 9)
    by_partition = {p: [record.offset for record in records if record.partition == p] for p in (0, 1)}
    assert by_partition == {0: [0, 1, 2, 3, 4, 5], 1: [0, 1, 2]}
    assert follower.positions == {0: 6, 1: 3}


def test_a_busy_partition_does_not_keep_another_one_out(log: Log, events: str, follow: Follow) -> None:
    log.append_all([(events, 0, values("a") * 100), (events, 1, values("b"))])
    follower = follow({0: 0, 1: 0})
    partitions: list[int] = []
    while 1 not in partitions:
        partitions += [partition for partition, _, _ in taken(follower, max_records=2)]
    assert len(partitions) <= 101


@pytest.mark.parametrize(
    ("max_records", "max_bytes", "most"), [(2, MANY, 2), (1, MANY, 1), (MANY, 20, 2), (MANY, 29, 2), (MANY, 1, 1)]
)
def test_a_take_is_bounded_and_what_is_left_comes_next(
    log: Log, events: str, follow: Follow, max_records: int, max_bytes: int, most: int
) -> None:
    log.append(events, 0, [NewRecord(b"12345", b"67890")] * 5)
    follower = follow()
    offsets: list[int] = []
    while len(offsets) < 5:
        records = taken(follower, max_records, max_bytes)
        assert 0 < len(records) <= most
        offsets += [offset for _, offset, _ in records]
        assert follower.positions == {0: len(offsets)}
    assert offsets == [0, 1, 2, 3, 4]


def test_the_bound_in_bytes_is_one_of_all_partitions_together(log: Log, events: str, follow: Follow) -> None:
    log.append_all([(events, partition, [NewRecord(None, b"x" * 100)] * 2) for partition in (0, 1)])
    follower = follow({0: 0, 1: 0})
    assert [len(taken(follower, max_bytes=150)) for _ in range(4)] == [1, 1, 1, 1]


def test_a_record_larger_than_a_take_comes_alone(log: Log, events: str, follow: Follow) -> None:
    log.append(events, 0, [NewRecord(None, b"x"), NewRecord(None, b"y" * 500_000), NewRecord(None, b"z")])
    follower = follow()
    assert [[len(value or b"") for _, _, value in taken(follower, max_bytes=100)] for _ in range(3)] == [
        [1],
        [500_000],
        [1],
    ]


def test_a_position_below_the_start_moves_to_the_start(log: Log, events: str, follow: Follow) -> None:
    log.append(events, 0, values("a", "b", "c"))
    log.delete_records(events, 0, 2)
    assert taken(follow()) == [(0, 2, b"c")]


def test_records_that_are_deleted_before_they_are_taken_hold_up_nothing(log: Log, events: str, follow: Follow) -> None:
    follower = follow()
    log.append(events, 0, values("a"))
    assert taken(follower) == [(0, 0, b"a")]
    log.append(events, 0, values("b", "c"))
    log.delete_records(events, 0, 3)
    log.append(events, 0, values("d"))
    # What was fetched already may still come.
    last = taken(follower)[-1]
    while last[1] < 3:
        last = taken(follower)[-1]
    assert last == (0, 3, b"d")


def test_a_wake_ends_the_take_at_hand(follow: Follow) -> None:
    follower = follow()
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(follower.take, MANY, MANY, WAIT_MS)
        follower.wake()
        assert taking.result() == []


def test_a_wake_before_a_take_lets_it_return_with_what_is_there(log: Log, events: str, follow: Follow) -> None:
    follower = follow()
    follower.wake()
    assert follower.take(MANY, MANY, WAIT_MS) == []
    log.append(events, 0, values("a"))
    assert taken(follower) == [(0, 0, b"a")]


def test_a_close_from_another_thread_ends_the_take(follow: Follow) -> None:
    follower = follow()
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(follower.take, MANY, MANY, WAIT_MS)
        follower.close()
        # It may be closed before the take has begun.
        refused = taking.exception()
    assert refused is None or isinstance(refused, LogError)
    with pytest.raises(LogError, match="closed"):
        follower.take(MANY, MANY, 0)
    follower.close()
    follower.wake()


def test_closing_the_log_ends_the_take(site: Site, events: str) -> None:
    log = site.open()
    follower = log.follow(events, {0: 0})
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(follower.take, MANY, MANY, WAIT_MS)
        log.close()
        refused = taking.exception()
    assert refused is None or isinstance(refused, LogError)
    with pytest.raises(LogError, match="closed"):
        follower.take(MANY, MANY, 0)
    follower.close()


@pytest.mark.parametrize("positions", [{2: 0}, {0: 0, -1: 0}])
def test_a_partition_that_is_not_there_is_refused(log: Log, events: str, positions: dict[int, int]) -> None:
    with pytest.raises(UnknownTopicError, match=events):
        log.follow(events, positions)
    with pytest.raises(UnknownTopicError, match="absent"):
        log.follow("absent", {0: 0})
    assert "absent" not in {topic.name for topic in log.topics()}


def test_a_take_hears_that_its_topic_is_deleted(site: Site, events: str, follow: Follow) -> None:
    follower = follow()
    with ThreadPoolExecutor(1) as pool, site.open() as other:
        taking = pool.submit(follower.take, MANY, MANY, WAIT_MS)
        other.delete_topic(events)
        with pytest.raises(UnknownTopicError, match=events):
            taking.result()
    with pytest.raises(UnknownTopicError, match=events):
        follower.take(MANY, MANY, 0)


@pytest.mark.parametrize("position", [0, 2])
def test_a_take_hears_that_its_topic_was_created_again(log: Log, events: str, follow: Follow, position: int) -> None:
    log.append(events, 0, values("a", "b"))
    follower = follow({0: position})
    assert len(follower.take(MANY, MANY, 0)) <= 2
    log.delete_topic(events)
    log.create_topic(events, 2)
    # What was fetched of the former topic may still come.
    with pytest.raises(UnknownTopicError, match=events):
        taken_until(follower, MANY)


def test_the_time_of_the_log_is_no_earlier_than_a_stamp_that_was_taken(site: Site, log: Log) -> None:
    requests = log.create_topic(site.name("requests"), 1, STAMPED).name
    follower = log.follow(requests, {0: 0})
    log.append(requests, 0, values("a"))
    (record,) = follower.take(MANY, MANY, WAIT_MS)
    assert record.timestamp_ms <= log.now_ms()
    follower.close()


def test_many_records_come_whole_and_in_order(log: Log, events: str, follow: Follow) -> None:
    count = 3_000
    log.append(events, 0, [NewRecord(None, b"%d" % i + b"." * 500) for i in range(count)])
    follower = follow()
    records: list[LogRecord] = []
    while len(records) < count:
        batch = follower.take(400, 100_000, WAIT_MS)
        assert 0 < len(batch) <= 199
        records += batch
    assert [int((record.value or b"").rstrip(b".")) for record in records] == list(range(count))
