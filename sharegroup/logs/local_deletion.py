"""Deletion of records of the local log, in steps: other writers wait for one step only.

Appends delete the records past `retention.ms` or `retention.bytes` of the topic, since there is no broker that checks
topics regularly. So each process checks a partition with its appends: at most once in a minute, or a tenth of the
retention where that is shorter; by size after each tenth of the bytes that stay. As in Kafka, records may stay longer,
and are never deleted sooner.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sharegroup.errors import OffsetOutOfRangeError
from sharegroup.logs.local_file import LocalFile
from sharegroup.logs.local_partition import StoredPartition, offset_as_young_as, require_partition
from sharegroup.logs.local_topic_config import TopicConfig
from sharegroup.logs.port import NewRecord

_RECORDS_PER_DELETION = 20_000
"""Records deleted in one transaction, for which all other writers wait."""


def delete_below(
    file: LocalFile, topic: str, partition: int, before_offset: int, topic_rowid: int | None = None
) -> None:
    """Delete all records of a partition below an offset.

    Args:
        before_offset: offset of the first record that is kept.
        topic_rowid: row id of the expected topic; nothing is deleted of another topic of that name. None is any.

    Raises:
        OffsetOutOfRangeError: the offset is negative or past the end.
        UnknownTopicError: there is no such partition.
    """
    start_offset: int | None = None
    while start_offset is None or start_offset < before_offset:
        with file.transaction() as connection:
            stored = require_partition(connection, file.path, topic, partition)
            if stored.topic_rowid != (topic_rowid or stored.topic_rowid):
                return
            if not 0 <= before_offset <= stored.end_offset:
                raise OffsetOutOfRangeError(
                    f"Records of partition {topic}-{partition} cannot be deleted up to offset {before_offset}.",
                    f"Give an offset from 0 to the end offset, {stored.end_offset}.",
                )
            start_offset = max(stored.start_offset, min(before_offset, stored.start_offset + _RECORDS_PER_DELETION))
            connection.execute(
                "DELETE FROM records WHERE topic = ? AND partition = ? AND offset < ?",
                (stored.topic_rowid, partition, start_offset),
            )
            connection.execute(
                "UPDATE partitions SET start_offset = ? WHERE topic = ? AND partition = ?",
                (start_offset, stored.topic_rowid, partition),
            )


def delete_topic_records(file: LocalFile) -> None:
    """Delete all records of deleted topics, also those that a killed process left."""
    while _deletes_more_records(file):
        pass


def _deletes_more_records(file: LocalFile) -> bool:
    """Delete some records of deleted topics; return False when none is left."""
    with file.transaction() as connection:
        row = connection.execute("SELECT topic FROM deleted_topics LIMIT 1").fetchone()
        if row is None:
            return False
        deleted = connection.execute(
            """
            DELETE FROM records WHERE topic = :topic AND (partition, offset) IN (
                SELECT partition, offset FROM records WHERE topic = :topic LIMIT :count
            )
            """,
            {"topic": row[0], "count": _RECORDS_PER_DELETION},
        )
        if deleted.rowcount < _RECORDS_PER_DELETION:
            connection.execute("DELETE FROM deleted_topics WHERE topic = ?", row)
    return True


_LONGEST_INTERVAL_S = 60.0
_SHARE = 10
"""A partition is checked each tenth of its retention."""

PartitionRow = tuple[int, int]
"""Row id of the topic, and partition."""


@dataclass(slots=True)
class _NextCheck:
    """The next check of a partition.

    Attributes:
        at_s: time of the next check, in seconds of the monotonic clock.
        appended_bytes: bytes appended since the last check.
    """

    at_s: float = 0.0
    appended_bytes: int = 0


class RetentionSchedule:
    """The next checks of the partitions to which one process appends; the first append to each is due."""

    def __init__(self) -> None:
        self._next_checks: dict[PartitionRow, _NextCheck] = {}

    def is_due(self, row: PartitionRow, config: TopicConfig, records: Sequence[NewRecord]) -> bool:
        """Return True if a partition is due for a check, after records were appended."""
        next_check = self._next_checks.setdefault(row, _NextCheck())
        now_s = time.monotonic()
        if config.retention_bytes is not None:
            next_check.appended_bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        is_due = now_s >= next_check.at_s or (
            config.retention_bytes is not None and next_check.appended_bytes > config.retention_bytes // _SHARE
        )
        if is_due:
            interval_s = _LONGEST_INTERVAL_S
            if config.retention_ms is not None:
                interval_s = min(interval_s, config.retention_ms / 1000 / _SHARE)
            self._next_checks[row] = _NextCheck(now_s + interval_s)
        return is_due


def retained_offset(
    connection: sqlite3.Connection, stored: StoredPartition, partition: int, config: TopicConfig, now_ms: int
) -> int:
    """Return the first offset that is retained."""
    first = stored.start_offset
    if config.retention_ms is not None:
        young = offset_as_young_as(connection, stored.topic_rowid, partition, now_ms - config.retention_ms)
        first = max(first, stored.end_offset if young is None else young)
    if config.retention_bytes is not None:
        first = max(first, _offset_for_bytes(connection, stored, partition, config.retention_bytes))
    return first


def _offset_for_bytes(
    connection: sqlite3.Connection, stored: StoredPartition, partition: int, retention_bytes: int
) -> int:
    """Return the highest start offset that retains this many bytes; the partition's start when it has fewer."""
    rows = connection.execute(
        """
        SELECT offset, ifnull(length(key), 0) + ifnull(length(value), 0) + ifnull(length(headers), 0) FROM records
        WHERE topic = ? AND partition = ? ORDER BY offset DESC
        """,
        (stored.topic_rowid, partition),
    )
    kept_bytes, first = 0, stored.end_offset
    for offset, size_bytes in rows:
        if kept_bytes >= retention_bytes:
            return first
        kept_bytes, first = kept_bytes + int(size_bytes), int(offset)
    return stored.start_offset
