"""From acquired ranges of offsets to their records as a DataFrame."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import HeldRange
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets
from sharegroup.spark.local_log_source import FORMAT


def acquired_records(spark: SparkSession, log_path: str, held: list[HeldRange]) -> DataFrame:
    """The records of held ranges as a DataFrame.

    Columns: topic, partition, offset, delivery_count, key, value, headers, timestamp.
    """
    ranges = [[r.topic, r.partition, r.first_offset, r.last_offset, r.delivery_count] for r in held]
    return (
        spark.read.format(FORMAT)
        .option("path", log_path)
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
    """What of acquired ranges can be read, and the gaps: what was deleted from the log since.

    Ranges of a topic that was deleted, or created again, are dropped: their records do not exist any more.
    """
    ranges = list(ranges)
    start_offsets = _start_offsets(log, {(found.topic, found.topic_id) for found in ranges})
    held: list[HeldRange] = []
    gaps: list[Acknowledgement] = []
    for found in ranges:
        if found.topic not in start_offsets:
            continue
        start = start_offsets[found.topic][found.partition].start_offset
        if found.first_offset < start:
            deleted = replace(found, last_offset=min(found.last_offset, start - 1))
            reason = f"deleted: the log starts at offset {start}"
            gaps.append(deleted.acknowledgement(AcknowledgeType.GAP, reason))
        if found.last_offset >= start:
            held.append(replace(found, first_offset=max(found.first_offset, start)))
    return held, gaps


def _start_offsets(log: Log, topics: Iterable[tuple[str, str]]) -> dict[str, dict[int, PartitionOffsets]]:
    """Offsets of the topics (name, id) that are still there."""
    offsets: dict[str, dict[int, PartitionOffsets]] = {}
    for topic, topic_id in topics:
        try:
            if log.describe_topic(topic).topic_id == topic_id:
                offsets[topic] = log.offsets(topic)
        except UnknownTopicError:
            continue
    return offsets
