"""Watches the ends of partitions of a local log: the file's counter, then a sum for each topic, then its partitions."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sharegroup.logs.local_file import CommitWatch, LocalFile, data_version
from sharegroup.logs.port import Growth

_REST_PER_CHECK = 4
"""Pause after a check, as a multiple of its duration: many watches in a busy file use a fifth of a core."""

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
        row_and_sum: row id and sum of the ends at the last check.
        ends: end offsets at the last check.
    """

    watched: dict[int, int] = field(default_factory=dict)
    row_and_sum: tuple[int, int] | None = None
    ends: dict[int, int] = field(default_factory=dict)


class LocalEndWatch:
    """An `EndWatch` of a local log."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self._commits = CommitWatch(file)
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
        """Stop watching partitions."""
        if topic not in self._topics:
            return
        watched = self._topics[topic].watched
        for partition in partitions:
            watched.pop(partition, None)

    def wait(self, timeout_ms: int) -> Growth:
        """Block until watched partitions have grown; they are checked after a commit only."""
        give_up_at_s = time.monotonic() + timeout_ms / 1000
        # Each connection has its own counter.
        seen_version: int | None = None
        with self._file.connection() as connection:
            self._commits.renew()
            while not self._woken.wait(max(min(self._rest_until_s, give_up_at_s) - time.monotonic(), 0)):
                # The version is read before the ends, so that no commit can fall in between.
                version = data_version(connection)
                if version != seen_version:
                    seen_version = version
                    started_s = time.monotonic()
                    grown = self._grown(connection)
                    self._rest_until_s = started_s + (time.monotonic() - started_s) * (1 + _REST_PER_CHECK)
                    if grown:
                        return Growth(grown)
                if not self._commits.wait(connection, version, give_up_at_s):
                    break
            self._woken.clear()
        return Growth()

    def wake(self) -> None:
        """Let `wait` return at once."""
        self._woken.set()
        self._commits.wake()

    def close(self) -> None:
        """Let `wait` return at once."""
        self._commits.close()
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
