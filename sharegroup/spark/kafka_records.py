"""Records of acquired ranges from Kafka, by Spark's own source, which reads exact ranges of offsets."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.acquisition import HeldRange
from sharegroup.config.kafka import KafkaConfig
from sharegroup.spark.kafka_options import KAFKA_FORMAT, kafka_options

MAX_READS = 8
"""Spans of one partition at most: each is a read of its own, with a look at the cluster and a task."""
SKIPPED_OFFSETS = 10_000
"""A gap between two ranges that is not larger is read along with them."""

_SCHEMA = (
    "topic string, partition int, offset bigint, delivery_count smallint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, timestamp timestamp"
)
_COLUMNS = ("topic", "partition", "offset", "delivery_count", "key", "value", "headers", "timestamp")

Place = tuple[str, int]
"""Topic and partition."""

Span = tuple[int, int]
"""First offset, and the one after the last."""


def kafka_records(spark: SparkSession, config: KafkaConfig, held: Sequence[HeldRange]) -> DataFrame:
    """The records of held ranges of one acquisition; offsets without a record give no row.

    Columns: topic, partition, offset, delivery_count, key, value, headers, timestamp.

    Raises:
        EnvironmentNotReadyError: Spark's Kafka source is on no class path.
    """
    if not held:
        return spark.createDataFrame([], _SCHEMA)
    options = {**kafka_options(config), "kafka.isolation.level": held[0].isolation_level.value}
    spans = spans_of(held)
    records = functools.reduce(DataFrame.unionAll, (_read(spark, options, found) for found in _rounds(spans)))
    counts = {found.delivery_count for found in held}
    if len(counts) == 1 and not _has_holes(spans, held):
        counted = records.withColumn("delivery_count", F.lit(counts.pop()).cast("smallint"))
    else:
        counted = records.join(F.broadcast(_delivery_counts(spark, held)), ["topic", "partition", "offset"])
    return counted.select(*_COLUMNS)


def spans_of(held: Iterable[HeldRange]) -> dict[Place, list[Span]]:
    """Spans of offsets, in their order, that cover the ranges of each partition; at most MAX_READS of each.

    What lies between two ranges of a span is read in vain: so the spans end at the largest gaps.
    """
    ranges: dict[Place, list[HeldRange]] = defaultdict(list)
    for found in sorted(held, key=attrgetter("first_offset")):
        ranges[found.topic, found.partition].append(found)
    return {place: _spans(found) for place, found in ranges.items()}


def _spans(ranges: Sequence[HeldRange]) -> list[Span]:
    gaps = [(after.first_offset - before.last_offset - 1, index) for index, (before, after) in _neighbours(ranges)]
    widest = sorted(gaps, reverse=True)[: MAX_READS - 1]
    bounds = [0, *sorted(index for gap, index in widest if gap > SKIPPED_OFFSETS), len(ranges)]
    return [(ranges[low].first_offset, ranges[high - 1].last_offset + 1) for low, high in pairwise(bounds)]


def _neighbours(ranges: Sequence[HeldRange]) -> Iterator[tuple[int, tuple[HeldRange, HeldRange]]]:
    """Each range with the one before it, by index."""
    return enumerate(pairwise(ranges), start=1)


def _rounds(spans: Mapping[Place, Sequence[Span]]) -> Iterator[dict[Place, Span]]:
    """A read has one span of each partition: the first ones, the second ones, and so on."""
    for number in range(max(map(len, spans.values()))):
        yield {place: found[number] for place, found in spans.items() if number < len(found)}


def _read(spark: SparkSession, options: Mapping[str, str], spans: Mapping[Place, Span]) -> DataFrame:
    partitions: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), (start, end) in spans.items():
        partitions[topic].append(partition)
        starts[topic][str(partition)], ends[topic][str(partition)] = start, end
    return (
        spark.read.format(KAFKA_FORMAT)
        .options(**options)
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", "true")
        # What was deleted meanwhile gives no row; whoever reads finds out which offsets have none.
        .option("failOnDataLoss", "false")
        .load()
        .drop("timestampType")
    )


def _has_holes(spans: Mapping[Place, Sequence[Span]], held: Iterable[HeldRange]) -> bool:
    covered = sum(end - start for found in spans.values() for start, end in found)
    return covered != sum(found.record_count for found in held)


def _delivery_counts(spark: SparkSession, held: Sequence[HeldRange]) -> DataFrame:
    """One row for each offset of the ranges."""
    table = pa.table(
        {
            "topic": [found.topic for found in held],
            "partition": pa.array([found.partition for found in held], pa.int32()),
            "first_offset": pa.array([found.first_offset for found in held], pa.int64()),
            "last_offset": pa.array([found.last_offset for found in held], pa.int64()),
            "delivery_count": pa.array([found.delivery_count for found in held], pa.int16()),
        }
    )
    offsets = F.explode(F.sequence("first_offset", "last_offset")).alias("offset")
    return spark.createDataFrame(table).select("topic", "partition", "delivery_count", offsets)
