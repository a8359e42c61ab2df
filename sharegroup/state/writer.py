"""The one writer of the state table: a fence at the start, then one atomic append for each micro-batch."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sharegroup.errors import FencedProcessorError, StateTableError
from sharegroup.protocol.row_payloads import FencePayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit import is_committed
from sharegroup.state.delta_table import (
    create_or_open_table,
    highest_leader_epoch,
    open_table,
    protect_from_deletion,
    translated,
)
from sharegroup.state.maintenance import UPKEEP_FILE_BYTES, compact, vacuum
from sharegroup.state.table_snapshot import due_snapshot

COMPACT_EVERY_COMMITS = 100
"""An upkeep takes half a second after so many commits of eight busy share-partitions, and grows with their number."""

_REOPEN_EVERY_COMMITS = 50
"""A handle gets slower with each version it has seen: 0.1 ms a commit."""

_REOPEN_AFTER_S = 60.0
"""Far below the retention of the log: the commits after an older handle's version may have been cleaned up."""


class StateTableWriter:
    """Appends to the state table for one processor, until another one takes over.

    No row of this writer can follow another's fence: every version that its handle has seen was found to hold no
    higher leader epoch, and a commit succeeds only as the version right after the handle's.

    Made by `open`.
    """

    def __init__(
        self,
        path: str,
        table: DeltaTable,
        leader_epoch: int,
        compact_every_commits: int,
        snapshot_interval_ms: int,
        deadlines: _Deadlines,
    ) -> None:
        self._path = path
        self._leader_epoch = leader_epoch
        self._compact_every_commits = compact_every_commits
        self._snapshot_interval_ms = snapshot_interval_ms
        self._deadlines = deadlines
        self._upkeep_is_done()
        self._commits_since_upkeep = len(table.file_uris())
        self._adopt(table)

    @classmethod
    def open(
        cls,
        path: str,
        identity: Mapping[str, Any],
        *,
        compact_every_commits: int = COMPACT_EVERY_COMMITS,
        snapshot_interval_ms: int = 300_000,
        commit_timeout_ms: int = 30_000,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> StateTableWriter:
        """Take the table over: commit a Fence row with the next leader epoch. Creates the table when it is missing.

        Args:
            path: the table's folder.
            identity: what the Fence row says of the processor besides its process id and host; JSON values.
            compact_every_commits: commits from one upkeep to the next; a reader takes about 1 ms for each of them.
            snapshot_interval_ms: time from one upkeep to the next even if fewer commits are made.
            commit_timeout_ms: how long one append may take, its repetitions after conflicts included.
            monotonic_s: a clock for durations, in seconds.

        Raises:
            StateTableError: the table cannot be created, read or written.
            UnsupportedFormatVersionError: there is a table, but not with the columns of this release.
        """
        deadlines = _Deadlines(path, commit_timeout_ms, monotonic_s)
        deadline_s = deadlines.next_s()
        while True:
            table = create_or_open_table(path)
            with translated(path, "read"):
                leader_epoch = highest_leader_epoch(table) + 1
            if is_committed(path, table, [_fence(identity)], leader_epoch):
                _protect(path)
                return cls(path, table, leader_epoch, compact_every_commits, snapshot_interval_ms, deadlines)
            deadlines.check(deadline_s)

    @property
    def leader_epoch(self) -> int:
        """The epoch of this writer's fence."""
        return self._leader_epoch

    def append(self, rows: Sequence[StateRow]) -> None:
        """Append the rows in one commit: all of them, or none.

        `date` and `leader_epoch` of the rows are filled in here.

        Raises:
            FencedProcessorError: another processor has taken over; nothing was written.
            StateTableError: the table cannot be read or written, or not in time. The last marker tells whether the
                rows were committed.
        """
        deadline_s = self._deadlines.next_s()
        is_snapshot_due = self._commits_since_upkeep > 0 and self._deadlines.now_s() >= self._snapshot_at_s
        if self._commits_since_upkeep >= self._compact_every_commits or is_snapshot_due:
            self.maintain()
        elif self._commits_on_handle >= _REOPEN_EVERY_COMMITS or self._deadlines.now_s() >= self._reopen_at_s:
            self._adopt_newest_version()
        while not self._has_committed(rows):
            self._deadlines.check(deadline_s)
        self._commits_on_handle += 1
        self._commits_since_upkeep += 1
        # A commit that stood still until the log of its version was cleaned up would only seem to have succeeded.
        self._deadlines.check(deadline_s)

    def maintain(self) -> None:
        """Compact, take a table snapshot, and vacuum; `append` does it now and then, as `open` was told.

        Raises:
            FencedProcessorError: another processor has taken over.
            StateTableError: the table cannot be read or written.
        """
        compact(self._path, UPKEEP_FILE_BYTES, patience_s=0)
        self._adopt_newest_version()
        snapshot = due_snapshot(self._path)
        if snapshot:
            self._has_committed(snapshot, snapshot_ms=snapshot[0].time_ms)
        vacuum(self._path, is_full=False)
        self._upkeep_is_done()
        self._adopt_newest_version()

    def _has_committed(self, rows: Sequence[StateRow], snapshot_ms: int | None = None) -> bool:
        try:
            if is_committed(self._path, self._table, rows, self._leader_epoch, snapshot_ms):
                return True
        except StateTableError:
            # A successor's clean-up of the log looks like damage to a handle that is older than it.
            self._adopt_newest_version()
            raise
        self._adopt_newest_version()
        return False

    def _adopt_newest_version(self) -> None:
        table = open_table(self._path)
        with translated(self._path, "read"):
            highest = highest_leader_epoch(table)
        if highest > self._leader_epoch:
            raise FencedProcessorError(
                f"State table {self._path} belongs to leader epoch {highest}; this processor has {self._leader_epoch}.",
                "Stop this processor: another one has taken over.",
            )
        self._adopt(table)

    def _upkeep_is_done(self) -> None:
        self._commits_since_upkeep = 0
        self._snapshot_at_s = self._deadlines.now_s() + self._snapshot_interval_ms / 1_000

    def _adopt(self, table: DeltaTable) -> None:
        self._table = table
        self._commits_on_handle = 0
        self._reopen_at_s = self._deadlines.now_s() + _REOPEN_AFTER_S


class _Deadlines:
    """When a commit must be over."""

    def __init__(self, path: str, commit_timeout_ms: int, monotonic_s: Callable[[], float]) -> None:
        self._path = path
        self._commit_timeout_ms = commit_timeout_ms
        self.now_s = monotonic_s

    def next_s(self) -> float:
        return self.now_s() + self._commit_timeout_ms / 1_000

    def check(self, deadline_s: float) -> None:
        if self.now_s() > deadline_s:
            raise StateTableError(
                f"A commit to state table {self._path} took longer than {self._commit_timeout_ms} ms.",
                "Look for a slow disk or for other writers; then start the processor again.",
            )


def _protect(path: str) -> None:
    with translated(path, "written"):
        try:
            protect_from_deletion(open_table(path))
        except CommitFailedError:
            # Whoever maintains the table at this moment will do it.
            return


def _fence(identity: Mapping[str, Any]) -> StateRow:
    return StateRow(
        record_type=RecordType.FENCE,
        time_ms=time.time_ns() // 1_000_000,
        payload=FencePayload(pid=os.getpid(), host=socket.gethostname(), **identity).model_dump(mode="json"),
    )
