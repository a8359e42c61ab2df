"""Watches where partitions of a local log end, by one counter of the file and one query."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from sharegroup.logs.local_file import LocalFile
from sharegroup.logs.port import Growth

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.006
_REST_PER_QUERY = 4
"""Rest after a query, as a multiple of the time that it took: many watches in a busy file take a fifth of a core."""

_GROWN = """
    SELECT watched.topic, watched.partition FROM temp.watched
    JOIN topics ON topics.name = watched.topic
    JOIN partitions ON partitions.topic = topics.rowid AND partitions.partition = watched.partition
    WHERE partitions.end_offset > watched.end_offset
"""


class LocalEndWatch:
    """An `EndWatch` with a connection of its own, whose temporary table holds what is watched.

    Args:
        file: the log's file.
        data_version: reads the counter that changes with each commit of another connection.
    """

    def __init__(self, file: LocalFile, data_version: Callable[[sqlite3.Connection], int]) -> None:
        self._file = file
        self._data_version = data_version
        self._woken = threading.Event()
        self._lending = file.connection()
        self._connection = self._lending.__enter__()
        self._is_lent = True
        with self._errors_translated():
            self._connection.execute("PRAGMA temp_store=MEMORY")
            self._connection.execute(
                "CREATE TEMP TABLE watched "
                "(topic TEXT, partition INTEGER, end_offset INTEGER, PRIMARY KEY (topic, partition)) WITHOUT ROWID"
            )
        self._version = -1
        self._rest_until_s = 0.0

    def watch(self, topic: str, end_offsets: Mapping[int, int]) -> None:
        """Watch partitions from these offsets on; see `EndWatch.watch`."""
        rows = ((topic, partition, end_offset) for partition, end_offset in end_offsets.items())
        self._change("INSERT OR REPLACE INTO temp.watched VALUES (?, ?, ?)", rows)
        self._version = -1

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Watch partitions no more."""
        self._change(
            "DELETE FROM temp.watched WHERE topic = ? AND partition = ?",
            ((topic, partition) for partition in partitions),
        )

    def wait(self, timeout_ms: int) -> Growth:
        """Block until watched partitions have grown; between commits one counter is read every 1 to 6 ms."""
        give_up_at_s = time.monotonic() + timeout_ms / 1000
        pause_s = _FIRST_PAUSE_S
        while True:
            now_s = time.monotonic()
            if now_s >= self._rest_until_s:
                # The version is read before the query, so that no commit can fall in between.
                with self._errors_translated():
                    version = self._data_version(self._connection)
                    grown = self._take_grown(now_s) if version != self._version else {}
                if grown:
                    return Growth(grown)
                if version != self._version:
                    self._version = version
                    pause_s = _FIRST_PAUSE_S
            remaining_s = give_up_at_s - time.monotonic()
            if remaining_s <= 0 or self._file.closed.is_set():
                return Growth()
            if self._woken.wait(min(pause_s, remaining_s)):
                self._woken.clear()
                return Growth()
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def wake(self) -> None:
        """Let `wait` return at once."""
        self._woken.set()

    def close(self) -> None:
        """Give the connection back, without the watches."""
        with self._errors_translated():
            self._connection.execute("DROP TABLE temp.watched")
        self._is_lent = False
        self._lending.__exit__(None, None, None)

    def _take_grown(self, now_s: float) -> dict[str, frozenset[int]]:
        grown = defaultdict(set)
        for topic, partition in self._connection.execute(_GROWN).fetchall():
            grown[topic].add(partition)
        self._rest_until_s = now_s + (time.monotonic() - now_s) * (1 + _REST_PER_QUERY)
        for topic, partitions in grown.items():
            self.forget(topic, partitions)
        return {topic: frozenset(partitions) for topic, partitions in grown.items()}

    def _change(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        with self._errors_translated():
            self._connection.execute("BEGIN")
            self._connection.executemany(statement, rows)
            self._connection.commit()

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        """Give the connection up after an error of SQLite, which leaves as this package's."""
        try:
            yield
        except sqlite3.Error as error:
            if not self._is_lent:
                raise
            self._is_lent = False
            self._lending.__exit__(type(error), error, error.__traceback__)
