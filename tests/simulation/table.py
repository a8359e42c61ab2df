"""The state table in memory: commits, fences, and table snapshots taken beside the processor."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from sharegroup.errors import FencedProcessorError, ForeignCommitError
from sharegroup.processor.takeover.older_state import PresentState, folded_recovery
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import changed
from sharegroup.protocol.row_payloads import FencePayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import SHARE_PARTITION_TYPES, fold_order
from sharegroup.state.reader import CommitMarkerInfo, Recovery
from sharegroup.state.schema import StoredRows, decoded, rows_to_table
from sharegroup.state.table_snapshot import table_snapshot

_RECOVERY_TYPES = SHARE_PARTITION_TYPES | {
    RecordType.GROUP_METADATA,
    RecordType.GROUP_STATUS,
    RecordType.TABLE_SNAPSHOT,
}

Point = Callable[[str], None]


class StoredTable:
    """All rows in the order of their commits; what outlives processors.

    Args:
        committed: called with each row of a commit.
        published_commit_id: returns the last commit that a response depends on.
    """

    def __init__(
        self, committed: Callable[[StateRow], None], published_commit_id: Callable[[], int] = lambda: -1
    ) -> None:
        self._committed = committed
        self._published_commit_id = published_commit_id
        self.rows: list[StateRow] = []
        self.leader_epoch = 0
        self._snapshot: list[StateRow] = []
        self._snapshot_table = rows_to_table([])
        self._snapshot_marker: CommitMarkerInfo | None = None
        self._since_snapshot: list[StateRow] = []
        self._last_marker: StateRow | None = None
        self._fence: StateRow | None = None
        self._newest_rows: list[StateRow] | None = None
        """All rows, while an older version is restored."""
        self.restore_count = 0
        """How often another program has replaced the rows."""

    @property
    def is_restored(self) -> bool:
        """Return True while the table has an older version."""
        return self._newest_rows is not None

    def restore_older(self, fraction: float) -> bool:
        """Restore a version that lacks a commit which a response depends on; False if there is none.

        Args:
            fraction: which of these versions, from 0, the oldest, to 1, the newest.
        """
        published = self._published_commit_id()
        ends = [
            index + 1
            for index, row in enumerate(self.rows)
            if row.record_type is RecordType.COMMIT_MARKER and row.commit_id < published
        ]
        if not ends or self.is_restored:
            return False
        newest = self.rows
        self._replace(newest[: ends[int(fraction * (len(ends) - 1))]])
        self._newest_rows = newest
        return True

    def restore_newest(self) -> None:
        """Restore the newest version, if an older one is there."""
        if self._newest_rows is not None:
            self._replace(self._newest_rows)
            self._newest_rows = None

    def _replace(self, rows: list[StateRow]) -> None:
        self.restore_count += 1
        self.rows = rows
        fences = [row for row in rows if row.record_type is RecordType.FENCE]
        self._fence = fences[-1]
        self.leader_epoch = self._fence.leader_epoch
        end = next((i + 1 for i in reversed(range(len(rows))) if rows[i].record_type is RecordType.TABLE_SNAPSHOT), 0)
        start = end
        while start and rows[start - 1].record_type is RecordType.TABLE_SNAPSHOT:
            start -= 1
        markers = [row for row in rows if row.record_type is RecordType.COMMIT_MARKER]
        before = [row for row in rows[:start] if row.record_type is RecordType.COMMIT_MARKER]
        self._last_marker = markers[-1] if markers else None
        self._snapshot = rows[start:end]
        self._snapshot_table = rows_to_table(self._snapshot)
        self._snapshot_marker = _marker_info(before[-1]) if self._snapshot else None
        self._since_snapshot = [row for row in rows[end:] if row.record_type is not RecordType.FENCE]

    def fence(self, payload: dict[str, Any]) -> int:
        """Commit a fence with the next leader epoch."""
        assert not self.is_restored, "A processor takes over an older copy of the table."
        self.leader_epoch += 1
        self._fence = StateRow(record_type=RecordType.FENCE, leader_epoch=self.leader_epoch, payload=payload)
        self.rows.append(self._fence)
        return self.leader_epoch

    def commit(self, rows: Sequence[StateRow], leader_epoch: int, commit_id: int) -> None:
        """Commit rows, or raise `FencedProcessorError`."""
        if leader_epoch < self.leader_epoch:
            raise FencedProcessorError(
                f"The table belongs to leader epoch {self.leader_epoch}; this processor has {leader_epoch}.",
                "Stop this processor: another one has taken over.",
            )
        for row in rows:
            stored = changed(row, leader_epoch=leader_epoch, commit_id=commit_id)
            self.rows.append(stored)
            if stored.record_type is RecordType.COMMIT_MARKER:
                self._last_marker = stored
            self._committed(stored)
            self._since_snapshot.append(stored)

    def take_snapshot(self) -> None:
        """Commit a table snapshot of everything up to the last marker."""
        marker = self.last_marker()
        if marker is None or marker == self._snapshot_marker or self.is_restored:
            return
        time_ms = max(marker.time_ms, self._snapshot[0].time_ms + 1 if self._snapshot else 0)
        later = rows_to_table([row for row in self._since_snapshot if _decides_the_state(row)])
        # The first row of a snapshot belongs to no group.
        rows = StoredRows(pa.concat_tables([self._snapshot_table.slice(1), later]))
        pieces = list(table_snapshot(rows, marker, time_ms, self.leader_epoch))
        self._snapshot_table = pa.concat_tables(pieces)
        self._snapshot = list(decoded(self._snapshot_table))
        self._snapshot_marker = marker
        self._since_snapshot = []
        self.rows += self._snapshot

    def last_fence(self) -> StateRow | None:
        """Return the last fence."""
        return self._fence

    def last_marker(self) -> CommitMarkerInfo | None:
        """Return the last marker, be it in the table snapshot or after it."""
        if self._last_marker is None:
            return None
        return _marker_info(self._last_marker)

    def recovery(self, group_id: str | None = None) -> Recovery:
        """Return what decides the present state: the last table snapshot and what follows it."""
        rows = [
            row
            for row in [*self._snapshot, *self._since_snapshot]
            if group_id in (None, row.group_id) and _decides_the_state(row)
        ]
        return Recovery(
            rows=cast(StoredRows, sorted(rows, key=fold_order)),
            last_marker=self.last_marker(),
            snapshot_marker=self._snapshot_marker,
            files=(),
            file_count=0,
        )


class SimulatedTable:
    """The state table as one processor has it.

    Args:
        stored: its rows.
        reached: called at each point of a commit; may raise.
    """

    def __init__(self, stored: StoredTable, reached: Point) -> None:
        self._stored = stored
        self._reached = reached
        self.leader_epoch_of_writer = 0

    def exists(self) -> bool:
        return bool(self._stored.rows)

    def last_fence(self) -> StateRow | None:
        return self._stored.last_fence()

    def last_marker(self) -> CommitMarkerInfo | None:
        return self._stored.last_marker()

    def state_id(self) -> str:
        return "simulated"

    def leader_epoch(self) -> int:
        return self._stored.leader_epoch

    def recovery(self) -> Recovery:
        return self._stored.recovery()

    def present_state(self) -> PresentState:
        return folded_recovery(self.recovery())

    def lost_rows(self, accepted_commit_id: int) -> str:
        return ""

    def fence(
        self, identity: Mapping[str, Any], after_epoch: int | None = None, *, accepts_loss: bool = False
    ) -> SimulatedWriter:
        if after_epoch is not None and self._stored.leader_epoch > after_epoch:
            raise FencedProcessorError(f"Leader epoch {self._stored.leader_epoch} has the table already.")
        payload = FencePayload(pid=os.getpid(), host=socket.gethostname(), **identity).model_dump(mode="json")
        leader_epoch = self._stored.fence(payload)
        self._reached("fenced")
        return SimulatedWriter(self._stored, leader_epoch, self._reached)


class SimulatedWriter:
    """The fenced table."""

    def __init__(self, stored: StoredTable, leader_epoch: int, reached: Point) -> None:
        self._stored = stored
        self._restore_count = stored.restore_count
        self._leader_epoch = leader_epoch
        self._reached = reached

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    def append(self, rows: Sequence[StateRow], commit_id: int) -> None:
        """Commit rows, which takes time before they are in, and after that."""
        self._reached("before_commit")
        self._check_own()
        self._stored.commit(rows, self._leader_epoch, commit_id)
        self._reached("after_commit")

    def _check_own(self) -> None:
        if self._stored.restore_count > self._restore_count:
            raise ForeignCommitError("The table was restored by another program.")


def _decides_the_state(row: StateRow) -> bool:
    return bool(row.group_id) and row.record_type in _RECOVERY_TYPES


def _marker_info(row: StateRow) -> CommitMarkerInfo:
    payload = CommitMarkerPayload.model_validate(row.payload)
    return CommitMarkerInfo(row.commit_id, row.leader_epoch, row.time_ms, payload)
