"""Partitions of the local log in its tables: their offsets, their stored rows, and appends.

Records are encoded before the log is locked, then inserted in its transaction.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from sharegroup.errors import RecordTooLargeError, UnknownTopicError
from sharegroup.logs.local_topic_config import TopicConfig, topic_config
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import Headers, NewRecord

MAX_RECORD_BYTES = 104_857_600
"""Maximum bytes of a record's key, value and headers: Kafka's `socket.request.max.bytes` for a request."""

StoredRow = tuple[int, int, bytes | None, bytes | None, bytes | None]
"""A record as stored: offset, timestamp in milliseconds, key, value, encoded headers."""


class StoredPartition(NamedTuple):
    """A row of the partition table, with the columns of its topic."""

    topic_rowid: int
    topic_id: str
    topic_config: str
    start_offset: int
    end_offset: int
    last_timestamp_ms: int

    @property
    def config(self) -> TopicConfig:
        """Return the configuration of the topic."""
        return topic_config(self.topic_config)


def find_partition(connection: sqlite3.Connection, topic: str, partition: int) -> StoredPartition | None:
    """Return a partition, or None if it does not exist."""
    row = connection.execute(
        """
        SELECT topics.rowid, topic_id, config, start_offset, end_offset, last_timestamp_ms
        FROM topics JOIN partitions ON partitions.topic = topics.rowid WHERE name = ? AND partition = ?
        """,
        (topic, partition),
    ).fetchone()
    return None if row is None else StoredPartition(*row)


def require_partition(connection: sqlite3.Connection, path: Path, topic: str, partition: int) -> StoredPartition:
    """Return a partition.

    Raises:
        UnknownTopicError: there is no such partition.
    """
    stored = find_partition(connection, topic, partition)
    if stored is None:
        raise unknown_topic(path, f"{topic}-{partition}", "partition")
    return stored


def read_rows(
    connection: sqlite3.Connection,
    topic_rowid: int,
    partition: int,
    start_offset: int,
    end_offset: int,
    max_records: int | None,
    max_bytes: int | None,
) -> list[StoredRow]:
    """Read stored rows of a range of offsets, end exclusive; one row always fits into `max_bytes`."""
    cursor = connection.execute(
        """
        SELECT offset, timestamp_ms, key, value, headers FROM records
        WHERE topic = ? AND partition = ? AND offset >= ? AND offset < ? ORDER BY offset LIMIT ?
        """,
        (topic_rowid, partition, start_offset, end_offset, -1 if max_records is None else max_records),
    )
    if max_bytes is None:
        return cursor.fetchall()
    rows: list[StoredRow] = []
    read_bytes = 0
    for row in cursor:
        read_bytes += row_bytes(row)
        if rows and read_bytes > max_bytes:
            break
        rows.append(row)
    return rows


def offset_as_young_as(
    connection: sqlite3.Connection, topic_rowid: int, partition: int, timestamp_ms: int
) -> int | None:
    """Return the first offset whose timestamp is at or after a time, or None; reads the partition up to there."""
    (offset,) = connection.execute(
        "SELECT min(offset) FROM records WHERE topic = ? AND partition = ? AND timestamp_ms >= ?",
        (topic_rowid, partition, timestamp_ms),
    ).fetchone()
    return None if offset is None else int(offset)


def row_bytes(row: StoredRow) -> int:
    """Return the size of a row's key, value and headers."""
    return len(row[2] or b"") + len(row[3] or b"") + len(row[4] or b"")


def unknown_topic(path: Path, name: str, kind: str = "topic") -> UnknownTopicError:
    """Return the error for a topic or partition that the log at this path does not have."""
    return UnknownTopicError(
        f"The {kind} {name} is not in the local log {path}.", "Create it, or check the name and the path."
    )


@lru_cache(maxsize=8)
def encode_headers(headers: Headers) -> bytes | None:
    """Return the stored form of headers; cached, since the records of one append often have the same headers."""
    if not headers:
        return None
    pairs = [(key, None if value is None else base64.b64encode(value).decode("ascii")) for key, value in headers]
    return json.dumps(pairs, separators=(",", ":")).encode()


def decode_headers(stored: bytes | None) -> Headers:
    """Return the headers from their stored form."""
    if stored is None:
        return ()
    return tuple((key, None if value is None else base64.b64decode(value)) for key, value in json.loads(stored))


class PreparedBatch(NamedTuple):
    """Records for one partition, prepared as far as possible before the log is locked.

    Attributes:
        rows: timestamp (None if the log stamps it), key, value and stored headers of each record.
        largest_bytes: key, value and headers of the largest record.
    """

    topic: str
    partition: int
    rows: Sequence[tuple[int | None, bytes | None, bytes | None, bytes | None]]
    largest_bytes: int

    @classmethod
    def of(cls, topic: str, partition: int, records: Sequence[NewRecord]) -> Self:
        """Prepare the records of one batch."""
        rows = [(record.timestamp_ms, record.key, record.value, encode_headers(record.headers)) for record in records]
        sizes = (len(key or b"") + len(value or b"") + len(headers or b"") for _, key, value, headers in rows)
        return cls(topic, partition, rows, max(sizes, default=0))


def _check_size(topic: str, partition: int, size_bytes: int, max_message_bytes: int | None) -> None:
    """Check the size of a record.

    Args:
        size_bytes: bytes of the record's key, value and headers.
        max_message_bytes: maximum of the topic; None is `MAX_RECORD_BYTES`.

    Raises:
        RecordTooLargeError: the record is larger.
    """
    limit = MAX_RECORD_BYTES if max_message_bytes is None else min(max_message_bytes, MAX_RECORD_BYTES)
    if size_bytes > limit:
        raise RecordTooLargeError(
            f"A record for partition {topic}-{partition} has {size_bytes} bytes; the most is {limit}.",
            "Append less in one record.",
        )


def append_batch(connection: sqlite3.Connection, path: Path, clock: LogClock, batch: PreparedBatch) -> StoredPartition:
    """Append records, and return the partition as it was before.

    Raises:
        RecordTooLargeError: a record is larger than the topic accepts.
        UnknownTopicError: there is no such partition.
    """
    stored = require_partition(connection, path, batch.topic, batch.partition)
    if not batch.rows:
        return stored
    _check_size(batch.topic, batch.partition, batch.largest_bytes, stored.config.max_message_bytes)
    stamp_all = stored.config.is_log_append_time
    now_ms = clock.now_ms(stored.last_timestamp_ms) if stamp_all else clock.wall_ms()
    connection.executemany(
        "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (
                stored.topic_rowid,
                batch.partition,
                offset,
                now_ms if stamp_all or timestamp_ms is None else timestamp_ms,
                key,
                value,
                headers,
            )
            for offset, (timestamp_ms, key, value, headers) in enumerate(batch.rows, stored.end_offset)
        ),
    )
    connection.execute(
        "UPDATE partitions SET end_offset = ?, last_timestamp_ms = ? WHERE topic = ? AND partition = ?",
        (stored.end_offset + len(batch.rows), now_ms, stored.topic_rowid, batch.partition),
    )
    return stored
