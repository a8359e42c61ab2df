"""A partition of the local log as its tables hold it: where it starts and ends, and its stored rows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import NamedTuple

from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import LOG_APPEND_TIME, TIMESTAMP_TYPE_CONFIG

StoredRow = tuple[int, int, bytes | None, bytes | None, bytes | None]
"""A record as stored: offset, timestamp in milliseconds, key, value, encoded headers."""


class StoredPartition(NamedTuple):
    """A row of the table of partitions, with what it shares with its topic."""

    topic_rowid: int
    topic_id: str
    topic_config: str
    start_offset: int
    end_offset: int
    last_timestamp_ms: int

    def is_log_append_time(self) -> bool:
        """Return True if the log stamps the records."""
        return bool(json.loads(self.topic_config).get(TIMESTAMP_TYPE_CONFIG) == LOG_APPEND_TIME)


def find_partition(connection: sqlite3.Connection, topic: str, partition: int) -> StoredPartition | None:
    """Return a partition, or None if there is no such one."""
    row = connection.execute(
        """
        SELECT topics.rowid, topic_id, config, start_offset, end_offset, last_timestamp_ms
        FROM topics JOIN partitions ON partitions.topic = topics.rowid WHERE name = ? AND partition = ?
        """,
        (topic, partition),
    ).fetchone()
    return None if row is None else StoredPartition(*row)


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


def row_bytes(row: StoredRow) -> int:
    """Return the size of a row's key, value and headers."""
    return len(row[2] or b"") + len(row[3] or b"") + len(row[4] or b"")


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes with each commit of another connection."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def unknown_topic(path: Path, name: str, kind: str = "topic") -> UnknownTopicError:
    """Return the error for a topic or partition that the log at this path does not have."""
    return UnknownTopicError(
        f"The {kind} {name} is not in the local log {path}.", "Create it, or check the name and the path."
    )
