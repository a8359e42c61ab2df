"""The Delta log of a table: commits, each of which succeeds as a whole or not at all.

A commit of the processor is written here, not by delta-rs: `create_write_transaction` reads the whole log again for
each commit (12 ms after 50 commits, 117 ms after 750), lists its folder, and syncs nothing. The format is the same:
one JSON action a line, in a file that is created under the name of its version unless there is one already.

Two rules make the log whole after a power failure; on an object store, each put keeps them by itself:

1. A commit file, and the data files that it names, are on the disk before the file has its name.
2. Before a processor commits version n, version n - 1 is on the disk with its data files, also one of another
   process: delta-rs syncs nothing. So a torn commit is never followed by a commit that was acknowledged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from sharegroup.errors import StateTableError
from sharegroup.state.data_file import DataFile
from sharegroup.state.data_files import Action, NewFile, deleted_files, restore_deleted
from sharegroup.state.open_storage import storage_of
from sharegroup.state.schema import PARTITION_COLUMN

NO_COMMIT = -1
"""Commit id of rows that belong to no commit of a processor, such as a Fence."""

COMMIT_TRANSACTION = "sharegroup.commit"
"""The application transaction whose version is the id of the last commit."""

SNAPSHOT_TRANSACTION = "sharegroup.table-snapshot"
"""The application transaction whose version is the time of the last table snapshot, in epoch ms."""

NO_SNAPSHOT_MS = -1
"""Version of `SNAPSHOT_TRANSACTION` after a loss in which no table snapshot is left."""

LOG_FOLDER = "_delta_log"

NO_VERSION = -1
"""The version of a table before its first commit."""

_ENGINE = "sharegroup"
_TRIES = 100


@dataclass(frozen=True, slots=True)
class LogCommit:
    """One commit of the log, as far as a processor or its upkeep needs it.

    Attributes:
        removed: paths of the data files that it removes from the table.
        transactions: application id → version, as of the commit's own transactions.
        changes_table: True if it changes the table's properties, columns or protocol.
        operation: name of what made it; "" when it does not say.
        is_own: True if this package made it. By delta-rs it makes only commits that change no rows.
        changes_rows: True if it does more than to move rows from file to file.
    """

    version: int
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    transactions: Mapping[str, int]
    changes_table: bool
    operation: str = ""
    is_own: bool = True
    changes_rows: bool = True

    @property
    def leader_epoch(self) -> int | None:
        """Return the highest leader epoch of its rows; -1 without rows, None when its statistics do not have it."""
        epochs = [file.leader_epoch for file in self.added]
        known = [epoch for epoch in epochs if epoch is not None]
        return max(known, default=-1) if len(known) == len(epochs) else None

    def may_follow(self, leader_epoch: int) -> bool:
        """Return True if it may be of a processor with this leader epoch or a higher one, or changes the table."""
        return self.changes_table or self.leader_epoch is None or self.leader_epoch >= leader_epoch


def log_folder(path: str) -> Path:
    """Return the folder of the commit log of a table on a local disk."""
    return Path(path, LOG_FOLDER)


def commit_file(path: str, version: int) -> Path:
    """Return the file of a version of a table on a local disk."""
    return log_folder(path) / f"{version:020}.json"


def commit_name(version: int) -> str:
    """Return the path of a version's file within the table."""
    return f"{LOG_FOLDER}/{version:020}.json"


def has_commit(path: str, version: int) -> bool:
    """Return True if the file of a version is there.

    Raises:
        OSError: the log cannot be read.
    """
    return storage_of(path).exists(commit_name(version))


def versions(path: str, after: int = NO_VERSION) -> list[int]:
    """Return the versions above one that have a commit file, ascending.

    Raises:
        OSError: the log cannot be read.
    """
    names = storage_of(path).names(LOG_FOLDER, commit_name(after) if after >= 0 else "")
    numbers = (version_of(name) for name in names if name.endswith(".json"))
    return sorted(number for number in numbers if number is not None and number > after)


def version_of(name: str) -> int | None:
    """Return the version of a file of the log, a commit or a checkpoint; None for any other file."""
    file = name.removeprefix(f"{LOG_FOLDER}/")
    is_of_version = file[:20].isdigit() and (file[20:] == ".json" or file[20:].startswith(".checkpoint"))
    return int(file[:20]) if is_of_version else None


