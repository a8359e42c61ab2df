"""Watches where partitions of a local log end: one counter of the file, then one sum a topic, then its partitions."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sharegroup.logs.local_file import LocalFile
from sharegroup.logs.port import Growth

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.01
_REST_PER_LOOK = 4
"""Rest after a look, as a multiple of the time that it took: many watches in a busy file take a fifth of a core."""

# Ends only rise, so no partition has grown while their sum is the same.
_SUMS = """
    SELECT topics.name, topics.rowid, sum(end_offset)
    FROM topics JOIN partitions ON partitions.topic = topics.rowid
    WHERE topics.name IN (SELECT value FROM json_each(?)) GROUP BY topics.rowid
"""
_ENDS = "SELECT partition, end_offset FROM partitions WHERE topic = ?"


@dataclass(slots=True)
class _Topic:
    """A watched topic.

    Attributes:
        watched: partition → offset above which it has grown.
        row_and_sum: row id and sum of the ends at the latest look.
        ends: ends at the latest look.
    """

    watched: dict[int, int] = field(default_factory=dict)
    row_and_sum: tuple[int, int] | None = None
    ends: dict[int, int] = field(default_factory=dict)


class LocalEndWatch:
    """An `EndWatch` of a local log.

    Args:
        file: the log's file.
        data_version: reads the counter that changes with each commit of another connection.
    """

    def __init__(self, file: LocalFile, data_version: Callable[[sqlite3.Connection], int]) -> None:
        self._file = file
        self._data_version = data_version
        self._woken = threading.Event()
        self._topics: defaultdict[str, _Topic] = defaultdict(_Topic)
        self._rest_until_s = 0.0

    def watch(self, topic: str, end_offsets: Mapping[int, int]) -> None:
        """Watch partitions from these offsets on; see `EndWatch.watch`."""
        state = self._topics[topic]
        state.watched |= end_offsets
        if state.row_and_sum is None or any(state.ends.get(p, end) > end for p, end in end_offsets.items()):
            state.row_and_sum = None

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Watch partitions no more."""
        if topic not in self._topics:
            return
        watched = self._topics[topic].watched
        for partition in partitions:
            watched.pop(partition, None)

    def wait(self, timeout_ms: int) -> Growth:
        """Block until watched partitions have grown; between commits one counter is read every 1 to 10 ms."""
        give_up_at_s = time.monotonic() + timeout_ms / 1000
        pause_s = _FIRST_PAUSE_S
        # Each connection has a counter of its own.
        seen_version: int | None = None
        with self._file.connection() as connection:
            while True:
                now_s = time.monotonic()
                if now_s >= self._rest_until_s:
                    # The version is read before the ends, so that no commit can fall in between.
                    version = self._data_version(connection)
                    if version != seen_version:
                        seen_version = version
                        grown = self._grown(connection)
                        self._rest_until_s = now_s + (time.monotonic() - now_s) * (1 + _REST_PER_LOOK)
                        if grown:
                            return Growth(grown)
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
        """Give everything back."""
        self._topics.clear()

    def _grown(self, connection: sqlite3.Connection) -> dict[str, frozenset[int]]:
        self._topics = defaultdict(_Topic, {name: state for name, state in self._topics.items() if state.watched})
        grown: dict[str, frozenset[int]] = {}
        for name, row, total in connection.execute(_SUMS, (json.dumps(list(self._topics)),)).fetchall():
            state = self._topics[name]
            if state.row_and_sum == (row, total):
                continue
            state.ends = dict(connection.execute(_ENDS, (row,)).fetchall())
            state.row_and_sum = (row, sum(state.ends.values()))
            partitions = frozenset(p for p, end in state.watched.items() if state.ends.get(p, end) > end)
            if partitions:
                grown[name] = partitions
                self.forget(name, partitions)
        return grown
