"""Follows the tails of a topic's partitions in the local log; partitions are read after a commit only."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping

from sharegroup.errors import LogError
from sharegroup.logs.local_file import CommitWatch, LocalFile, data_version
from sharegroup.logs.local_partition import (
    StoredPartition,
    StoredRow,
    decode_headers,
    find_partition,
    read_rows,
    row_bytes,
    unknown_topic,
)
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import LogRecord


class LocalFollower:
    """A `Follower` of a local log.

    Args:
        clock: the log's clock; receives the stamps of the records read.
        positions: partition → offset of the first record to return.

    Raises:
        UnknownTopicError: there is no such topic or partition.
    """

    def __init__(self, file: LocalFile, clock: LogClock, topic: str, positions: Mapping[int, int]) -> None:
        self._file = file
        self._clock = clock
        self._topic = topic
        self._topic_id = ""
        self._positions = dict(positions)
        self._order = list(positions)
        self._taking = threading.Lock()
        self._is_closed = False
        with file.snapshot() as connection:
            for partition in positions:
                self._topic_id = self._partition(connection, partition).topic_id
        self._commits = CommitWatch(file)

    @property
    def positions(self) -> Mapping[int, int]:
        """Return partition → offset of the next record that `take` may return."""
        return dict(self._positions)

    def take(self, max_records: int, max_bytes: int, timeout_ms: int) -> list[LogRecord]:
        """Return records from the positions on; see `Follower.take`.

        Keys, values and headers count towards `max_bytes`.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        with self._taking, self._file.connection() as connection:
            if self._is_closed:
                raise LogError(f"The follower of topic {self._topic} is closed.", "Make a new one.")
            self._commits.renew()
            while True:
                # The version is read before the partitions, so no commit can fall in between.
                version = data_version(connection)
                records = self._read(connection, max_records, max_bytes)
                if records or not self._commits.wait(connection, version, deadline):
                    return records

    def wake(self) -> None:
        """End the current or the next `take` early; any thread may call it."""
        self._commits.wake()

    def close(self) -> None:
        """End a waiting `take`, and release all resources; any thread may call it."""
        self._is_closed = True
        self.wake()
        with self._taking:
            self._commits.close()

    def _read(self, connection: sqlite3.Connection, max_records: int, max_bytes: int) -> list[LogRecord]:
        """Read all partitions as of one commit; the next read begins with another partition."""
        records: list[LogRecord] = []
        positions: dict[int, int] = {}
        connection.execute("BEGIN")
        for partition in self._order:
            stored = self._partition(connection, partition)
            position = max(self._positions[partition], stored.start_offset)
            rows: list[StoredRow] = []
            # Most commits are to other partitions.
            if position < stored.end_offset:
                limits = (max_records - len(records), max_bytes)
                rows = read_rows(connection, stored.topic_rowid, partition, position, stored.end_offset, *limits)
            rows_bytes = sum(map(row_bytes, rows))
            if records and rows_bytes > max_bytes:
                break
            max_bytes -= rows_bytes
            positions[partition] = rows[-1][0] + 1 if rows else position
            records += (
                LogRecord(self._topic, partition, offset, timestamp_ms, key, value, decode_headers(headers))
                for offset, timestamp_ms, key, value, headers in rows
            )
            if rows and stored.config.is_log_append_time:
                self._clock.now_ms(rows[-1][1])
        connection.commit()
        self._positions |= positions
        if records:
            self._order.append(self._order.pop(0))
        return records

    def _partition(self, connection: sqlite3.Connection, partition: int) -> StoredPartition:
        stored = find_partition(connection, self._topic, partition)
        if stored is None or stored.topic_id != (self._topic_id or stored.topic_id):
            raise unknown_topic(self._file.path, f"{self._topic}-{partition}", "partition")
        return stored