@contextmanager
def prepared_commit(path: str, actions: Iterable[Action]) -> Iterator[Callable[[int], bool]]:
    """Prepare a commit that has no version yet.

    Yields:
        A function that commits it durably as a version; False if another one has that version already. When it raises
        OSError, because the disk or the store failed, the commit may nevertheless have succeeded.

    Raises:
        OSError: the disk or the store failed.
    """
    lines = (json.dumps(action, separators=(",", ":")) for action in actions)
    with storage_of(path).prepared(("\n".join(lines) + "\n").encode()) as put:
        yield lambda version: put(commit_name(version))


def read_commit(path: str, version: int) -> LogCommit:
    """Read one commit.

    Raises:
        FileNotFoundError: there is no such commit, or it was cleaned up.
        StateTableError: the file is not whole.
        OSError: it cannot be read.
    """
    lines = storage_of(path).read(commit_name(version)).splitlines()
    try:
        actions = [json.loads(line) for line in lines if line]
        adds = [action["add"] for action in actions if "add" in action]
        transactions = [action["txn"] for action in actions if "txn" in action]
        if actions:
            removes = [action["remove"] for action in actions if "remove" in action]
            information: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
            return LogCommit(
                version=version,
                added=tuple(map(DataFile.of_action, adds)),
                removed=tuple(unquote(remove["path"]) for remove in removes),
                transactions={transaction["appId"]: transaction["version"] for transaction in transactions},
                changes_table=any("metaData" in action or "protocol" in action for action in actions),
                operation=information.get("operation", ""),
                is_own=information.get("engineInfo") == _ENGINE,
                changes_rows=any(action.get("dataChange", True) for action in (*adds, *removes)),
            )
        reason = "it is empty"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error)
    raise StateTableError(
        f"Commit {version} of the Delta log of {path} is not whole: {reason}.",
        "Start the processor again, which repairs the end of the log.",
    )


def commits_after(path: str, version: int) -> Iterator[LogCommit]:
    """Read the commits after a version, up to the newest.

    Raises:
        StateTableError: a file is not whole.
        OSError: one cannot be read.
    """
    while True:
        version += 1
        try:
            commit = read_commit(path, version)
        except FileNotFoundError:
            return
        yield commit


def sync_commits(path: str, commits: Iterable[LogCommit]) -> None:
    """Wait until commits of others are on the disk, with the data files that they add.

    Args:
        commits: the commits; an iterator that reads them is not even begun where each write is durable by itself.

    Raises:
        StateTableError: a commit cannot be read.
        OSError: the disk failed.
    """
    files = ([*(file.path for file in commit.added), commit_name(commit.version)] for commit in commits)
    storage_of(path).sync(chain(chain.from_iterable(files), [LOG_FOLDER]))


def try_commit(
    path: str,
    version: int,
    files: Sequence[NewFile],
    leader_epoch: int,
    transactions: Mapping[str, int] | None = None,
    *,
    is_prevented_by: Callable[[LogCommit], bool] | None = None,
    syncs_others: bool = False,
) -> int | None:
    """Commit new data files.

    Args:
        version: the newest version that the caller knows; it knows the leader epochs of all rows up to it.
        transactions: application id → version.

    Returns:
        The version of the commit; None where it was not made, see `_commit`.

    Raises:
        StateTableError: a commit of another process cannot be read.
        OSError: the disk failed. The commit may nevertheless have succeeded.
    """
    actions = _actions(files, leader_epoch, transactions or {})
    return _commit(path, version, actions, files, is_prevented_by, syncs_others=syncs_others)


def try_commit_snapshot(path: str, version: int, file: NewFile, leader_epoch: int, time_ms: int) -> bool:
    """Commit a table snapshot beside a processor that appends.

    Args:
        version: a version in which the snapshot before this one is the last.
        leader_epoch: highest leader epoch of the table.
        time_ms: the snapshot's time; epoch ms.

    Returns:
        False if another snapshot was taken since the version, or as `_commit`.

    Raises:
        StateTableError: a commit of another process cannot be read.
        OSError: the disk failed. The commit may nevertheless have succeeded.
    """

    def is_prevented_by(commit: LogCommit) -> bool:
        # Rows that an older snapshot needs may have been pruned with the younger one.
        return SNAPSHOT_TRANSACTION in commit.transactions

    transactions = {SNAPSHOT_TRANSACTION: time_ms}
    return try_commit(path, version, [file], leader_epoch, transactions, is_prevented_by=is_prevented_by) is not None


