"""Records of acquired ranges in the columns of Spark's Kafka source, read by the tasks straight from the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_arrow import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, RECORD_SCHEMA, read_arrow
from sharegroup.logs.open import open_log
from sharegroup.logs.port import LOG_APPEND_TIME, TIMESTAMP_TYPE_CONFIG, Log, LogRecord
from sharegroup.spark.offset_ranges import OffsetRange

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>, delivery_count smallint"
)
"""Those of Spark's Kafka source, and how often the record was delivered, this delivery included."""

ACQUISITION_COLUMN = "acquisition"
"""Column by which `acknowledge` knows the batch of a record; only with explicit acknowledgement."""


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """What one task reads.

    Attributes:
        log: path or address of the log, or the Kafka cluster that it is in.
        ranges: which records, with their delivery counts.
        acquisition: value of the column `acquisition`; None leaves the column out.
        isolation_level: whether records of aborted transactions are among them.
    """

    log: str | KafkaConfig
    ranges: tuple[OffsetRange, ...]
    acquisition: str | None
    isolation_level: IsolationLevel


class TaskPartition(InputPartition):
    """A task of Spark."""

    def __init__(self, records: TaskRecords) -> None:
        super().__init__(records)

    @property
    def records(self) -> TaskRecords:
        """What it reads."""
        found: TaskRecords = self.value
        return found


def read_task(task: TaskRecords) -> Iterator[pa.RecordBatch]:
    """The records of a task; those that the log does not have any more are left out."""
    with open_log(task.log) as log:
        timestamp_types = {topic: _timestamp_type(log, topic) for topic in {found.topic for found in task.ranges}}
        for wanted in task.ranges:
            for batch in _batches(log, wanted, task.isolation_level):
                yield _as_kafka_source(batch, timestamp_types[wanted.topic], wanted, task.acquisition)


def _batches(log: Log, wanted: OffsetRange, isolation_level: IsolationLevel) -> Iterator[pa.RecordBatch]:
    """The records of a range in the columns of RECORD_SCHEMA."""
    if isinstance(log, LocalLog):
        yield from read_arrow(log, wanted.topic, wanted.partition, wanted.start_offset, wanted.end_offset)
        return
    position = wanted.start_offset
    while position < wanted.end_offset:
        records = log.read(
            wanted.topic,
            wanted.partition,
            position,
            wanted.end_offset,
            MAX_BATCH_RECORDS,
            MAX_BATCH_BYTES,
            isolation_level,
        )
        if not records:
            return
        yield _record_batch(records)
        position = records[-1].offset + 1


def _record_batch(records: Sequence[LogRecord]) -> pa.RecordBatch:
    stamps = pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", tz="UTC"))
    columns: Iterable[pa.Array] = (
        pa.array([record.topic for record in records], pa.string()),
        pa.array([record.partition for record in records], pa.int32()),
        pa.array([record.offset for record in records], pa.int64()),
        stamps.cast(pa.timestamp("us", tz="UTC")),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(
            [[{"key": key, "value": value} for key, value in r.headers] if r.headers else None for r in records],
            RECORD_SCHEMA.field("headers").type,
        ),
    )
    return pa.RecordBatch.from_arrays(list(columns), schema=RECORD_SCHEMA)


def _timestamp_type(log: Log, topic: str) -> int:
    """Kafka's number: 0 when the producer stamps records, 1 when the log does."""
    return int(log.describe_topic(topic).config.get(TIMESTAMP_TYPE_CONFIG) == LOG_APPEND_TIME)


def _as_kafka_source(
    batch: pa.RecordBatch, timestamp_type: int, wanted: OffsetRange, acquisition: str | None
) -> pa.RecordBatch:
    columns = {
        "key": batch.column("key"),
        "value": batch.column("value"),
        "topic": batch.column("topic"),
        "partition": batch.column("partition"),
        "offset": batch.column("offset"),
        "timestamp": batch.column("timestamp_ms"),
        "timestampType": pa.repeat(pa.scalar(timestamp_type, pa.int32()), batch.num_rows),
        "headers": batch.column("headers"),
        "delivery_count": pa.repeat(pa.scalar(wanted.delivery_count, pa.int16()), batch.num_rows),
    }
    if acquisition is not None:
        columns[ACQUISITION_COLUMN] = pa.repeat(pa.scalar(acquisition, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_pydict(columns)
