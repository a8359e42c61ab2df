"""The one writer of the state table: a fence at the start, then one atomic and durable append for each commit."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sharegroup.errors import FencedProcessorError, ForeignCommitError, StateTableError
from sharegroup.protocol.row_payloads import FencePayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import (
    COMMIT_TRANSACTION,
    LOG_FOLDER,
    NO_COMMIT,
    LogCommit,
    commit_name,
    commits_after,
    has_commit,
    sync_commits,
    try_commit,
)
from sharegroup.state.data_files import NewFile, may_be_deleted, restore_deleted, write_data_files
from sharegroup.state.delta_log_repair import repair_tip
from sharegroup.state.delta_table import (
    LOG_RETENTION_MS,
    create_or_open_table,
    highest_leader_epoch,
    is_protected_from_deletion,
    newest,
    open_table,
    protect_from_deletion,
    translated,
)
from sharegroup.state.listed_files import listed_files
from sharegroup.state.open_storage import storage_of
from sharegroup.state.schema import rows_to_table

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

logger = logging.getLogger("sharegroup.state")


class StateTableWriter:
    """Appends to the state table for one processor, until another one takes over.

    No row of this writer can follow another's fence: for every version up to `_version` it is known that no row has a
    higher leader epoch, and a commit succeeds only as the version right after it.

    Made by `open`.
    """

    def __init__(
        self,
        path: str,
        version: int,
        leader_epoch: int,
        commit_timeout_ms: int,
        monotonic_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._path = path
        self._version = version
        self._leader_epoch = leader_epoch
        self._commit_timeout_ms = commit_timeout_ms
        self._monotonic_s = monotonic_s
        self._sleep = sleep

    @classmethod
    def open(
        cls,
        path: str,
        identity: Mapping[str, Any],
        *,
        table: DeltaTable | None = None,
        after_epoch: int | None = None,
        transactions: Mapping[str, int] | None = None,
        commit_timeout_ms: int = LOG_RETENTION_MS // 2,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> StateTableWriter:
        """Take over the table: commit a Fence row with the next leader epoch. Create a missing table.

        Args:
            identity: additional fields of the Fence row, besides the processor's process id and host; JSON values.
            table: the table, if the caller has it open.
            after_epoch: take over only from the processor with this leader epoch; None takes over from any. Of several
                standbys that wait for its end, one succeeds.
            transactions: Delta transactions of the fence, for a table whose own ones name rows that are lost.
            commit_timeout_ms: time limit of one append, with its retries; at most half the log retention.
            monotonic_s: a clock for durations, in seconds.
            sleep: waits for a number of seconds.

        Raises:
            StateTableError: the table cannot be created, read or written.
            FencedProcessorError: another processor has taken over from the one with `after_epoch`; nothing was written.
            UnsupportedFormatVersionError: the table does not have the columns of this release.
        """
        if not 0 < commit_timeout_ms <= LOG_RETENTION_MS // 2:
            raise ValueError(f"commit_timeout_ms must be between 1 and {LOG_RETENTION_MS // 2}: {commit_timeout_ms}")
        deadline_s = monotonic_s() + commit_timeout_ms / 1_000
        with translated(path, "repaired"):
            storage_of(path).check()
            synced = repair_tip(path)
        while True:
            table = newest(table, path) if table is not None else create_or_open_table(path)
            version = table.version()
            with translated(path, "read"):
                leader_epoch = highest_leader_epoch(table) + 1
            if after_epoch is not None and leader_epoch > after_epoch + 1:
                raise FencedProcessorError(
                    f"A processor with leader epoch {leader_epoch - 1} has taken over state table {path} before this "
                    f"one, which was to follow leader epoch {after_epoch}.",
                    "Let it work; this one stays a standby.",
                )
            with translated(path, "written"):
                _sync_all(path, synced, version)
                files = write_data_files(path, rows_to_table([_fence(identity)], NO_COMMIT, leader_epoch))
                fenced = _commit_fence(
                    path, version, files, leader_epoch, transactions or {}, lambda: monotonic_s() > deadline_s
                )
            if fenced is not None:
                break
            if monotonic_s() > deadline_s:
                raise _too_slow(path, commit_timeout_ms)
        _protect(table, path)
        return cls(path, fenced, leader_epoch, commit_timeout_ms, monotonic_s, sleep)

    @property
    def leader_epoch(self) -> int:
        """Return the leader epoch of this writer's fence."""
        return self._leader_epoch

    def append(self, rows: Sequence[StateRow], commit_id: int) -> None:
        """Append the rows in one commit: all of them, or none. They are on the disk when the method returns.

        `date`, `commit_id` and `leader_epoch` of the rows are set here. After an error the table is read again: if it
        does not have the commit id, the commit is retried until the deadline.

        Args:
            rows: the rows; at least one.
            commit_id: id of the commit, one above the last one's.

        Raises:
            FencedProcessorError: another processor has taken over; nothing was written.
            ForeignCommitError: another program has changed files of the table, for example by RESTORE; nothing was
                written on top of that.
            StateTableError: the table cannot be read or written, or not in time. The next processor reads from the last
                marker whether the rows were committed.
        """
        deadline_s = self._monotonic_s() + self._commit_timeout_ms / 1_000
        data = rows_to_table(rows, commit_id, self._leader_epoch)
        files: list[NewFile] = []
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if self._has_committed(data, files, commit_id):
                    break
            except StateTableError as error:
                if self._is_there_after(error, commit_id):
                    break
                if self._monotonic_s() + pause_s > deadline_s:
                    raise
                logger.warning("Commit %d is tried again: %s", commit_id, error)
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            if self._monotonic_s() > deadline_s:
                raise _too_slow(self._path, self._commit_timeout_ms)
        # A commit that paused until the log of its version was cleaned up would only seem to have succeeded.
        if (self._monotonic_s() > deadline_s or may_be_deleted(files)) and not self._is_there(commit_id):
            raise _too_slow(self._path, self._commit_timeout_ms)
        with translated(self._path, "written"):
            restore_deleted(self._path, files)

    def _has_committed(self, data: pa.Table, files: list[NewFile], commit_id: int) -> bool:
        """Try once to commit; after a conflict, read the commits of others."""
        with translated(self._path, "written"):
            if not files or may_be_deleted(files):
                files[:] = write_data_files(self._path, data)
            transactions = {COMMIT_TRANSACTION: commit_id}
            committed = try_commit(self._path, self._version, files, self._leader_epoch, transactions)
            if committed is not None:
                self._version = committed
                return True
        return self._learn(commit_id)

    def _learn(self, commit_id: int) -> bool:
        """Follow the log to its newest version; return whether this commit is in it."""
        with translated(self._path, "read"):
            try:
                commits = list(commits_after(self._path, self._version))
                is_complete = has_commit(self._path, self._version)
                sync_commits(self._path, commits)
            except (FileNotFoundError, StateTableError):
                # A clean-up of the log is running.
                commits, is_complete = [], False
        for commit in commits:
            if commit.leader_epoch is not None:
                self._check_fence(commit.leader_epoch)
        # A fenced processor has nothing to say of what was done before the fence, or after.
        for commit in commits:
            self._check_own(commit)
        if not is_complete or any(commit.leader_epoch is None or commit.changes_table for commit in commits):
            return self._is_there(commit_id)
        self._version = commits[-1].version if commits else self._version
        return any(commit.transactions.get(COMMIT_TRANSACTION) == commit_id for commit in commits)

    def _is_there_after(self, error: StateTableError, commit_id: int) -> bool:
        if isinstance(error, FencedProcessorError | ForeignCommitError):
            raise error
        try:
            return self._is_there(commit_id)
        except (FencedProcessorError, ForeignCommitError):
            raise
        except StateTableError as unreadable:
            logger.warning("The outcome of commit %d is unknown: %s", commit_id, unreadable)
            return False

    def _is_there(self, commit_id: int) -> bool:
        """Read the newest version of the table; return whether this commit is in it, and on the disk."""
        table = open_table(self._path)
        with translated(self._path, "read"):
            self._check_fence(highest_leader_epoch(table))
            version = table.version()
            last_commit_id = table.transaction_version(COMMIT_TRANSACTION)
            self._check_restored(table, last_commit_id)
        with translated(self._path, "written"):
            _sync_all(self._path, self._version, version)
        self._version = version
        return last_commit_id == commit_id

    def _check_fence(self, leader_epoch: int) -> None:
        if leader_epoch > self._leader_epoch:
            raise FencedProcessorError(
                f"State table {self._path} belongs to leader epoch {leader_epoch}; this processor has "
                f"{self._leader_epoch}.",
                "Stop this processor: another one has taken over.",
            )

    def _check_own(self, commit: LogCommit) -> None:
        if commit.is_own or not (commit.added or commit.removed):
            return
        remedy = "Start the processor again: the rows are the same."
        if commit.changes_rows:
            remedy = f"Restore version {commit.version - 1}, and start the processor again."
        raise ForeignCommitError(
            f"Version {commit.version} of state table {self._path} was made by {commit.operation or 'a commit'} of "
            f"another program, which added {len(commit.added)} files and removed {len(commit.removed)}; this "
            "processor's state rests on the commits of sharegroup alone.",
            f"{remedy} Stop the processor before another program changes its table.",
        )

    def _check_restored(self, table: DeltaTable, last_commit_id: int | None) -> None:
        """Check a version whose earlier commits were not read: a RESTORE keeps the transaction, and not the rows."""
        if last_commit_id is None:
            return
        highest = max((file.highest_commit_id for file in listed_files(table, ["commit_id"])), default=NO_COMMIT)
        if highest < last_commit_id:
            raise ForeignCommitError(
                f"Version {table.version()} of state table {self._path} lacks the rows of commits {highest + 1} to "
                f"{last_commit_id}: another program removed them; this processor's state rests on them.",
                "Restore the version before that, which DESCRIBE HISTORY shows, and start the processor again. Stop "
                "the processor before another program changes its table.",
            )


