"""Delta tables as a classic session knows them: snapshots of Delta's own classes in the JVM, and files of the log.

A read costs a few calls and a listing of the log, where SQL would cost a job. `spark/classic` has all else that reaches
into the JVM.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from sharegroup.errors import SinkError
from sharegroup.spark import classic
from sharegroup.spark.classic import JVM_ERRORS
from sharegroup.spark.sink.table_log import NO_TRANSACTION, StoredTransaction

_DELTA_LOG = "org.apache.spark.sql.delta.DeltaLog"
_COMPUTED_BY = ("delta.generationExpression", "delta.identity.start")
"""Metadata of a column whose values Delta computes."""


class ClassicSnapshot:
    """A `Snapshot` of Delta.

    Args:
        session: the session of the jobs that compute what a snapshot does not know yet.
    """

    def __init__(self, session: SparkSession, java_snapshot: Any) -> None:
        self._session = session
        self._snapshot = java_snapshot
        self._metadata = java_snapshot.metadata()

    @property
    def table_id(self) -> str:
        """Id of the table."""
        return str(self._metadata.id())

    @property
    def version(self) -> int:
        """Version of the table."""
        return int(self._snapshot.version())

    @property
    def insertable(self) -> StructType:
        """The columns without those that Delta computes; all may be null, since no row of them is written."""
        columns = StructType.fromJson(json.loads(self._metadata.schemaString()))
        return StructType(
            [
                StructField(column.name, column.dataType)
                for column in columns
                if not any(key in column.metadata for key in _COMPUTED_BY)
            ]
        )

    def transaction(self, app_id: str) -> int:
        """Return the version of an application's latest transaction."""
        # Delta computes them once for each snapshot, and asks them itself before each commit with a transaction.
        with classic.activated(self._session):
            known = self._snapshot.transactions().get(app_id)
        return int(known.get()) if known.isDefined() else NO_TRANSACTION

    def has(self, table_version: int, transaction: StoredTransaction) -> bool:
        """Return True if a commit is part of this state: of what is in a checkpoint, the transaction shows it."""
        if table_version > self.version:
            return False
        if table_version > int(self._snapshot.checkpointProvider().version()):
            return True
        known = self.transaction(transaction.app_id)
        return transaction.version < known or (
            transaction.version == known and transaction.last_updated == self._last_updated(transaction.app_id)
        )

    def _last_updated(self, app_id: str) -> int:
        stored = self._snapshot.setTransactions()
        for index in range(stored.size()):
            transaction = stored.apply(index)
            if transaction.appId() == app_id:
                updated = transaction.lastUpdated()
                return int(updated.get()) if updated.isDefined() else 0
        return 0


class ClassicTableLog:
    """The log of a table at a path or URI; any thread may use it.

    Args:
        session: a session for the jobs that read the log.
    """

    def __init__(self, session: SparkSession, location: str) -> None:
        self._session = session
        self._location = location
        jvm: Any = session._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(location)
        self._log_path = jvm.org.apache.hadoop.fs.Path(self._path, "_delta_log")
        self._files = self._log_path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        """Version of the last snapshot, and the time of its file."""

    def snapshot(self) -> ClassicSnapshot:
        """Return the current state, of the table that is there now.

        Raises:
            SinkError: there is no Delta table, or it cannot be read.
        """
        try:
            return self._snapshot()
        except JVM_ERRORS as error:
            raise SinkError(f"{self._location} cannot be read: {error}") from error

    def lines(self, version: int) -> list[str] | None:
        """Return the lines of a commit file; None if it was cleaned up.

        Raises:
            SinkError: it cannot be read.
        """
        path = self._commit_path(version)
        try:
            if not self._files.exists(path):
                return None
            stream = self._files.open(path)
            try:
                text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
        except JVM_ERRORS as error:
            raise SinkError(f"Commit {version} of {self._location} cannot be read: {error}") from error
        return text.splitlines()

    def check_writable(self) -> None:
        """Check that this program may write into the log's folder.

        Raises:
            SinkError: it may not.
        """
        name = f"_sharegroup_check_{self._jvm.java.util.UUID.randomUUID().toString()}"
        path = self._jvm.org.apache.hadoop.fs.Path(self._log_path, name)
        try:
            self._files.create(path, True).close()
            self._files.delete(path, False)
        except JVM_ERRORS as error:
            raise SinkError(
                f"{self._location} cannot be written: {classic.first_line(error)}",
                "Give this program the right to write and delete files there.",
            ) from error

    def _snapshot(self) -> ClassicSnapshot:
        delta_log = self._delta_log()
        with self._lock:
            if self._seen is not None and self._time_of(self._seen[0]) != self._seen[1]:
                # Cleaned up, or another table by now: Delta goes on from the state that it knows.
                delta_log.invalidateCache(self._session._jsparkSession, self._path)
        none = self._jvm.scala.Option.empty()
        with classic.activated(self._session):
            snapshot = ClassicSnapshot(self._session, self._of_table(delta_log).update(False, none, none))
        if snapshot.version < 0:
            raise SinkError(
                f"{self._location} is no Delta table.", "Create it with the columns of the results, then try again."
            )
        with self._lock:
            self._seen = (snapshot.version, self._time_of(snapshot.version))
        return snapshot

    def _delta_log(self) -> Any:
        package: Any = self._jvm
        for name in _DELTA_LOG.split("."):
            package = getattr(package, name)
        return package

    def _of_table(self, delta_log: Any) -> Any:
        return delta_log.forTable(self._session._jsparkSession, self._location)

    def _time_of(self, version: int) -> int:
        path = self._commit_path(version)
        return int(self._files.getFileStatus(path).getModificationTime()) if self._files.exists(path) else 0

    def _commit_path(self, version: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._log_path, f"{version:020}.json")
