"""The local log as a Spark source: batches of a topic, and of exact ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from sharegroup.client.held_records import HeldRange
from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.local_log_source import FORMAT, LocalLogDataSource, parse_ranges, register


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "events.log") as opened:
        opened.create_topic("events", 2)
        yield opened


def append(log: LocalLog, partition: int, count: int) -> None:
    log.append("events", partition, [NewRecord(None, b"v")] * count)


def data_source(options: dict[str, str]) -> LocalLogDataSource:
    """The source as Spark makes it: option names without regard to case."""
    return LocalLogDataSource(CaseInsensitiveDict(options))


def test_a_batch_of_a_whole_topic(spark: SparkSession, log: LocalLog) -> None:
    log.append("events", 0, [NewRecord(b"k", b"v", (("h", b"x"), ("n", None)), 1_500)])
    log.append("events", 1, [NewRecord(None, None, (), 0)])
    frame = spark.read.format(FORMAT).options(path=str(log.path), topic="events").load()
    assert frame.schema.simpleString() == (
        "struct<topic:string,partition:int,offset:bigint,timestamp_ms:timestamp,key:binary,value:binary,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert [tuple(row) for row in frame.orderBy("partition").collect()] == [
        ("events", 0, 0, datetime.fromtimestamp(1.5), b"k", b"v", [("h", b"x"), ("n", None)]),
        ("events", 1, 0, datetime.fromtimestamp(0), None, None, None),
    ]


def test_a_batch_of_exact_ranges(spark: SparkSession, log: LocalLog) -> None:
    log.create_topic("other", 1)
    append(log, 0, 50)
    append(log, 1, 10)
    log.append("other", 0, [NewRecord(None, b"o")] * 3)
    log.delete_records("events", 1, 4)
    ranges = json.dumps([["events", 0, 10, 39, 1], ["events", 1, 2, 5, 3], ["other", 0, 2, 2, 2]])
    frame = spark.read.format(FORMAT).options(path=str(log.path), ranges=ranges, numPartitions="3").load()
    assert frame.schema["delivery_count"].dataType.simpleString() == "smallint"
    rows = frame.select("topic", "partition", "offset", "delivery_count").collect()
    assert sorted(tuple(row) for row in rows) == [
        *(("events", 0, offset, 1) for offset in range(10, 40)),
        ("events", 1, 4, 3),
        ("events", 1, 5, 3),
        ("other", 0, 2, 2),
    ]
    assert frame.select(F.spark_partition_id()).distinct().count() == 3


def test_a_batch_of_no_ranges(spark: SparkSession, log: LocalLog) -> None:
    assert spark.read.format(FORMAT).options(path=str(log.path), ranges="[]").load().collect() == []


def test_a_batch_of_an_unknown_topic(log: LocalLog) -> None:
    source = data_source({"path": str(log.path), "topic": "absent"})
    with pytest.raises(UnknownTopicError, match="absent"):
        source.reader(StructType()).partitions()


# Options


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topic": "events"}, "needs the option path"),
        ({"path": "x"}, "either a topic or ranges"),
        ({"path": "x", "topic": "events", "ranges": "[]"}, "either a topic or ranges"),
        ({"path": "x", "topic": "events", "numPartitions": "0"}, "numPartitions is '0'"),
        ({"path": "x", "topic": "events", "startingOffsets": "latest"}, "no option 'startingoffsets'"),
    ],
)
def test_batch_options_that_do_not_fit(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        data_source(options).reader(StructType())


def test_ranges_from_json() -> None:
    text = json.dumps([["events", 0, 5, 9, 1], ["other", 3, 0, 0, 0]])
    assert parse_ranges(text) == [HeldRange("", "events", 0, 5, 9, 1), HeldRange("", "other", 3, 0, 0, 0)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "not JSON"),
        ("{}", "not a JSON list"),
        ("[5]", r"ranges\[0\] is 5"),
        ('[["t", 0, 0, 0, 1], ["t", 0, 2, 1, 1]]', r"ranges\[1\]"),
        ('[["t", -1, 0, 0, 1]]', r"ranges\[0\]"),
        ('[["t", 0, -1, 0, 1]]', r"ranges\[0\]"),
        ('[["t", 0, 0, 0, 40000]]', "32767"),
        ('[["t", 0, 0, 0]]', r"ranges\[0\]"),
        ('[["t", "0", 0, 0, 1]]', r"ranges\[0\]"),
    ],
)
def test_ranges_that_are_none(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_ranges(text)
