"""Sizes of ranges: where they begin, their bound of bytes, and a worker whose records turn slow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from sharegroup.client.held_records import HeldRange
from sharegroup.config.members import WorkerConfig
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log, NewRecord
from sharegroup.spark.range_size import RangeSize
from tests.spark.spark_site import SparkSite, drain

TOPIC = "orders"
MIB = 1024 * 1024


def size_of(**config: object) -> RangeSize:
    return RangeSize(WorkerConfig.from_mapping({"group.id": "g", "topics": TOPIC, **config}))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return LocalLog(str(tmp_path / "log.db"))


def appended(log: Log, *sizes_bytes: int) -> list[HeldRange]:
    topic = log.create_topic(TOPIC, 1)
    log.append(TOPIC, 0, [NewRecord(None, b"x" * size) for size in sizes_bytes])
    return [HeldRange(topic.topic_id, TOPIC, 0, 0, len(sizes_bytes) - 1, 1, IsolationLevel.READ_UNCOMMITTED)]


@pytest.mark.parametrize(
    ("config", "first", "after_a_fast_range"),
    [({}, 100, 800), ({"max.poll.records": 30}, 30, 30), ({"max.poll.records": 5_000}, 5_000, 5_000)],
)
def test_first_range_has_100_records_or_what_is_set(
    config: dict[str, object], first: int, after_a_fast_range: int
) -> None:
    size = size_of(**config)
    assert size.records == first
    size.worked_off(first, 0, 1)
    assert size.records == after_a_fast_range


def test_set_size_shrinks_for_slow_records() -> None:
    size = size_of(**{"max.poll.records": 5_000})
    size.worked_off(5_000, 0, 50_000)
    assert size.records == 200


def test_range_that_a_later_one_has_overtaken_says_nothing() -> None:
    size = size_of(**{"max.poll.records": 5_000})
    size.worked_off(5_000, 1_000, 2_900)
    size.worked_off(5_000, 0, 50_000)
    assert size.records == 5_000


def test_large_records_have_ranges_of_256_mib(log: Log) -> None:
    size = size_of()
    size.weigh(log, appended(log, MIB // 2))
    for _ in range(8):
        size.worked_off(size.records, 0, 1)
    assert size.records == 2 * 256


def test_sample_has_the_first_records(log: Log) -> None:
    size = size_of()
    size.weigh(log, appended(log, 4_096, 4_096, *[1] * 8))
    for _ in range(8):
        size.worked_off(size.records, 0, 1)
    assert size.records == 256 * MIB // ((2 * 4_096 + 8) / 10)


def test_set_size_has_no_bound_of_bytes(log: Log) -> None:
    size = size_of(**{"max.poll.records": 1_000})
    size.weigh(log, appended(log, MIB // 2))
    assert size.records == 1_000


def test_topic_that_is_gone_says_nothing(log: Log) -> None:
    size = size_of()
    ranges = appended(log, MIB // 2)
    log.delete_topic(TOPIC)
    size.weigh(log, ranges)
    size.weigh(log, [])
    assert size.records == 100


@pytest.mark.long("records that take their time")
@pytest.mark.spark
@pytest.mark.parametrize("threads", [1, 2])
def test_ranges_of_a_worker_grow_and_shrink_within_two_steps(site: SparkSite, threads: int) -> None:
    topic = site.new_topic(record_count=2_000)
    sizes: list[int] = []

    def handle(records: DataFrame) -> None:
        sizes.append(records.count())
        if max(sizes) > 100:
            time.sleep(0.01 * sizes[-1])

    drain(site, site.new_group(), topic, handle, **{"worker.ranges.in.flight": threads})
    assert sizes[0] == 100
    grown = next(index for index, count in enumerate(sizes) if count > 100)
    # Ranges that are in work when the first slow one ends still have the size of before.
    assert all(count <= 500 for count in sizes[grown + 2 * threads :])
    assert sum(sizes) == 2_000
