"""One durable commit of rows to the state table, which succeeds as a whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sharegroup.state.commit_log import Action, commit_file, commits_after, put_commit
from sharegroup.state.data_files import DataFile

COMMIT_TRANSACTION = "sharegroup.commit"
"""The application transaction whose version is the id of the last commit."""

SNAPSHOT_TRANSACTION = "sharegroup.table-snapshot"
"""The application transaction whose version is the time of the last table snapshot, in epoch ms."""

_ENGINE = "sharegroup"
_SNAPSHOT_TRIES = 100


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
        files: what to add.
        leader_epoch: the epoch to write under.
        transactions: application id → version.

    Returns:
        False if the table has a newer version.

    Raises:
        OSError: the disk refuses. The commit may nevertheless be in.
    """
    # While a version's file is there, no clean-up of the log has come past it: a free name is that of the next version.
    before = commit_file(path, version)
    if not before.exists():
        return False
    now_ms = time.time_ns() // 1_000_000
    is_put = put_commit(path, version + 1, _actions(files, leader_epoch, transactions or {}, now_ms))
    return is_put and before.exists()


def _actions(
    files: Sequence[DataFile], leader_epoch: int, transactions: Mapping[str, int], now_ms: int
) -> list[Action]:
    information = {
        "timestamp": now_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "engineInfo": _ENGINE,
        "leaderEpoch": leader_epoch,
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
        False if another snapshot was taken since the version, or others commit all the time.

    Raises:
        StateTableError: a commit of another process cannot be read.
        OSError: the disk refuses. The commit may nevertheless be in.
    """
    for _ in range(_SNAPSHOT_TRIES):
        if try_commit(path, version, [file], leader_epoch, {SNAPSHOT_TRANSACTION: time_ms}):
            return True
        others = list(commits_after(path, version))
        # Rows that an older snapshot needs may have been pruned with the younger one.
        if not others or any(SNAPSHOT_TRANSACTION in commit.transactions for commit in others):
            return False
        version = others[-1].version
    return False
