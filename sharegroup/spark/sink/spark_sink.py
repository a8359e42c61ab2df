"""SparkSink: a sink, its state for the fetches of a member, the commits of its writes, and lookups of lost ones."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.sink_commits import (
    CLOSING_PART,
    WriteCommit,
    WriteMetadata,
    metadata_text,
    resolution,
    transaction_version,
)
from sharegroup.client.sink_table import WRITE_EXPIRY_MS
from sharegroup.config.spark_sink import MERGE, SparkSinkConfig
from sharegroup.errors import InvalidRequestError, SinkError, UndecidedWriteError, WriteFencedError
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.spark import classic
from sharegroup.spark.sink.checks import check_table
from sharegroup.spark.sink.classic_log import ClassicTableLog
from sharegroup.spark.sink.commit_lock import check_writers
from sharegroup.spark.sink.merge import merge
from sharegroup.spark.sink.sink_table import described_table
from sharegroup.spark.sink.table_log import Snapshot, commits_of

logger = logging.getLogger("sharegroup.spark.sink")

_MAX_ATTEMPTS = 20
"""Attempts of one commit; each failure means that another commit came between."""
_TRANSACTION_TAKEN = re.compile(r"DELTA_CONCURRENT_TRANSACTION|ConcurrentTransactionException")
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_\w+|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED"
    r"|Concurrent(Append|DeleteRead|DeleteDelete|Write|Modification)Exception|(Metadata|Protocol)ChangedException"
)
"""Other commits came between, and nothing was written: the same write is tried again."""
_MANY_FILES = 50_000
_SNAPSHOT_TASKS = "spark.databricks.delta.snapshotPartitions"
"""By default Delta reads its log in 50 tasks, once for each commit."""
_ADAPTIVE = "spark.sql.adaptive.enabled"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MAX_USER_METADATA_BYTES = 32_768
"""Bytes of the session's own `userMetadata` in a commit, as JSON; the rest is for acknowledgements."""


