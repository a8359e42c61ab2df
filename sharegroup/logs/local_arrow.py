"""The local log in columns: ranges of records as Arrow record batches, for Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_partition import StoredRow, decode_headers

_HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

RECORD_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
    ]
)
"""Columns of a record; headers are null when there are none, as in Spark's Kafka source."""

MAX_BATCH_RECORDS = 10_000
"""Maximum number of rows of a record batch, as many as Spark itself puts into one."""

MAX_BATCH_BYTES = 16 * 1024 * 1024
"""Maximum bytes of keys, values and headers in a record batch; one record always fits."""


def read_arrow(
    log: LocalLog,
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int,
) -> Iterator[pa.RecordBatch]:
    """Read the records with start_offset <= offset < end_offset as batches of `RECORD_SCHEMA`.

    Raises:
        UnknownTopicError: there is no such partition.
    """
    for rows in log.scan(topic, partition, start_offset, end_offset, MAX_BATCH_RECORDS, MAX_BATCH_BYTES):
        yield _record_batch(topic, partition, rows)


def _record_batch(topic: str, partition: int, rows: Sequence[StoredRow]) -> pa.RecordBatch:
    offsets, timestamps_ms, keys, values, headers = zip(*rows, strict=True)
    stamps = pa.array(timestamps_ms, pa.timestamp("ms", tz="UTC"))
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), len(rows)),
        pa.repeat(pa.scalar(partition, pa.int32()), len(rows)),
        pa.array(offsets, pa.int64()),
        stamps.cast(pa.timestamp("us", tz="UTC")),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        _headers_column(headers),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _headers_column(stored: Sequence[bytes | None]) -> pa.Array:
    if not any(stored):
        return pa.nulls(len(stored), _HEADERS)
    decoded = [
        [{"key": key, "value": value} for key, value in decode_headers(headers)] if headers else None
        for headers in stored
    ]
    return pa.array(decoded, _HEADERS)
