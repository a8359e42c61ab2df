"""The log of a sink: its snapshots, its commit files, and which commits of a write are in a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from pyspark.sql.types import StructType

from sharegroup.client.sink_commits import WriteCommit, Written, transaction_version
from sharegroup.client.sink_commits import commits_of as written_in

NO_TRANSACTION = -1


class StoredTransaction(NamedTuple):
    """The transaction in a commit file.

    Attributes:
        last_updated: time stamp of its committer, epoch ms.
    """

    app_id: str
    version: int
    last_updated: int


class Snapshot(Protocol):
    """The current state of a table."""

    @property
    def table_id(self) -> str:
        """Id of the table; one that was created again has another."""

    @property
    def version(self) -> int:
        """Version of the table."""

    @property
    def insertable(self) -> StructType:
        """The columns that a row may have a value for: not those that Delta computes."""

    def transaction(self, app_id: str) -> int:
        """Return the version of an application's latest transaction; NO_TRANSACTION if it has none."""

    def has(self, table_version: int, transaction: StoredTransaction) -> bool:
        """Return True if the commit that a file of the log shows is part of this state.

        A writer whose snapshot is older than the clean-up of the log commits under the freed name of an old version:
        there is a file, and nothing of it is in the table.
        """


class TableLog(Protocol):
    """The log of a table."""

    def snapshot(self) -> Snapshot:
        """Return the current state.

        Raises:
            SinkError: there is no Delta table, or it cannot be read.
        """

    def lines(self, version: int) -> list[str] | None:
        """Return the lines of a commit file; None if it was cleaned up.

        Raises:
            SinkError: it cannot be read.
        """


def commits_of(log: TableLog, snapshot: Snapshot, write: Written, versions: Iterable[int]) -> list[WriteCommit]:
    """Return the commits of a write that a snapshot has.

    Args:
        versions: versions of the table to read.
    """
    return list(_commits(log, snapshot, write, versions))


def _commits(log: TableLog, snapshot: Snapshot, write: Written, versions: Iterable[int]) -> Iterator[WriteCommit]:
    for version in versions:
        lines = log.lines(version) or []
        for commit in written_in(lines, version):
            if (commit.metadata.app_id, commit.metadata.version) != (write.app_id, write.version):
                continue
            expected = transaction_version(write.version, commit.metadata.part)
            transactions = (t for t in _transactions(lines) if (t.app_id, t.version) == (write.app_id, expected))
            if any(snapshot.has(version, transaction) for transaction in transactions):
                yield commit


def _transactions(lines: Iterable[str]) -> Iterator[StoredTransaction]:
    for line in lines:
        if '"txn"' in line and (stored := json.loads(line).get("txn")):
            yield StoredTransaction(stored["appId"], stored["version"], stored.get("lastUpdated") or 0)