def _commit_fence(
    path: str,
    version: int,
    files: Sequence[NewFile],
    leader_epoch: int,
    transactions: Mapping[str, int],
    is_over: Callable[[], bool],
) -> int | None:
    """Commit a fence after the newest version; return its version, None when the table has to be opened again.

    An older processor may commit more often than the table can be opened: its commits are followed one by one.
    """

    def is_prevented_by(commit: LogCommit) -> bool:
        return is_over() or commit.may_follow(leader_epoch)

    return try_commit(
        path, version, files, leader_epoch, transactions, is_prevented_by=is_prevented_by, syncs_others=True
    )


def _too_slow(path: str, commit_timeout_ms: int) -> StateTableError:
    return StateTableError(
        f"A commit to state table {path} took longer than {commit_timeout_ms} ms.",
        "Look for a slow disk, a slow store, or other writers; then start the processor again.",
    )


def _sync_all(path: str, synced: int, version: int) -> None:
    """Sync the commits after a version, the newest version, and the names of the table's folders."""
    sync_commits(path, commits_after(path, synced))
    storage = storage_of(path)
    storage.sync([commit_name(version), LOG_FOLDER])
    storage.sync_table_name()


def _protect(table: DeltaTable, path: str) -> None:
    if is_protected_from_deletion(table):
        return
    with translated(path, "written"):
        try:
            protect_from_deletion(open_table(path))
        except CommitFailedError:
            # The process that maintains the table now will do it.
            return


def _fence(identity: Mapping[str, Any]) -> StateRow:
    return StateRow(
        record_type=RecordType.FENCE,
        time_ms=time.time_ns() // 1_000_000,
        payload=FencePayload(pid=os.getpid(), host=socket.gethostname(), **identity).model_dump(mode="json"),
    )
