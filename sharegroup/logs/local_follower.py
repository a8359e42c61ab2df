"""Follows the tails of a topic's partitions in the local log.

Every commit of any process changes one counter of the SQLite file, `data_version`. The kernel reports when somebody
writes to the file's write-ahead log; then the follower looks at the counter, and again after pauses that grow, since
the report comes before the commit can be seen (with `synchronous=FULL` the disk is waited for in between). Only when
the counter has changed are the partitions read. So a follower that waits costs nothing, and a commit is seen within a
millisecond.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from sharegroup.errors import LogError
from sharegroup.logs.file_watch import Watch, watch
from sharegroup.logs.local_file import LocalFile
from sharegroup.logs.local_headers import decode_headers
from sharegroup.logs.local_partition import (
    StoredPartition,
    data_version,
    find_partition,
    read_rows,
    row_bytes,
    unknown_topic,
)
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import LogRecord

_FIRST_PAUSE_MS = 0.25
_NEXT_PAUSE_MS = 4.0
"""When nothing was reported since the last commit; another one may have been, together with that one."""
_PAUSE_GROWTH = 4


class LocalFollower:
    """A `Follower` of a local log.

    Args:
        file: the log's file.
        clock: the log's clock; learns the stamps that are read.
        topic: the topic.
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
        self._is_woken = False
        self._is_closed = False
        with file.snapshot() as connection:
            for partition in positions:
                self._topic_id = self._partition(connection, partition).topic_id
            # Here, since SQLite has opened the write-ahead log by now.
            self._watch: Watch = watch(file.write_ahead_log_path)

    @property
    def positions(self) -> Mapping[int, int]:
        """Partition → offset of the next record that `take` may return."""
        return dict(self._positions)

    def take(self, max_records: int, max_bytes: int, timeout_ms: int) -> list[LogRecord]:
        """Return records from the positions on; see `Follower.take`.

        Keys, values and headers count towards `max_bytes`.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        with self._taking, self._file.connection() as connection:
            if self._is_closed:
                raise LogError(f"The follower of topic {self._topic} is closed.", "Make a new one.")
            # SQLite deletes the write-ahead log with its last connection; from here on this one keeps it.
            data_version(connection)
            with suppress(OSError):
                self._watch.renew()
            while True:
                # The version is read before the partitions, so no commit can fall in between.
                version = data_version(connection)
                records = self._read(connection, max_records, max_bytes)
                if records or not self._wait_for_commit(connection, version, deadline):
                    return records

    def wake(self) -> None:
        """Let the `take` at hand, or the next one, return without waiting; any thread may call it."""
        self._is_woken = True
        self._watch.wake()

    def close(self) -> None:
        """End the `take` at hand, and give everything back; any thread may call it."""
        self._is_closed = True
        self.wake()
        with self._taking:
            self._watch.close()

    def _wait_for_commit(self, connection: sqlite3.Connection, version: int, deadline: float) -> bool:
        """Block until another connection has committed; return False when woken, closed, or the time is over."""
        pause_ms = min(_NEXT_PAUSE_MS, self._watch.longest_pause_ms)
        while data_version(connection) == version:
            if self._is_woken:
                self._is_woken = False
                return False
            remaining_ms = (deadline - time.monotonic()) * 1000
            if remaining_ms <= 0 or self._file.closed.is_set():
                return False
            is_reported = self._watch.wait(min(pause_ms, remaining_ms))
            pause_ms = _FIRST_PAUSE_MS if is_reported else min(pause_ms * _PAUSE_GROWTH, self._watch.longest_pause_ms)
        return True

    def _read(self, connection: sqlite3.Connection, max_records: int, max_bytes: int) -> list[LogRecord]:
        """Read all partitions as of one commit; the next read begins with another partition."""
        records: list[LogRecord] = []
        positions: dict[int, int] = {}
        connection.execute("BEGIN")
        for partition in self._order:
            found = self._partition(connection, partition)
            position = max(self._positions[partition], found.start_offset)
            limits = (max_records - len(records), max_bytes)
            rows = read_rows(connection, found.topic_rowid, partition, position, found.end_offset, *limits)
            rows_bytes = sum(map(row_bytes, rows))
            if records and rows_bytes > max_bytes:
                break
            max_bytes -= rows_bytes
            positions[partition] = rows[-1][0] + 1 if rows else position
            records += (
                LogRecord(self._topic, partition, offset, timestamp_ms, key, value, decode_headers(headers))
                for offset, timestamp_ms, key, value, headers in rows
            )
            if rows and found.is_log_append_time():
                self._clock.now_ms(rows[-1][1])
        connection.commit()
        self._positions |= positions
        if records:
            self._order.append(self._order.pop(0))
        return records

    def _partition(self, connection: sqlite3.Connection, partition: int) -> StoredPartition:
        found = find_partition(connection, self._topic, partition)
        if found is None or found.topic_id != (self._topic_id or found.topic_id):
            raise unknown_topic(self._file.path, f"{self._topic}-{partition}", "partition")
        return found
