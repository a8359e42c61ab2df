"""The progress of the example, read from the state table."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Group
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from sharegroup.audit.history.group_history import GroupHistory
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.state.fold import fold_order
from sharegroup.state.reader import StateTableReader


class LiveHistory:
    """A group's history that follows the state table as it grows."""

    def __init__(self, reader: StateTableReader, group_id: str) -> None:
        self._reader = reader
        self._last_order: tuple[int, ...] = ()
        self._last_time_ms = 0
        self.history = GroupHistory(group_id)

    def refresh(self) -> GroupHistory:
        """Take in the rows that are new."""
        rows = self._reader.rows(group_id=self.history.group_id, since_ms=self._last_time_ms)
        new = [row for row in rows if fold_order(row) > self._last_order]
        for row in new:
            self.history.apply(row)
        if new:
            self._last_order = fold_order(new[-1])
            self._last_time_ms = max(row.time_ms for row in new)
        return self.history


class DrainDisplay:
    """The live picture of a group that drains a topic.

    Args:
        end_offsets: partition → log end offset.
    """

    def __init__(self, end_offsets: Mapping[int, int]) -> None:
        self._end_offsets = end_offsets
        self._bar = Progress(
            TextColumn("drained"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), auto_refresh=False
        )
        self._task = self._bar.add_task("drained", total=sum(end_offsets.values()))
        self._before = (time.monotonic(), 0)
        self._rate = 0.0

    def render(self, history: GroupHistory) -> Group:
        """Bar, counts and one line for each share-partition."""
        finished = history.count(RecordState.ACKNOWLEDGED) + history.count(RecordState.ARCHIVED)
        self._bar.update(self._task, completed=finished)
        now = time.monotonic()
        seconds, count = now - self._before[0], finished - self._before[1]
        if seconds > 0:
            self._rate = count / seconds
            self._before = (now, finished)
        return Group(self._bar, self._counts(history), self._partitions(history))

    def _counts(self, history: GroupHistory) -> Table:
        counts = {
            "ACCEPTED": history.count(RecordState.ACKNOWLEDGED),
            "REJECTED": history.record_count(Cause.REJECT),
            "IN-FLIGHT": history.count(RecordState.ACQUIRED),
            "REDELIVERED": history.redelivered_count,
            "RECORDS/S": round(self._rate),
        }
        table = Table(*(Column(title, justify="right") for title in counts), box=None, pad_edge=False)
        table.add_row(*(f"{value:,}" for value in counts.values()))
        return table

    def _partitions(self, history: GroupHistory) -> Table:
        titles = ("PARTITION", "START-OFFSET", "LOG-END-OFFSET", "LAG")
        table = Table(*(Column(title, justify="right") for title in titles), box=None, pad_edge=False)
        start_offsets = {partition.partition: partition.start_offset for partition in history.partitions.values()}
        for partition, end_offset in sorted(self._end_offsets.items()):
            start_offset = start_offsets.get(partition, 0)
            table.add_row(str(partition), f"{start_offset:,}", f"{end_offset:,}", f"{end_offset - start_offset:,}")
        return table
