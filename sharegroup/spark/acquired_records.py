"""The records of acquired ranges as a DataFrame, and their number from the job that reads them."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.held_records import HeldRange
from sharegroup.config.kafka import KafkaConfig
from sharegroup.spark import classic, connect
from sharegroup.spark.internal_session import moved, reading_session
from sharegroup.spark.local_log_source import FORMAT
from sharegroup.spark.session import check_kafka_source

MAX_READS = 8
"""Most spans of one partition: each is a read of its own, with a lookup in the cluster and a task."""
SKIPPED_OFFSETS = 10_000
"""The largest gap between two ranges that is read along with them."""

_FORMAT = "kafka"
_SETTINGS = {
    # A topic that was deleted must not be created again with a broker's defaults: it would be another one.
    "kafka.allow.auto.create.topics": "false",
    # A task asks for offsets that exist. Its consumer also fetches beyond them in advance; such a fetch would wait for
    # new records at the broker, half a second by default, and the next request on that connection behind it.
    "kafka.fetch.max.wait.ms": "10",
    # With Kafka's default of 500, reading takes nearly twice as long. Larger fetches would read little faster, and
    # fill the heap: Spark keeps up to 64 consumers, each with a fetch in advance.
    "kafka.max.poll.records": "5000",
    # By default a socket takes in 64 KB before the task reads on, so the rest of the next fetch waits at the broker.
    # With the limits of the system all of it arrives while the task works.
    "kafka.receive.buffer.bytes": "-1",
}
_SCHEMA = (
    "topic string, partition int, offset bigint, delivery_count smallint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, timestamp timestamp"
)
_COLUMNS = ("topic", "partition", "offset", "delivery_count", "key", "value", "headers", "timestamp")

Partition = tuple[str, int]
"""Topic and partition."""

Span = tuple[int, int]
"""First offset, and the one after the last."""

_COUNT = "count"
_COUNT_TIMEOUT_S = 1.0
"""Spark reports a count within milliseconds after the job."""


class RecordCount:
    """Counts records in the first job that reads them; a job of its own would read them all again."""

    def __init__(self, spark: SparkSession) -> None:
        self._observation = Observation()
        self._is_connect = connect.is_connect(spark)

    def of(self, records: DataFrame) -> DataFrame:
        """Return the same records, counted when an action reads them; once for each count."""
        return records.observe(self._observation, F.count("*").alias(_COUNT))

    def value(self) -> int | None:
        """Return the number of records that the first action read.

        None if no action reports it: those on `rdd` and `foreach` do not, nor one that Spark carries out without
        reading, as a filter by a delivery count that no record has.
        """
        if self._is_connect:
            return connect.observed(self._observation, _COUNT)
        return classic.observed(self._observation, _COUNT, _COUNT_TIMEOUT_S)


def kafka_records(
    spark: SparkSession, config: KafkaConfig, ranges: Sequence[HeldRange], count: RecordCount | None = None
) -> DataFrame:
    """Return the records of held ranges of one acquisition as a frame of the session.

    Offsets without a record have no row.

    Columns: topic, partition, offset, delivery_count, key, value, headers, timestamp.

    Args:
        count: counts the records when an action reads them.

    Raises:
        EnvironmentNotReadyError: Spark's Kafka source is on no class path.
        ConfigurationError: a PEM file cannot be read.
    """
    if not ranges:
        return spark.createDataFrame([], _SCHEMA)
    options = {**_read_options(config), "kafka.isolation.level": ranges[0].isolation_level.value}
    # 1. Read the spans that cover the ranges.
    spans = spans_of(ranges)
    reader = reading_session(spark)
    reads = [_read(reader, options, round_of_spans) for round_of_spans in _rounds(spans)]
    records = moved(functools.reduce(DataFrame.unionAll, reads), spark)
    # 2. Count them and add delivery counts; a join with the ranges also drops the gaps between them. Spark drops no
    # columns below a count, and copies each record at a projection: so the count comes before the columns are chosen.
    counts = {held.delivery_count for held in ranges}
    if len(counts) == 1 and not _has_gaps(spans, ranges):
        acquired = _counted(records, count).withColumn("delivery_count", F.lit(counts.pop()).cast("smallint"))
    else:
        joined = records.join(F.broadcast(_delivery_counts(spark, ranges)), ["topic", "partition", "offset"])
        acquired = _counted(joined, count)
    return acquired.select(*_COLUMNS)


def spans_of(ranges: Iterable[HeldRange]) -> dict[Partition, list[Span]]:
    """Return ascending spans of offsets that cover the ranges of each partition; at most MAX_READS of each.

    The gaps within a span are read in vain, so spans end at the largest gaps.
    """
    by_partition: dict[Partition, list[HeldRange]] = defaultdict(list)
    for held in sorted(ranges, key=attrgetter("first_offset")):
        by_partition[held.topic, held.partition].append(held)
    return {partition: _spans(of_partition) for partition, of_partition in by_partition.items()}


def _read_options(config: KafkaConfig) -> dict[str, str]:
    """Return the options of every read of a cluster; they may hold secrets."""
    check_kafka_source()
    return _SETTINGS | {f"kafka.{key}": value for key, value in config.java_client_properties().items()}


def _spans(ranges: Sequence[HeldRange]) -> list[Span]:
    gaps = [
        (after.first_offset - before.last_offset - 1, index)
        for index, (before, after) in enumerate(pairwise(ranges), start=1)
    ]
    largest = sorted(gaps, reverse=True)[: MAX_READS - 1]
    bounds = [0, *sorted(index for gap, index in largest if gap > SKIPPED_OFFSETS), len(ranges)]
    return [(ranges[start].first_offset, ranges[end - 1].last_offset + 1) for start, end in pairwise(bounds)]


def _rounds(spans: Mapping[Partition, Sequence[Span]]) -> Iterator[dict[Partition, Span]]:
    """Return one span of each partition for each read: the first spans, the second ones, and so on."""
    for number in range(max(map(len, spans.values()))):
        yield {
            partition: of_partition[number] for partition, of_partition in spans.items() if number < len(of_partition)
        }


def _read(spark: SparkSession, options: Mapping[str, str], spans: Mapping[Partition, Span]) -> DataFrame:
    partitions: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), (start, end) in spans.items():
        partitions[topic].append(partition)
        starts[topic][str(partition)], ends[topic][str(partition)] = start, end
    return (
        spark.read.format(_FORMAT)
        .options(**options)
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", "true")
        # Records that were deleted since have no row; the caller determines which offsets have none.
        .option("failOnDataLoss", "false")
        .load()
    )


def _has_gaps(spans: Mapping[Partition, Sequence[Span]], ranges: Iterable[HeldRange]) -> bool:
    covered = sum(end - start for of_partition in spans.values() for start, end in of_partition)
    return covered != sum(held.record_count for held in ranges)


def _delivery_counts(spark: SparkSession, ranges: Sequence[HeldRange]) -> DataFrame:
    """Return one row for each offset of the ranges."""
    table = pa.table(
        {
            "topic": [held.topic for held in ranges],
            "partition": pa.array([held.partition for held in ranges], pa.int32()),
            "first_offset": pa.array([held.first_offset for held in ranges], pa.int64()),
            "last_offset": pa.array([held.last_offset for held in ranges], pa.int64()),
            "delivery_count": pa.array([held.delivery_count for held in ranges], pa.int16()),
        }
    )
    offsets = F.explode(F.sequence("first_offset", "last_offset")).alias("offset")
    return spark.createDataFrame(table).select("topic", "partition", "delivery_count", offsets)


def _counted(records: DataFrame, count: RecordCount | None) -> DataFrame:
    return records if count is None else count.of(records)


def acquired_records(
    spark: SparkSession, log: str | KafkaConfig, ranges: Sequence[HeldRange], count: RecordCount | None = None
) -> DataFrame:
    """Return the records of held ranges of one acquisition as a DataFrame.

    Columns: topic, partition, offset, delivery_count, key, value, headers, timestamp.

    Args:
        log: path or address of the embedded log, or the Kafka cluster.
        count: counts the records when an action reads them.
    """
    if isinstance(log, KafkaConfig):
        return kafka_records(spark, log, ranges, count)
    stored = [[r.topic, r.partition, r.first_offset, r.last_offset, r.delivery_count] for r in ranges]
    records = spark.read.format(FORMAT).option("path", log).option("ranges", json.dumps(stored)).load()
    columns = [F.col("timestamp_ms").alias(name) if name == "timestamp" else name for name in _COLUMNS]
    return _counted(records, count).select(*columns)


def record_offsets(records: DataFrame) -> dict[tuple[str, int], list[int]]:
    """Return (topic, partition) → the offsets of its records, in ascending order; a Spark job that reads them all."""
    table: pa.Table = records.select("topic", "partition", "offset").toArrow()
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    for topic, partition, offset in sorted(rows):
        offsets[topic, partition].append(offset)
    return offsets
