"""The Delta log of a table: commits, each of which succeeds as a whole or not at all.

A commit of the processor is written here, not by delta-rs: `create_write_transaction` reads the whole log again for
each commit (12 ms after 50 commits, 117 ms after 750), lists its folder, and syncs nothing. The format is the same:
one JSON action a line, in a file that is created under the name of its version unless there is one already.

Two rules make the log whole after a power failure; on an object store, each put keeps them by itself:

1. A commit file, and the data files that it names, are on the disk before the file has its name.
2. Before a processor commits version n, version n - 1 is on the disk with its data files, whoever wrote it: delta-rs
   syncs nothing. So a torn commit is never followed by a commit that was acknowledged.
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
from sharegroup.state.data_files import Action, DataFile, deleted_files, restore_deleted
from sharegroup.state.open_storage import storage_of
from sharegroup.state.schema import PARTITION_COLUMN

NO_COMMIT = -1
"""Commit id of rows that belong to no commit of a processor, such as a Fence."""

COMMIT_TRANSACTION = "sharegroup.commit"
"""The application transaction whose version is the id of the last commit."""

SNAPSHOT_TRANSACTION = "sharegroup.table-snapshot"
"""The application transaction whose version is the time of the last table snapshot, in epoch ms."""

LOG_FOLDER = "_delta_log"

NO_VERSION = -1
"""The version of a table before its first commit."""

_ENGINE = "sharegroup"
_TRIES = 100


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that a commit adds.

    Attributes:
        path: its path within the table.
        size_bytes: size of the file.
        date: the value of the partition column.
        row_count: number of rows; 0 when its statistics do not have it.
        first_commit_id: lowest commit id of its rows; -1 when its statistics do not have it.
        leader_epoch: highest leader epoch of its rows; None when its statistics do not have it.
    """

    path: str
    size_bytes: int
    date: str
    row_count: int
    first_commit_id: int
    leader_epoch: int | None

    @classmethod
    def of(cls, add: Mapping[str, Any]) -> AddedFile:
        """Return the file of an `add` action."""
        statistics = json.loads(add.get("stats") or "{}")
        epoch = statistics.get("maxValues", {}).get("leader_epoch")
        return cls(
            path=unquote(add["path"]),
            size_bytes=add["size"],
            date=add.get("partitionValues", {}).get(PARTITION_COLUMN) or "",
            row_count=statistics.get("numRecords", 0),
            first_commit_id=statistics.get("minValues", {}).get("commit_id", -1),
            leader_epoch=None if epoch is None else int(epoch),
        )


@dataclass(frozen=True, slots=True)
class LogCommit:
    """One commit of the log, as far as a processor or its upkeep needs it.

    Attributes:
        version: version of the table after it.
        added: data files that it adds.
        removed: paths of the data files that it removes from the table.
        transactions: application id → version, as of the commit's own transactions.
        changes_table: True if it changes the table's properties, columns or protocol.
        operation: name of what made it; "" when it does not say.
        is_own: True if this package made it. By delta-rs it makes only commits that change no rows.
        changes_rows: True if it does more than to move rows from file to file.
    """

    version: int
    added: tuple[AddedFile, ...]
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
                added=tuple(map(AddedFile.of, adds)),
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
        path: the table's folder.
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
    files: Sequence[DataFile],
    leader_epoch: int,
    transactions: Mapping[str, int] | None = None,
) -> bool:
    """Commit data files right after a version that is on the disk.

    Args:
        path: the table's folder.
        version: the newest version that the caller knows; it knows the leader epochs of all rows up to it.
        files: data files to add.
        leader_epoch: leader epoch of the commit.
        transactions: application id → version.

    Returns:
        False if the table has a newer version, or a vacuum has deleted a file.

    Raises:
        OSError: the disk failed. The commit may nevertheless have succeeded.
    """
    # While a version's file exists, no clean-up of the log has passed it: a free name is that of the next version.
    if not has_commit(path, version):
        return False
    with prepared_commit(path, _actions(files, leader_epoch, transactions or {})) as put:
        return not deleted_files(path, files) and put(version + 1) and _is_kept(path, version, files)


def _is_kept(path: str, version: int, files: Sequence[DataFile]) -> bool:
    """Complete a commit that was put after a version; return False if a clean-up of the log has passed it."""
    if not has_commit(path, version):
        return False
    restore_deleted(path, files)
    return True


def try_commit_merge(
    path: str,
    version: int,
    merged: Sequence[AddedFile],
    files: Sequence[DataFile],
    *,
    deletes_rows: bool = False,
) -> bool:
    """Replace data files by others with the same rows, or with fewer, beside a processor that appends.

    Args:
        path: the table's folder.
        version: a version in which the merged files are in the table.
        merged: the files to remove.
        files: the files to add.
        deletes_rows: True if the files do not have all rows of the merged ones.

    Returns:
        False if another process has removed one of the files since, a vacuum has deleted a new one, the log was cleaned
        up past the version, or others commit without a pause.

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
    with prepared_commit(path, actions) as put:
        for _ in range(_TRIES):
            if not has_commit(path, version) or deleted_files(path, files):
                return False
            if put(version + 1):
                return _is_kept(path, version, files)
            others = list(commits_after(path, version))
            # Another process may have rewritten the same files: both results would have each row.
            if not others or any(not paths.isdisjoint(commit.removed) for commit in others):
                return False
            version = others[-1].version
    return False


def _remove_action(file: AddedFile, now_ms: int, deletes_rows: bool) -> Action:
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


def _actions(files: Sequence[DataFile], leader_epoch: int, transactions: Mapping[str, int]) -> list[Action]:
    now_ms = time.time_ns() // 1_000_000
    information = {
        "timestamp": now_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "engineInfo": _ENGINE,
        "leaderEpoch": leader_epoch,
        # What is there after a lost answer is compared with what was to be written: so no two commits are alike.
        "txnId": uuid4().hex,
    }
    return [
        {"commitInfo": information},
        *({"txn": {"appId": name, "version": number, "lastUpdated": now_ms}} for name, number in transactions.items()),
        *(file.add_action() for file in files),
    ]


def try_commit_snapshot(path: str, version: int, file: DataFile, leader_epoch: int, time_ms: int) -> bool:
    """Commit a table snapshot beside a processor that appends.

    Args:
        path: the table's folder.
        version: a version in which the snapshot before this one is the last.
        file: the snapshot's rows.
        leader_epoch: highest leader epoch of the table.
        time_ms: the snapshot's time; epoch ms.

    Returns:
        False if another snapshot was taken since the version, a vacuum has deleted the file, or others commit without
        a pause.

    Raises:
        StateTableError: a commit of another process cannot be read.
        OSError: the disk failed. The commit may nevertheless have succeeded.
    """
    with prepared_commit(path, _actions([file], leader_epoch, {SNAPSHOT_TRANSACTION: time_ms})) as put:
        for _ in range(_TRIES):
            if not has_commit(path, version) or deleted_files(path, [file]):
                return False
            if put(version + 1):
                return _is_kept(path, version, [file])
            others = list(commits_after(path, version))
            # Rows that an older snapshot needs may have been pruned with the younger one.
            if not others or any(SNAPSHOT_TRANSACTION in commit.transactions for commit in others):
                return False
            version = others[-1].version
    return False