def try_commit_merge(
    path: str,
    version: int,
    merged: Sequence[DataFile],
    files: Sequence[NewFile],
    *,
    deletes_rows: bool = False,
) -> bool:
    """Replace data files by others with the same rows, or with fewer, beside a processor that appends.

    Args:
        version: a version in which the merged files are in the table.
        deletes_rows: True if the files do not have all rows of the merged ones.

    Returns:
        False if another process has removed one of the files since, or as `_commit`.

    Raises:
        StateTableError: a commit of another process cannot be read.
        OSError: the disk failed. The commit may nevertheless have succeeded.
    """
    now_ms = time.time_ns() // 1_000_000
    operation = "DELETE" if deletes_rows else "OPTIMIZE"
    actions: list[Action] = [
        {"commitInfo": {"timestamp": now_ms, "operation": operation, "engineInfo": _ENGINE, "txnId": uuid4().hex}},
        *(_remove_action(file, now_ms, deletes_rows) for file in merged),
        *(file.add_action(has_new_rows=deletes_rows) for file in files),
    ]
    paths = {file.path for file in merged}

    def is_prevented_by(commit: LogCommit) -> bool:
        # Another process may have rewritten the same files: both results would have each row.
        return not paths.isdisjoint(commit.removed)

    return _commit(path, version, actions, files, is_prevented_by) is not None


def _commit(
    path: str,
    version: int,
    actions: Iterable[Action],
    files: Sequence[NewFile],
    is_prevented_by: Callable[[LogCommit], bool] | None,
    *,
    syncs_others: bool = False,
) -> int | None:
    """Commit right after a version, or after the commits of others that follow it.

    Args:
        version: the newest version that the caller knows.
        is_prevented_by: True for a commit of another process beside which this one must not be made; None if no other
            may come first.
        syncs_others: True for a commit of a processor: the commits of others before it must be on the disk.

    Returns:
        The version of the commit. None if a commit of another process prevents it, a vacuum has deleted a file, the log
        was cleaned up past the version, or others commit without a pause.

    Raises:
        StateTableError: a commit of another process cannot be read.
        OSError: the disk failed. The commit may nevertheless have succeeded.
    """
    # While a version's file exists, no clean-up of the log has passed it: a free name is that of the next version.
    if not has_commit(path, version):
        return None
    with prepared_commit(path, actions) as put:
        for _ in range(_TRIES):
            if deleted_files(path, files):
                return None
            if put(version + 1):
                return version + 1 if _is_kept(path, version, files) else None
            if is_prevented_by is None:
                return None
            others = list(commits_after(path, version))
            if not others or any(map(is_prevented_by, others)):
                return None
            if syncs_others:
                sync_commits(path, others)
            version = others[-1].version
            if not has_commit(path, version):
                return None
    return None


def _is_kept(path: str, version: int, files: Sequence[NewFile]) -> bool:
    """Complete a commit that was put after a version; return False if a clean-up of the log has passed it."""
    if not has_commit(path, version):
        return False
    restore_deleted(path, files)
    return True


def _remove_action(file: DataFile, now_ms: int, deletes_rows: bool) -> Action:
    return {
        "remove": {
            "path": quote(file.path, safe="/=~-_."),
            "deletionTimestamp": now_ms,
            "dataChange": deletes_rows,
            "extendedFileMetadata": True,
            "partitionValues": {PARTITION_COLUMN: file.date},
            "size": file.size_bytes,
        }
    }


def _actions(files: Sequence[NewFile], leader_epoch: int, transactions: Mapping[str, int]) -> list[Action]:
    now_ms = time.time_ns() // 1_000_000
    information = {
        "timestamp": now_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "engineInfo": _ENGINE,
        "leaderEpoch": leader_epoch,
        # What is there after a lost response is compared with what was to be written: so no two commits are alike.
        "txnId": uuid4().hex,
    }
    return [
        {"commitInfo": information},
        *({"txn": {"appId": name, "version": number, "lastUpdated": now_ms}} for name, number in transactions.items()),
        *(file.add_action() for file in files),
    ]
