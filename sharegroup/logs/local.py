"""The local log: one SQLite file that many processes on one machine append to and read at once."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import (
    LogError,
    ShareGroupError,
    TopicExistsError,
)
from sharegroup.logs.life_signs import LifeSigns
from sharegroup.logs.local_deletion import RetentionSchedule, delete_below, delete_topic_records, retained_offset
from sharegroup.logs.local_end_watch import LocalEndWatch
from sharegroup.logs.local_file import LocalFile
from sharegroup.logs.local_follower import LocalFollower
from sharegroup.logs.local_partition import (
    PreparedBatch,
    StoredPartition,
    StoredRow,
    append_batch,
    decode_headers,
    offset_as_young_as,
    read_rows,
    require_partition,
    unknown_topic,
)
from sharegroup.logs.local_topic_config import check_topic
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.member_life import MemberLock, MemberLocks
from sharegroup.logs.member_locks import LocalMemberLock, LocalMemberLocks, members_folder
from sharegroup.logs.port import (
    LogRecord,
    NewRecord,
    OffsetSpan,
    PartitionOffsets,
    TopicDescription,
    TopicIdentity,
)
from sharegroup.logs.topic_properties import LOG_APPEND_TIME, TIMESTAMP_TYPE_CONFIG, new_topic_id

_logger = logging.getLogger(__name__)


class LocalLog:
    """A `Log` in one SQLite file, created with its folder when missing.

    Any thread may use it; a forked process must open its own. A killed process leaves whole batches only. An offset
    is never assigned twice, whatever is deleted; when the file itself is lost, see `raise_end_offset`.

    Args:
        path: the file, or a symbolic link to it; SQLite keeps `<path>-wal` and `<path>-shm` beside the file.
        clock: the time for records that the log stamps; by default this log's own clock.
        busy_timeout_ms: how long an operation waits for another process's append.
        must_exist: True if a missing file is an error.

    Raises:
        LogError: the file is missing, but must exist.
        LogCorruptedError: the file is there but is not a local log.
        LogUnavailableError: the file cannot be opened or created.
        UnsupportedFormatVersionError: another release wrote it.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        clock: LogClock | None = None,
        *,
        busy_timeout_ms: int = 10_000,
        must_exist: bool = False,
    ) -> None:
        # A log has one name, that of its file, for all that lies beside it; and this one in any working directory.
        self.path = Path(os.path.realpath(path))
        self._clock = clock or LogClock()
        self._file = LocalFile(self.path, busy_timeout_ms, must_exist)
        self._retention = RetentionSchedule()
        with self._file.snapshot() as connection:
            (last_ms,) = connection.execute("SELECT ifnull(max(last_timestamp_ms), 0) FROM partitions").fetchone()
        self._clock.now_ms(last_ms)

    def create_topic(
        self,
        name: str,
        partition_count: int,
        config: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> TopicDescription:
        """Create a topic; see `Log.create_topic`."""
        config = dict(config or {})
        check_topic(name, partition_count, config)
        with self._file.transaction() as connection:
            existing = _find_topic(connection, name)
            if existing is not None:
                if if_not_exists:
                    return existing
                raise TopicExistsError(
                    f"The topic {name} is in the local log {self.path} already.", "Choose another name or delete it."
                )
            topic_id = new_topic_id()
            cursor = connection.execute(
                "INSERT INTO topics (name, topic_id, partition_count, config) VALUES (?, ?, ?, ?)",
                (name, topic_id, partition_count, json.dumps(config)),
            )
            connection.executemany(
                "INSERT INTO partitions VALUES (?, ?, 0, 0, 0)",
                ((cursor.lastrowid, partition) for partition in range(partition_count)),
            )
        return TopicDescription(name, topic_id, partition_count, config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises `UnknownTopicError`.

        The topic is gone at once. Its records are deleted in steps: other writers wait for one step only. The next
        deletion of a topic also deletes the records that a killed process left.
        """
        with self._file.transaction() as connection:
            row = connection.execute("DELETE FROM topics WHERE name = ? RETURNING rowid", (name,)).fetchone()
            if row is None:
                raise unknown_topic(self.path, name)
            connection.execute("DELETE FROM partitions WHERE topic = ?", row)
            connection.execute("INSERT INTO deleted_topics VALUES (?)", row)
        delete_topic_records(self._file)

    def describe_topic(self, name: str) -> TopicDescription:
        """Describe one topic; raises `UnknownTopicError`."""
        with self._file.snapshot() as connection:
            description = _find_topic(connection, name)
        if description is None:
            raise unknown_topic(self.path, name)
        return description

    def topics(self) -> list[TopicDescription]:
        """Describe all topics, by name."""
        with self._file.snapshot() as connection:
            rows = connection.execute("SELECT name, topic_id, partition_count, config FROM topics ORDER BY name")
            return [_description(row) for row in rows]

    def append(self, topic: str, partition: int, records: Sequence[NewRecord], *, may_repeat: bool = False) -> int:
        """Append records at contiguous offsets, all or none, and never twice; see `Log.append`."""
        return self.append_all([(topic, partition, records)])[0]

    def append_all(self, batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> list[int]:
        """Append several batches in one transaction, and return the first offset of each."""
        # All other writers wait for the transaction, also for a process that is stopped in it: it is kept short.
        prepared = [PreparedBatch.of(topic, partition, records) for topic, partition, records in batches]
        with self._file.transaction() as connection:
            stored_partitions = [append_batch(connection, self.path, self._clock, batch) for batch in prepared]
        for stored, (topic, partition, records) in zip(stored_partitions, batches, strict=True):
            if stored.config.has_retention and records:
                self._keep_to_retention(topic, partition, stored, records)
        return [stored.end_offset for stored in stored_partitions]

    def identify(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicIdentity | ShareGroupError]:
        """Return the topic of each name; see `Log.identify`."""
        with self._file.snapshot() as connection:
            rows = {
                name: connection.execute(
                    "SELECT topic_id, partition_count FROM topics WHERE name = ?", (name,)
                ).fetchone()
                for name in names
            }
        return {name: TopicIdentity(*row) if row else unknown_topic(self.path, name) for name, row in rows.items()}

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, PartitionOffsets]:
        """Return start and end offsets by partition.

        All records are committed, so the end is the last stable offset.
        """
        condition, parameters = "", [topic]
        if partitions is not None:
            condition = "AND partition IN (SELECT value FROM json_each(?))"
            parameters.append(json.dumps(list(partitions)))
        with self._file.snapshot() as connection:
            rows = connection.execute(
                f"""
                SELECT partition, start_offset, end_offset FROM partitions
                WHERE topic = (SELECT rowid FROM topics WHERE name = ?) {condition} ORDER BY partition
                """,
                parameters,
            ).fetchall()
            if not rows and _find_topic(connection, topic) is None:
                raise unknown_topic(self.path, topic)
        return {partition: PartitionOffsets(start, end, end) for partition, start, end in rows}

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Return the first offset whose timestamp is at or after a time; see `Log.offset_for_time`.

        Reads the partition up to there.
        """

        with self._file.snapshot() as connection:
            stored = require_partition(connection, self.path, topic, partition)
            offset = offset_as_young_as(connection, stored.topic_rowid, partition, timestamp_ms)
        return stored.end_offset if offset is None else offset

    def read(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        max_records: int | None = None,
        max_bytes: int | None = None,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> list[LogRecord]:
        """Read records of a range of offsets, end exclusive; see `Log.read`. All records are committed."""
        with self._file.snapshot() as connection:
            stored = require_partition(connection, self.path, topic, partition)
            rows = read_rows(
                connection, stored.topic_rowid, partition, start_offset, end_offset, max_records, max_bytes
            )
        return [
            LogRecord(topic, partition, offset, timestamp_ms, key, value, decode_headers(headers))
            for offset, timestamp_ms, key, value, headers in rows
        ]

    def read_messages(
        self,
        topic: str,
        topic_id: str,
        spans: Mapping[int, OffsetSpan],
        max_bytes: int,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, list[Message]]:
        """Read spans of partitions as messages; see `Log.read_messages`."""
        is_append_time = self.describe_topic(topic).config.get(TIMESTAMP_TYPE_CONFIG) == LOG_APPEND_TIME
        timestamp_type = TIMESTAMP_LOG_APPEND_TIME if is_append_time else TIMESTAMP_CREATE_TIME
        return {
            partition: [
                Message(
                    topic,
                    partition,
                    record.offset,
                    record.key,
                    record.value,
                    list(record.headers) or None,
                    None,
                    (timestamp_type, record.timestamp_ms),
                )
                for record in self.read(
                    topic, partition, span.start_offset, span.end_offset, None, max_bytes, isolation_level
                )
            ]
            for partition, span in spans.items()
        }

    def scan(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        chunk_records: int,
        chunk_bytes: int,
    ) -> Iterator[list[StoredRow]]:
        """Read a range in chunks of stored rows, each in its own snapshot, so that no reader blocks the file.

        Raises:
            UnknownTopicError: the partition does not exist (any more).
        """
        position = start_offset
        while position < end_offset:
            with self._file.snapshot() as connection:
                stored = require_partition(connection, self.path, topic, partition)
                rows = read_rows(
                    connection, stored.topic_rowid, partition, position, end_offset, chunk_records, chunk_bytes
                )
            if not rows:
                return
            yield rows
            position = rows[-1][0] + 1

    def watch_ends(self) -> LocalEndWatch:
        """Make a watch of the ends of partitions; see `Log.watch_ends`."""
        return LocalEndWatch(self._file)

    def follow(self, topic: str, positions: Mapping[int, int]) -> LocalFollower:
        """Follow the tails of some partitions; see `Log.follow`. Closing the log ends a waiting `take`."""
        return LocalFollower(self._file, self._clock, topic, positions)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete all records below an offset; see `Log.delete_records`."""
        delete_below(self._file, topic, partition, before_offset)

    def delete_expired(self, topic: str, partitions: Iterable[int] | None = None, *, is_dry_run: bool = False) -> int:
        """Delete the records past `retention.ms` and `retention.bytes` of a topic; appends do it regularly.

        Args:
            partitions: partitions; None is all.
            is_dry_run: only return the number of records that would be deleted.

        Returns:
            The number of offsets by which the start offsets of the partitions move.

        Raises:
            UnknownTopicError: there is no such topic or partition.
        """
        deleted = 0
        for partition in self.offsets(topic) if partitions is None else partitions:
            with self._file.snapshot() as connection:
                stored = require_partition(connection, self.path, topic, partition)
                first = retained_offset(connection, stored, partition, stored.config, self._clock.now_ms())
            deleted += first - stored.start_offset
            if first > stored.start_offset and not is_dry_run:
                delete_below(self._file, topic, partition, first, stored.topic_rowid)
        return deleted

    def raise_end_offset(self, topic: str, partition: int, offset: int) -> None:
        """Raise the end offset of a partition to at least this offset; an empty partition then starts there, too.

        For a log that was lost and created again: offsets that the state table has seen must not be assigned again.
        Raises `UnknownTopicError`.
        """
        with self._file.transaction() as connection:
            stored = require_partition(connection, self.path, topic, partition)
            connection.execute(
                """
                UPDATE partitions SET
                    start_offset = iif(start_offset = end_offset, max(end_offset, :offset), start_offset),
                    end_offset = max(end_offset, :offset)
                WHERE topic = :topic AND partition = :partition
                """,
                {"offset": offset, "topic": stored.topic_rowid, "partition": partition},
            )

    def lock_member(self, group_id: str, member_id: str) -> MemberLock:
        """Hold a lock that ends with this process; see `Log.lock_member`."""
        return LocalMemberLock(members_folder(self.path), group_id, member_id)

    def help_member(self, signs: LifeSigns) -> None:
        """Return None: the lock of a member shows the end of its process."""

    def member_locks(self) -> MemberLocks:
        """Return the locks of all members; see `Log.member_locks`."""
        return LocalMemberLocks(members_folder(self.path))

    def now_ms(self) -> int:
        """Return the log's time; see `Log.now_ms`."""
        return self._clock.now_ms()

    def limited(self, timeout_ms: int) -> AbstractContextManager[None]:
        """Do nothing: a file has no network to wait for; see `Log.limited`."""
        return nullcontext()

    def close(self) -> None:
        """Close the file; followers and watches end."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _keep_to_retention(
        self, topic: str, partition: int, stored: StoredPartition, records: Sequence[NewRecord]
    ) -> None:
        """Delete the records past the topic's retention, if a check is due; errors do not fail the append."""
        if self._retention.is_due((stored.topic_rowid, partition), stored.config, records):
            try:
                self.delete_expired(topic, [partition])
            except LogError as error:
                _logger.warning("Old records of partition %s-%d stay for now: %s", topic, partition, error)


def _find_topic(connection: sqlite3.Connection, name: str) -> TopicDescription | None:
    row = connection.execute(
        "SELECT name, topic_id, partition_count, config FROM topics WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else _description(row)


def _description(row: tuple[str, str, int, str]) -> TopicDescription:
    name, topic_id, partition_count, config = row
    return TopicDescription(name, topic_id, partition_count, json.loads(config))
