"""A Delta table as the sink of a member without a JVM: each write gets into it once, and can be looked up for ever.

delta-rs checks a commit's transaction against commits after the snapshot of its `DeltaTable` only. So the transaction
is read from the very object that commits. After a commit, and after every error, the log decides: success, silence and
exceptions all prove nothing.

A lookup fences the write first: it commits nothing with the write's own closing transaction, and a writer that wakes up
later is refused. It reads the log's files from the version on that the fetch noted, never the whole history.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from sharegroup.client.sink_commits import (
    CLOSING_PART,
    WriteCommit,
    WriteMetadata,
    Written,
    commit_of,
    resolution,
    transaction_version,
)
from sharegroup.errors import SinkError, UndecidedWriteError, WriteFencedError
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolveWriteRequest

_MAX_ATTEMPTS = 20
"""Attempts to fence one write; each failure means that another commit of the same write came between."""
_MAX_COMMIT_RETRIES = 1_000
"""Attempts of delta-rs to commit beside writers of other transactions."""
_NONE = -1


class DeltaSink:
    """A sink at a path or URI.

    Args:
        storage_options: options of delta-rs for its store.
        user_metadata: the user's own `userMetadata` of each commit.

    Raises:
        SinkError: it is no Delta table, or cannot be read.
    """

    def __init__(self, address: str, storage_options: Mapping[str, str] | None = None, user_metadata: str = "") -> None:
        self._address = address
        self._options = dict(storage_options or {})
        self._user_metadata = user_metadata
        self._sink = self._described(self._load())

    @property
    def sink(self) -> Sink:
        """The table, with its version when it was last loaded: a fetch names it."""
        return self._sink

    def write(
        self, write: Written, sink: Sink, rows: pa.Table, partitions: Sequence[ResolvedPartition] = ()
    ) -> ResolveWriteRequest:
        """Append the results of a write in one commit, and return what the table says of it.

        Args:
            sink: the table as the fetch named it.
            rows: the results; there may be none.
            partitions: acknowledgements of records that are not accepted.

        Raises:
            WriteFencedError: the write is fenced, or this is another table by now; it has nothing of the write.
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be written: the commit may still be in it.
        """
        table = self._load()
        if self._sink.table_id != sink.table_id:
            raise WriteFencedError(
                f"Write {write.version} belongs to table {sink.table_id}, and {self._address} is table "
                f"{self._sink.table_id} by now.",
                "Its records come again.",
            )
        if _known_transaction(table, write) < transaction_version(write.version, 0):
            self._append(table, write, rows, partitions)
        resolved = self.resolve(_unresolved(write, sink))
        if resolved.others is None and not resolved.partitions:
            raise WriteFencedError(
                f"Write {write.version} of {write.app_id} was fenced in {self._address}: its locks had ended.",
                "Its records come again.",
            )
        return resolved

    def resolve(self, write: UnresolvedWrite) -> ResolveWriteRequest:
        """Fence a write unless it is complete, and return what the table says of it, for ever.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read or written.
        """
        closing = transaction_version(write.version)
        for _ in range(_MAX_ATTEMPTS):
            table = self._load()
            if str(table.metadata().id) != write.table_id:
                return resolution(write, write.table_id, [], is_closed=True)
            known = _known_transaction(table, write)
            if known < closing and not self._has_fenced(table, write):
                continue
            # What a snapshot does not know is not in the table, even where a file of the log shows it.
            is_there = known >= transaction_version(write.version, 0)
            commits = self._commits(self._load(), write, write.sink_version + 1, known) if is_there else []
            if known >= closing:
                _check_closed(write, commits)
            return resolution(write, write.table_id, commits, is_closed=True)
        raise SinkError(
            f"Write {write.version} could not be fenced in {self._address} in {_MAX_ATTEMPTS} attempts.", "Try again."
        )

    def _append(
        self, table: DeltaTable, write: Written, rows: pa.Table, partitions: Sequence[ResolvedPartition]
    ) -> None:
        metadata = WriteMetadata(app_id=write.app_id, version=write.version, partitions=list(partitions))
        properties = _properties(metadata, self._user_metadata)
        # A conflict: a fence took the transaction, or an earlier attempt whose response was lost. The log decides.
        try:
            write_deltalake(table, rows, mode="append", commit_properties=properties)
        except CommitFailedError:
            return
        except DeltaError as error:
            raise SinkError(f"Write {write.version} into {self._address} failed: {error}") from error

    def _has_fenced(self, table: DeltaTable, write: Written) -> bool:
        fence = WriteMetadata(app_id=write.app_id, version=write.version, is_fence=True)
        try:
            table.create_write_transaction(
                actions=[],
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=_properties(fence, self._user_metadata),
            )
        except CommitFailedError:
            return False
        except DeltaError as error:
            raise SinkError(f"Write {write.version} could not be fenced in {self._address}: {error}") from error
        return True

    def _commits(
        self, table: DeltaTable, write: Written, first_version: int, last_transaction: int | None = None
    ) -> list[WriteCommit]:
        """Return the commits of a write from a version on, up to a transaction if one is given."""
        commits: list[WriteCommit] = []
        for version, lines in self._log_files(table, first_version):
            commit = commit_of(lines, version)
            if commit is None or (commit.metadata.app_id, commit.metadata.version) != (write.app_id, write.version):
                continue
            is_known = last_transaction is None or (
                transaction_version(write.version, commit.metadata.part) <= last_transaction
            )
            commits += [commit] if is_known else []
        return commits

    def _log_files(self, table: DeltaTable, first_version: int) -> Iterator[tuple[int, list[str]]]:
        store = DeltaStorageHandler.from_table(table._table, self._options)
        for version in range(first_version, table.version() + 1):
            try:
                with store.open_input_file(f"_delta_log/{version:020}.json") as file:
                    lines = file.read().decode().splitlines()
            except FileNotFoundError:
                # Cleaned up: a checkpoint has it.
                continue
            yield version, lines

    def _load(self) -> DeltaTable:
        try:
            table = DeltaTable(self._address, storage_options=self._options)
            self._sink = self._described(table)
        except TableNotFoundError as error:
            raise SinkError(
                f"{self._address} is no Delta table.", "Create it with the columns of the results, then try again."
            ) from error
        except DeltaError as error:
            raise SinkError(f"{self._address} cannot be read: {error}") from error
        return table

    def _described(self, table: DeltaTable) -> Sink:
        return Sink(address=self._address, table_id=str(table.metadata().id), version=table.version())


def _unresolved(write: Written, sink: Sink) -> UnresolvedWrite:
    return UnresolvedWrite(
        app_id=write.app_id,
        version=write.version,
        table_id=sink.table_id,
        address=sink.address,
        sink_version=sink.version,
    )


def _known_transaction(table: DeltaTable, write: Written) -> int:
    known = table.transaction_version(write.app_id)
    return _NONE if known is None else int(known)


def _properties(metadata: WriteMetadata, user_metadata: str) -> CommitProperties:
    version = transaction_version(metadata.version, metadata.part)
    return CommitProperties(
        custom_metadata={"userMetadata": metadata.text(user_metadata)},
        app_transactions=[Transaction(metadata.app_id, version, time.time_ns() // 1_000_000)],
        max_commit_retries=_MAX_COMMIT_RETRIES,
    )


def _check_closed(write: Written, commits: Sequence[WriteCommit]) -> None:
    if not any(commit.metadata.part == CLOSING_PART for commit in commits):
        raise UndecidedWriteError(
            f"Write {write.version} of {write.app_id} is in the table, and the log does not have its commit any more.",
            "An administrator has to decide it: `sharegroup groups resolve --write`.",
        )
