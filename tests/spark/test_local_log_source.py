"""The local log as a Spark source: streams with admission control and restarts, batches of exact ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from sharegroup.errors import ConfigurationError, OffsetOutOfRangeError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.local_log_source import FORMAT, LocalLogDataSource, LocalLogStreamReader, register

UNLIMITED = ReadAllAvailable()


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


def stream_reader(log: LocalLog, **options: str) -> LocalLogStreamReader:
    defaults = {"path": str(log.path), "topic": "events", "idleWaitMs": "0"}
    return data_source(defaults | options).streamReader(StructType())


class Batches:
    """A sink that remembers the (partition, offset) pairs of every micro-batch."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[int, int]]] = []

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("partition", "offset").collect()
        self.seen.append(sorted((row.partition, row.offset) for row in rows))

    @property
    def all(self) -> list[tuple[int, int]]:
        """Everything that was seen, sorted."""
        return sorted(pair for batch in self.seen for pair in batch)


def run_to_the_end(spark: SparkSession, log: LocalLog, folder: Path, **options: str) -> Batches:
    """Run a query over what the log holds now, from its checkpoint on."""
    sink = Batches()
    query = (
        spark.readStream.format(FORMAT)
        .options(path=str(log.path), topic="events", **options)
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sink


def pairs(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


# Streams


def test_a_stream_keeps_to_its_limit(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    append(log, 0, 25)
    append(log, 1, 3)
    sink = run_to_the_end(spark, log, tmp_path, maxOffsetsPerTrigger="10")
    assert sink.seen[0] == pairs(0, 0, 7) + pairs(1, 0, 3)
    assert [len(batch) for batch in sink.seen] == [10, 10, 8]
    assert sink.all == pairs(0, 0, 25) + pairs(1, 0, 3)


def test_a_restarted_stream_goes_on_from_its_checkpoint(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    append(log, 0, 4)
    assert run_to_the_end(spark, log, tmp_path).all == pairs(0, 0, 4)
    append(log, 0, 2)
    append(log, 1, 1)
    assert run_to_the_end(spark, log, tmp_path).all == pairs(0, 4, 6) + pairs(1, 0, 1)
    assert run_to_the_end(spark, log, tmp_path).all == []


def test_a_running_stream_sees_what_is_appended(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    append(log, 0, 2)
    sink = Batches()
    query = (
        spark.readStream.format(FORMAT)
        .options(path=str(log.path), topic="events", startingOffsets="latest")
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        append(log, 1, 3)
        query.processAllAvailable()
        append(log, 0, 1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sink.all == pairs(0, 2, 3) + pairs(1, 0, 3)


def test_a_stream_stops_when_unread_records_are_gone(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    append(log, 0, 3)
    run_to_the_end(spark, log, tmp_path)
    append(log, 0, 3)
    log.delete_records("events", 0, 5)
    with pytest.raises(StreamingQueryException, match=r"Offset 3 of partition events-0 is below .* start offset 5"):
        run_to_the_end(spark, log, tmp_path)
    assert run_to_the_end(spark, log, tmp_path, failOnDataLoss="false").all == pairs(0, 5, 6)


# The stream reader by itself


@pytest.mark.parametrize(
    ("starting_offsets", "expected"),
    [("earliest", {"0": 2, "1": 0}), ("latest", {"0": 5, "1": 1}), ('{"0": 3, "1": 1}', {"0": 3, "1": 1})],
)
def test_starting_offsets(log: LocalLog, starting_offsets: str, expected: dict[str, int]) -> None:
    append(log, 0, 5)
    append(log, 1, 1)
    log.delete_records("events", 0, 2)
    assert stream_reader(log, startingOffsets=starting_offsets).initialOffset() == expected


@pytest.mark.parametrize("starting_offsets", ["first", "{", "[]", '{"0": 1}', '{"0": 1, "1": -2}', '{"0": 1, "2": 0}'])
def test_starting_offsets_that_do_not_fit(log: LocalLog, starting_offsets: str) -> None:
    with pytest.raises(ConfigurationError, match=r"startingOffsets is .* partitions 0 to 1"):
        stream_reader(log, startingOffsets=starting_offsets).initialOffset()


def test_only_partitions_with_something_new_become_tasks(log: LocalLog) -> None:
    reader = stream_reader(log)
    append(log, 1, 3)
    end = reader.latestOffset({"0": 0, "1": 1}, UNLIMITED)
    assert end == {"0": 0, "1": 3} == reader.reportLatestOffset()
    (task,) = reader.partitions({"0": 0, "1": 1}, end)
    (batch,) = reader.read(task)
    assert batch.column("offset").to_pylist() == [1, 2]
    assert reader.partitions(end, end) == []


def test_an_idle_reader_waits_for_the_next_record(log: LocalLog) -> None:
    assert stream_reader(log, idleWaitMs="30").latestOffset({"0": 0, "1": 0}, UNLIMITED) == {"0": 0, "1": 0}
    append(log, 0, 1)
    assert stream_reader(log, idleWaitMs="600000").latestOffset({"0": 0, "1": 0}, UNLIMITED) == {"0": 1, "1": 0}


def test_available_now_ends_where_the_log_ended(log: LocalLog) -> None:
    append(log, 0, 2)
    reader = stream_reader(log, idleWaitMs="600000")
    reader.prepareForTriggerAvailableNow()
    append(log, 0, 2)
    append(log, 1, 2)
    assert reader.latestOffset({"0": 0, "1": 0}, ReadMaxRows(1)) == {"0": 1, "1": 0}
    assert reader.latestOffset({"0": 1, "1": 0}, UNLIMITED) == {"0": 2, "1": 0}
    assert reader.latestOffset({"0": 2, "1": 0}, UNLIMITED) == {"0": 2, "1": 0}


@pytest.mark.parametrize(
    ("limit_option", "limit"), [({}, ReadAllAvailable()), ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7))]
)
def test_the_limit_comes_from_the_option(log: LocalLog, limit_option: dict[str, str], limit: object) -> None:
    assert stream_reader(log, **limit_option).getDefaultReadLimit() == limit


def test_records_deleted_between_planning_and_reading(log: LocalLog) -> None:
    append(log, 0, 4)
    for fail_on_data_loss, offsets in (("true", None), ("false", [3])):
        reader = stream_reader(log, failOnDataLoss=fail_on_data_loss)
        (task,) = reader.partitions({"0": 0, "1": 0}, {"0": 4, "1": 0})
        log.delete_records("events", 0, 3)
        if offsets is None:
            with pytest.raises(OffsetOutOfRangeError, match="deleted before they were read"):
                list(reader.read(task))
        else:
            assert [batch.column("offset").to_pylist() for batch in reader.read(task)] == [offsets]


def test_a_log_that_lost_its_end(log: LocalLog) -> None:
    append(log, 0, 1)
    start = {"0": 9, "1": 0}
    with pytest.raises(OffsetOutOfRangeError, match=r"Offset 9 .* past the log's end offset 1.*failOnDataLoss"):
        stream_reader(log).latestOffset(start, UNLIMITED)
    assert stream_reader(log, failOnDataLoss="false").latestOffset(start, UNLIMITED) == start


def test_a_checkpoint_of_another_partition_count(log: LocalLog) -> None:
    with pytest.raises(ConfigurationError, match="reads 1 partitions of topic events, which has 2"):
        stream_reader(log).latestOffset({"0": 0}, UNLIMITED)


# Batches


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
    assert frame.rdd.getNumPartitions() == 3


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
        ({"path": "x"}, "needs the option topic"),
        ({"path": "x", "topic": "events", "maxOffsetsPerTriger": "5"}, "no option 'maxoffsetspertriger'"),
        ({"path": "x", "topic": "events", "ranges": "[]"}, "no option 'ranges'"),
        ({"path": "x", "topic": "events", "maxOffsetsPerTrigger": "0"}, "whole number from 1"),
        ({"path": "x", "topic": "events", "idleWaitMs": "soon"}, "idleWaitMs is 'soon'"),
        ({"path": "x", "topic": "events", "failOnDataLoss": "no"}, "failOnDataLoss is 'no'"),
    ],
)
def test_stream_options_that_do_not_fit(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        data_source(options).streamReader(StructType())


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