class SparkSink:
    """A sink of a session; any thread may use it.

    Args:
        spark: the session of the results.
        address: a path, a URI, or the name of a table.

    Raises:
        SinkError: there is no Delta table, it cannot keep what a sink promises, or another program has locked it.
    """

    def __init__(self, spark: SparkSession, address: str, config: SparkSinkConfig | None = None) -> None:
        self._config = config or SparkSinkConfig()
        self._table = described_table(spark, address)
        # Fences and reads of the log leave the application's session as it is, and have its access to the store.
        self._session = self._own_session(spark)
        # What a snapshot knows is computed in one job then, not in one for each stage.
        self._session.conf.set(_ADAPTIVE, "false")
        self._log = ClassicTableLog(self._session, self._table.location)
        self._expiry_ms = 0
        self.check(WRITE_EXPIRY_MS)
        check_writers(spark, self._table, self._config.sink_writers)
        self._log.check_writable()

    @property
    def address(self) -> str:
        """Absolute path, URI, or name."""
        return self._table.address

    @property
    def merges(self) -> bool:
        """True if results are merged: that makes no commit if it changes nothing."""
        return self._config.sink_mode == MERGE

    @property
    def sink(self) -> Sink:
        """The table, with its version when it was last read: a fetch names it."""
        return self._sink

    def check(self, expiry_ms: int) -> None:
        """Check that the table remembers commits for as long as the group's writes are looked up.

        Args:
            expiry_ms: `share.exactly.once.write.expiry.ms` of the group.

        Raises:
            SinkError: it does not.
        """
        if expiry_ms != self._expiry_ms:
            check_table(self._table, self._snapshot().insertable, self._config, expiry_ms)
            self._expiry_ms = expiry_ms

    def refresh(self) -> Sink:
        """Read the table's version, and return the table with it.

        Raises:
            SinkError: it cannot be read.
        """
        self._snapshot()
        return self._sink

    def lookup(self, write: UnresolvedWrite) -> ResolveWriteRequest | None:
        """Return what the table says of a write that is complete, or fenced; None if it may still get there.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read.
        """
        snapshot = self._snapshot()
        if snapshot.table_id != write.table_id:
            return resolution(write, write.table_id, [], is_closed=True)
        if write.opened_ms and time.time_ns() // 1_000_000 - write.opened_ms > self._expiry_ms:
            raise _undecided(
                write, f"was opened more than {self._expiry_ms} ms ago, and the table may have forgotten it"
            )
        if snapshot.transaction(write.app_id) < transaction_version(write.version):
            return None
        return self.resolution_of(write, snapshot)

    def resolve(self, write: UnresolvedWrite) -> ResolveWriteRequest:
        """Fence a write unless it is complete, and return what the table says of it, for ever.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read or written.
        """
        for _ in range(_MAX_ATTEMPTS):
            if (resolved := self.lookup(write)) is not None:
                return resolved
            fence = WriteMetadata(app_id=write.app_id, version=write.version, is_fence=True)
            self.commit_empty(fence, self._snapshot())
        raise SinkError(
            f"Write {write.version} could not be fenced in {self.address} in {_MAX_ATTEMPTS} attempts.", "Try again."
        )

    def resolution_of(self, write: UnresolvedWrite, snapshot: Snapshot) -> ResolveWriteRequest:
        """Return what a snapshot that has the closing transaction of a write says of it.

        Raises:
            UndecidedWriteError: the log does not have its commits any more.
        """
        commits = commits_of(self._log, snapshot, write, range(write.sink_version + 1, snapshot.version + 1))
        if not any(commit.metadata.part == CLOSING_PART for commit in commits):
            raise _undecided(write, "is in the table, and the log does not have its commit any more")
        return resolution(write, write.table_id, commits, is_closed=True)

    # The commits of a write.

    def snapshot_for(self, write: UnresolvedWrite) -> Snapshot:
        """Return the current state of the table that a write belongs to.

        Raises:
            WriteFencedError: there is another table by now; it has nothing of the write.
            SinkError: it cannot be read.
        """
        snapshot = self._snapshot()
        if snapshot.table_id != write.table_id:
            raise WriteFencedError(
                f"Write {write.version} belongs to table {write.table_id}, and {self.address} is table "
                f"{snapshot.table_id} by now.",
                "Its records come again.",
            )
        return snapshot

    def commit_rows(self, rows: DataFrame, metadata: WriteMetadata) -> int | None:
        """Commit rows, with the transaction of a part; return the version of the commit, None if there may be none.

        A commit that lost against others is tried again; one that finds its transaction taken is not.

        Raises:
            InvalidRequestError: the session's own `userMetadata` is too large.
            Exception: what Spark raises: the rows cannot be computed or written; the commit may be in the table.
        """
        options = self._options(metadata, _user_metadata(rows.sparkSession))
        commit = self._merge if self.merges else self._append
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            # It says what its last commit was, and no other write has its settings.
            session = self._own_session(rows.sparkSession)
            try:
                with classic.activated(session):
                    commit(rows, session, options)
                return classic.last_committed_version(session)
            except classic.JVM_ERRORS as error:
                if _TRANSACTION_TAKEN.search(str(error)):
                    return None
                if attempt == _MAX_ATTEMPTS or not _CONFLICT.search(str(error)):
                    raise
        return None

    def commit_empty(self, metadata: WriteMetadata, snapshot: Snapshot) -> None:
        """Commit no rows, with the transaction of a part; do nothing if the transaction is taken.

        Raises:
            SinkError: the table cannot be written.
        """
        options = self._options(metadata, "")
        for _ in range(_MAX_ATTEMPTS):
            # `createDataFrame` would make this session the active one of all threads, handlers' included.
            columns = [F.lit(None).cast(column.dataType).alias(column.name) for column in snapshot.insertable]
            nothing = self._session.range(0).select(*columns)
            try:
                self._table.append(nothing, options)
                return
            except classic.JVM_ERRORS as error:
                if _TRANSACTION_TAKEN.search(str(error)):
                    return
                if not _CONFLICT.search(str(error)):
                    reason = classic.first_line(error)
                    raise SinkError(
                        f"Write {metadata.version} could not be committed to {self.address}: {reason}"
                    ) from error
            # Its columns may be others by now.
            snapshot = self._snapshot()

    def commits(self, write: UnresolvedWrite, snapshot: Snapshot, versions: Iterable[int]) -> list[WriteCommit]:
        """Return the commits of a write among versions of the table."""
        return commits_of(self._log, snapshot, write, versions)

    def _own_session(self, spark: SparkSession) -> SparkSession:
        """Return a copy of a session that reads small logs in few tasks, unless the user has said in how many."""
        session = classic.cloned_session(spark)
        classic.forget_committed_version(session)
        if self._table.file_count < _MANY_FILES and session.conf.get(_SNAPSHOT_TASKS, None) is None:
            session.conf.set(_SNAPSHOT_TASKS, "1")
        return session

    def _append(self, rows: DataFrame, session: SparkSession, options: dict[str, str]) -> None:
        self._table.append(classic.moved(rows, session), options)

    def _merge(self, rows: DataFrame, session: SparkSession, options: dict[str, str]) -> None:
        merge(self._table, rows, session, self._config, options)

    def _snapshot(self) -> Snapshot:
        snapshot = self._log.snapshot()
        self._sink = Sink(address=self._table.address, table_id=snapshot.table_id, version=snapshot.version)
        return snapshot

    def _options(self, metadata: WriteMetadata, user_metadata: str) -> dict[str, str]:
        return {
            "txnAppId": metadata.app_id,
            "txnVersion": str(transaction_version(metadata.version, metadata.part)),
            "userMetadata": metadata_text([metadata], user_metadata),
            # Said in any case: a setting of the session would decide otherwise.
            "mergeSchema": str(self._config.sink_schema_evolution).lower(),
        }


def _undecided(write: UnresolvedWrite, reason: str) -> UndecidedWriteError:
    return UndecidedWriteError(
        f"Write {write.version} of {write.app_id} {reason}.",
        "An administrator has to decide it: `sharegroup groups resolve --write`.",
    )


def _user_metadata(spark: SparkSession) -> str:
    text = spark.conf.get(_USER_METADATA, "") or ""
    if (size := len(json.dumps(text))) > MAX_USER_METADATA_BYTES:
        raise InvalidRequestError(
            f"{_USER_METADATA} of the session has {size} bytes; beside acknowledgements there is room for "
            f"{MAX_USER_METADATA_BYTES}.",
            "Set it to less.",
        )
    return text
