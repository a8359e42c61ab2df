"""Records of acquired ranges in the columns of Spark's Kafka source, read by the tasks straight from the log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sharegroup.client.held_records import HeldRange
from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_arrow import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, RECORD_SCHEMA, read_arrow
from sharegroup.logs.missing_topic import MissingTopic
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log, LogRecord, TopicDescription
from sharegroup.logs.topic_properties import LOG_APPEND_TIME, TIMESTAMP_TYPE_CONFIG

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>, delivery_count smallint"
)
"""Those of Spark's Kafka source, and the number of deliveries of the record, this one included."""

ACQUISITION_COLUMN = "acquisition"
"""Column with the folder of a batch's acknowledgements; only with explicit acknowledgement."""

BatchColumn = tuple[str, str]
"""Name and value of a column that is the same in all rows of a batch."""

_POLL_INTERVAL_S = 0.2


class TaskPartition(InputPartition):
    """A Spark partition: the records that one task reads.

    Args:
        log: path or address of the embedded log, or the Kafka cluster.
        column: a further column; None is none.
    """

    def __init__(self, log: str | KafkaConfig, ranges: Sequence[HeldRange], column: BatchColumn | None) -> None:
        super().__init__(None)
        self.log = log
        self.ranges = ranges
        self.column = column


def read_task(task: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Read the records of a task; leave out those that are no longer in the log, also those of a former topic.

    Left-out records are accepted with the batch, so a topic counts as deleted only after lookups for some seconds.

    Raises:
        UnknownTopicError: a topic was deleted, or created again, during the read: the next attempt leaves it out.
    """
    with open_log(task.log) as log:
        topics = _topics(log, task.ranges)
        ranges = [held for held in task.ranges if held.topic_id in topics]
        for held in ranges:
            timestamp_type = _timestamp_type(topics[held.topic_id])
            for batch in _read_range(log, held):
                yield _to_source_columns(batch, timestamp_type, held.delivery_count, task.column)
        # Checked after the read, too: a topic id that still holds now held then.
        present = _topics(log, ranges)
        if gone := sorted({held.topic for held in ranges if held.topic_id not in present}):
            raise UnknownTopicError(
                f"Topic {', '.join(gone)} was deleted or created again while its records were read.",
                "Start the query again: it leaves them out.",
            )


def _read_range(log: Log, held: HeldRange) -> Iterator[pa.RecordBatch]:
    """Read a range in the columns of RECORD_SCHEMA."""
    end_offset = held.last_offset + 1
    if isinstance(log, LocalLog):
        yield from read_arrow(log, held.topic, held.partition, held.first_offset, end_offset)
        return
    position = held.first_offset
    while position < end_offset:
        records = log.read(
            held.topic, held.partition, position, end_offset, MAX_BATCH_RECORDS, MAX_BATCH_BYTES, held.isolation_level
        )
        if not records:
            return
        yield _record_batch(records)
        position = records[-1].offset + 1


def _record_batch(records: Sequence[LogRecord]) -> pa.RecordBatch:
    timestamps = pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", tz="UTC"))
    headers = [
        [{"key": key, "value": value} for key, value in record.headers] if record.headers else None
        for record in records
    ]
    columns: list[pa.Array] = [
        pa.array([record.topic for record in records], pa.string()),
        pa.array([record.partition for record in records], pa.int32()),
        pa.array([record.offset for record in records], pa.int64()),
        timestamps.cast(pa.timestamp("us", tz="UTC")),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(headers, RECORD_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _topics(log: Log, ranges: Sequence[HeldRange]) -> dict[str, TopicDescription]:
    """Return the topics of ranges that exist, by their ids; poll for missing ones until they count as deleted."""
    missing = {held.topic_id: held.topic for held in ranges}
    topics: dict[str, TopicDescription] = {}
    polls = MissingTopic()
    while True:
        for name in set(missing.values()):
            with suppress(UnknownTopicError):
                topic = log.describe_topic(name)
                topics[topic.topic_id] = topic
        missing = {topic_id: name for topic_id, name in missing.items() if topic_id not in topics}
        if not missing or polls.take_missing(time.monotonic()):
            return topics
        time.sleep(_POLL_INTERVAL_S)


def _timestamp_type(topic: TopicDescription) -> int:
    """Return Kafka's number: 0 if producers set timestamps, 1 if the log does."""
    return int(topic.config.get(TIMESTAMP_TYPE_CONFIG) == LOG_APPEND_TIME)


def _to_source_columns(
    batch: pa.RecordBatch, timestamp_type: int, delivery_count: int, column: BatchColumn | None
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
        "delivery_count": pa.repeat(pa.scalar(delivery_count, pa.int16()), batch.num_rows),
    }
    if column is not None:
        name, value = column
        columns[name] = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_pydict(columns)
