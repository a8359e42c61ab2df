"""From acquired ranges of offsets to their records as a DataFrame."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import HeldRange
from sharegroup.client.record_reader import MISSING_REASONS
from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets
from sharegroup.spark.kafka_records import kafka_records
from sharegroup.spark.local_log_source import FORMAT


def acquired_records(spark: SparkSession, log: str | KafkaConfig, held: Sequence[HeldRange]) -> DataFrame:
    """The records of held ranges of one acquisition as a DataFrame.

    Columns: topic, partition, offset, delivery_count, key, value, headers, timestamp.

    Args:
        spark: the session that reads them.
        log: path or address of the log, or the Kafka cluster that it is in.
        held: the ranges.
    """
    if isinstance(log, KafkaConfig):
        return kafka_records(spark, log, held)
    ranges = [[r.topic, r.partition, r.first_offset, r.last_offset, r.delivery_count] for r in held]
    return (
        spark.read.format(FORMAT)
        .option("path", log)
        .option("ranges", json.dumps(ranges))
        .load()
        .select(
            "topic",
            "partition",
            "offset",
            "delivery_count",
            "key",
            "value",
            "headers",
            F.col("timestamp_ms").alias("timestamp"),
        )
    )


def readable(log: Log, ranges: Iterable[HeldRange]) -> tuple[list[HeldRange], list[Acknowledgement]]:
    """What of acquired ranges can be read, and what cannot: it was deleted from the log since, or is not there yet.

    Ranges of a topic that was deleted, or created again, are dropped: their records do not exist any more.
    """
    ranges = list(ranges)
    offsets = _offsets(log, {(found.topic, found.topic_id) for found in ranges})
    held: list[HeldRange] = []
    missing: list[Acknowledgement] = []
    for found in ranges:
        if found.topic not in offsets:
            continue
        start = offsets[found.topic][found.partition].start_offset
        end = max(start, offsets[found.topic][found.partition].readable_end(found.isolation_level))
        not_yet = f"{MISSING_REASONS[found.isolation_level][1]} {end}"
        for first, last, kind, reason in (
            (0, start - 1, AcknowledgeType.GAP, f"deleted: the log starts at offset {start}"),
            (end, found.last_offset, AcknowledgeType.UNREAD, not_yet),
        ):
            if part := _part(found, first, last):
                missing.append(part.acknowledgement(kind, reason))
        if part := _part(found, start, end - 1):
            held.append(part)
    return held, missing


def without_gaps(
    held: Iterable[HeldRange], offsets: Mapping[tuple[str, int], Sequence[int]]
) -> tuple[list[HeldRange], list[Acknowledgement]]:
    """Held ranges cut down to the offsets that have records, and the gaps between those.

    Args:
        held: ranges that can be read, as `readable` says.
        offsets: (topic, partition) → the offsets of its records, in ascending order.
    """
    parts: list[HeldRange] = []
    gaps: list[Acknowledgement] = []
    for found in held:
        of_partition = offsets.get((found.topic, found.partition), ())
        low = bisect_left(of_partition, found.first_offset)
        present = of_partition[low : bisect_right(of_partition, found.last_offset, lo=low)]
        if len(present) == found.record_count:
            parts.append(found)
            continue
        runs = [tuple(run) for _, run in groupby(enumerate(present), lambda item: item[1] - item[0])]
        bounds = [(run[0][1], run[-1][1]) for run in runs]
        parts += [replace(found, first_offset=first, last_offset=last) for first, last in bounds]
        edges = [(0, found.first_offset - 1), *bounds, (found.last_offset + 1, 0)]
        for (_, before), (after, _) in pairwise(edges):
            if gap := _part(found, before + 1, after - 1):
                gaps.append(gap.acknowledgement(AcknowledgeType.GAP, MISSING_REASONS[found.isolation_level][0]))
    return parts, gaps


def record_offsets(records: DataFrame) -> dict[tuple[str, int], list[int]]:
    """(topic, partition) → the offsets of its records, in ascending order; a Spark job that reads them all."""
    table: pa.Table = records.select("topic", "partition", "offset").toArrow()
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    columns = (table.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    for topic, partition, offset in sorted(zip(*columns, strict=True)):
        found[topic, partition].append(offset)
    return found


def _part(held: HeldRange, first_offset: int, last_offset: int) -> HeldRange | None:
    """What a range has within these bounds."""
    first, last = max(held.first_offset, first_offset), min(held.last_offset, last_offset)
    return replace(held, first_offset=first, last_offset=last) if first <= last else None


def _offsets(log: Log, topics: Iterable[tuple[str, str]]) -> dict[str, dict[int, PartitionOffsets]]:
    """Offsets of the topics (name, id) that are still there."""
    offsets: dict[str, dict[int, PartitionOffsets]] = {}
    for topic, topic_id in topics:
        try:
            if log.describe_topic(topic).topic_id == topic_id:
                offsets[topic] = log.offsets(topic)
        except UnknownTopicError:
            continue
    return offsets
