"""The local log: one SQLite file that many processes on one machine append to and read at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import (
    OffsetOutOfRangeError,
    ShareGroupError,
    TopicExistsError,
)
from sharegroup.logs.local_bounds import check_size, check_topic
from sharegroup.logs.local_end_watch import LocalEndWatch
from sharegroup.logs.local_file import LocalFile
from sharegroup.logs.local_follower import LocalFollower
from sharegroup.logs.local_headers import decode_headers, encode_headers
from sharegroup.logs.local_partition import (
    StoredPartition,
    StoredRow,
    data_version,
    find_partition,
    read_rows,
    unknown_topic,
)
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import (
    LogRecord,
    NewRecord,
    PartitionOffsets,
    TopicDescription,
    TopicIdentity,
)
from sharegroup.logs.topic_id import new_topic_id

_RECORDS_PER_DELETION = 20_000
"""Records that are deleted in one transaction, for which all other writers wait."""


class LocalLog:
    """A `Log` in one SQLite file, created with its folder when missing.

    Any thread may use it; a forked process must open its own. A killed process leaves whole batches only. Offsets
    are never given out twice, whatever is deleted; when the file itself is lost, see `raise_end_offset`.

    Args:
        path: the file; beside it SQLite keeps `<path>-wal` and `<path>-shm`.
        clock: the time for records that the log stamps; by default one of this log's own.
        busy_timeout_ms: how long an operation waits for another process's append.
        must_exist: whether a missing file is an error.

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
        self.path = Path(path)
        self._clock = clock or LogClock()
        self._file = LocalFile(self.path, busy_timeout_ms, must_exist)
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

        The topic is gone at once, its records go in steps: other writers wait for a step only. What a killed process
        has left is deleted with the next topic.
        """
        with self._file.transaction() as connection:
            row = connection.execute("DELETE FROM topics WHERE name = ? RETURNING rowid", (name,)).fetchone()
            if row is None:
                raise unknown_topic(self.path, name)
            connection.execute("DELETE FROM partitions WHERE topic = ?", row)
            connection.execute("INSERT INTO deleted_topics VALUES (?)", row)
        while self._deletes_more_records():
            pass

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

    def append(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        """Append records at contiguous offsets, all or none; see `Log.append`."""
        return self.append_all([(topic, partition, records)])[0]

    def append_all(self, batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> list[int]:
        """Append several batches in one transaction; the first offset of each."""
        with self._file.transaction() as connection:
            return [self._append(connection, topic, partition, records) for topic, partition, records in batches]

    def identify(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicIdentity | ShareGroupError]:
        """Return which topic has each name; see `Log.identify`."""
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
        """Start and end offsets by partition; the last stable offset is the end, since all here is committed."""
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
        """The first offset as young as a time; see `Log.offset_for_time`. Reads the partition up to there."""
        with self._file.snapshot() as connection:
            found = self._partition(connection, topic, partition)
            (offset,) = connection.execute(
                "SELECT min(offset) FROM records WHERE topic = ? AND partition = ? AND timestamp_ms >= ?",
                (found.topic_rowid, partition, timestamp_ms),
            ).fetchone()
        return found.end_offset if offset is None else int(offset)

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
            found = self._partition(connection, topic, partition)
            rows = read_rows(connection, found.topic_rowid, partition, start_offset, end_offset, max_records, max_bytes)
        return [
            LogRecord(topic, partition, offset, timestamp_ms, key, value, decode_headers(headers))
            for offset, timestamp_ms, key, value, headers in rows
        ]

    def scan(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        chunk_records: int,
        chunk_bytes: int,
    ) -> Iterator[list[StoredRow]]:
        """Read a range in chunks of stored rows, each its own snapshot, so that no reader holds up the file.

        Raises:
            UnknownTopicError: there is no such partition (any more).
        """
        position = start_offset
        while position < end_offset:
            with self._file.snapshot() as connection:
                found = self._partition(connection, topic, partition)
                rows = read_rows(
                    connection, found.topic_rowid, partition, position, end_offset, chunk_records, chunk_bytes
                )
            if not rows:
                return
            yield rows
            position = rows[-1][0] + 1

    def watch_ends(self) -> LocalEndWatch:
        """Make a watch of the ends of partitions; see `Log.watch_ends`."""
        return LocalEndWatch(self._file, data_version)

    def follow(self, topic: str, positions: Mapping[int, int]) -> LocalFollower:
        """Follow the tails of some partitions; see `Log.follow`. The take of a closed log returns."""
        return LocalFollower(self._file, self._clock, topic, positions)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete all records below an offset; see `Log.delete_records`."""
        start_offset: int | None = None
        while start_offset is None or start_offset < before_offset:
            with self._file.transaction() as connection:
                found = self._partition(connection, topic, partition)
                if not 0 <= before_offset <= found.end_offset:
                    raise OffsetOutOfRangeError(
                        f"Records of partition {topic}-{partition} cannot be deleted up to offset {before_offset}.",
                        f"Give an offset from 0 to the end offset, {found.end_offset}.",
                    )
                start_offset = max(found.start_offset, min(before_offset, found.start_offset + _RECORDS_PER_DELETION))
                connection.execute(
                    "DELETE FROM records WHERE topic = ? AND partition = ? AND offset < ?",
                    (found.topic_rowid, partition, start_offset),
                )
                connection.execute(
                    "UPDATE partitions SET start_offset = ? WHERE topic = ? AND partition = ?",
                    (start_offset, found.topic_rowid, partition),
                )

    def raise_end_offset(self, topic: str, partition: int, offset: int) -> None:
        """Let the next record have this offset at least; an empty partition then starts there too.

        For a log that was lost and created again: offsets that the state table has seen must not come twice.
        Raises `UnknownTopicError`.
        """
        with self._file.transaction() as connection:
            found = self._partition(connection, topic, partition)
            connection.execute(
                """
                UPDATE partitions SET
                    start_offset = iif(start_offset = end_offset, max(end_offset, :offset), start_offset),
                    end_offset = max(end_offset, :offset)
                WHERE topic = :topic AND partition = :partition
                """,
                {"offset": offset, "topic": found.topic_rowid, "partition": partition},
            )

    def now_ms(self) -> int:
        """The log's time; see `Log.now_ms`."""
        return self._clock.now_ms()

    def close(self) -> None:
        """Close the file; followers and watches end."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _deletes_more_records(self) -> bool:
        """Delete some records of deleted topics; False when none is left."""
        with self._file.transaction() as connection:
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

    def _append(self, connection: sqlite3.Connection, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        found = self._partition(connection, topic, partition)
        if not records:
            return found.end_offset
        for record in records:
            check_size(topic, partition, record)
        stamp_all = found.is_log_append_time()
        now_ms = self._clock.now_ms(found.last_timestamp_ms) if stamp_all else self._clock.wall_ms()
        connection.executemany(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    found.topic_rowid,
                    partition,
                    offset,
                    now_ms if stamp_all or record.timestamp_ms is None else record.timestamp_ms,
                    record.key,
                    record.value,
                    encode_headers(record.headers),
                )
                for offset, record in enumerate(records, found.end_offset)
            ),
        )
        connection.execute(
            "UPDATE partitions SET end_offset = ?, last_timestamp_ms = ? WHERE topic = ? AND partition = ?",
            (found.end_offset + len(records), now_ms, found.topic_rowid, partition),
        )
        return found.end_offset

    def _partition(self, connection: sqlite3.Connection, topic: str, partition: int) -> StoredPartition:
        found = find_partition(connection, topic, partition)
        if found is None:
            raise unknown_topic(self.path, f"{topic}-{partition}", "partition")
        return found


def _find_topic(connection: sqlite3.Connection, name: str) -> TopicDescription | None:
    row = connection.execute(
        "SELECT name, topic_id, partition_count, config FROM topics WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else _description(row)


def _description(row: tuple[str, str, int, str]) -> TopicDescription:
    name, topic_id, partition_count, config = row
    return TopicDescription(name, topic_id, partition_count, json.loads(config))
