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
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from sharegroup.client.result_rows import result_table
from sharegroup.client.sink_commits import (
    CLOSING_PART,
    SinkCommit,
    WriteCommit,
    WriteMetadata,
    WritePart,
    Written,
    commits_of,
    has_part,
    metadata_text,
    resolution,
    transaction_version,
)
from sharegroup.client.sink_lock import SharedSinkLock
from sharegroup.client.sink_table import (
    WRITE_EXPIRY_MS,
    SinkTable,
    check_committers,
    check_table,
    forgets_transactions,
)
from sharegroup.config.table_location import is_in_store
from sharegroup.errors import SinkError, SinkMissingError, UndecidedWriteError
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest

_MAX_ATTEMPTS = 20
"""Attempts to fence one write; each failure means that another commit of the same write came between."""
_MAX_COMMIT_RETRIES = 1_000
"""Attempts of delta-rs to commit beside writers of other transactions."""
_LATEST_S = 10.0
"""A commit reads one by one what others have committed since the version that it starts from: it is not old."""
_NONE = -1
_DECIDE_BY_HAND = "An administrator has to decide it: `sharegroup groups resolve --write`."


class _LatestTable(NamedTuple):
    """The table after the last commit of this process: its newest log file, and until when it may begin another one."""

    table: DeltaTable
    lines: list[str]
    until_s: float


class DeltaSink:
    """A sink at a path or URI.

    Args:
        storage_options: options of delta-rs for its store.
        user_metadata: the user's own `userMetadata` of each commit.

    Raises:
        SinkError: it is no Delta table, or cannot be read; or a Spark application writes to it on a local disk.
    """

    def __init__(self, address: str, storage_options: Mapping[str, str] | None = None, user_metadata: str = "") -> None:
        self._address = address
        self._options = dict(storage_options or {})
        self._user_metadata = user_metadata
        self._expiry_ms = WRITE_EXPIRY_MS
        self._latest: _LatestTable | None = None
        self._lock = None if is_in_store(address) else SharedSinkLock(Path(address))
        try:
            self.load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let a Spark application write to the table; a second close does nothing."""
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def check(self, expiry_ms: int = WRITE_EXPIRY_MS) -> None:
        """Check that delta-rs can write into the table exactly once.

        Args:
            expiry_ms: time after its acquisition within which a write is looked up, from now on.

        Raises:
            SinkError: it has a feature that delta-rs does not write, or forgets transactions or commits too early.
        """
        table = self.load()
        check_table(
            SinkTable(
                self._address,
                table.protocol().writer_features or (),
                table.metadata().configuration,
                {field.name: field.metadata for field in table.schema().fields},
            ),
            expiry_ms,
        )
        last = table.history(1)[0]
        engine = str(last.get("engineInfo", last.get("clientVersion", "")))
        check_committers(self._address, self._options, engine)
        self._expiry_ms = expiry_ms

    @property
    def sink(self) -> Sink:
        """The table, with its version when it was last loaded: a fetch names it."""
        return self._sink

    @property
    def schema(self) -> pa.Schema:
        """Arrow's schema of the table when it was last loaded."""
        return self._schema

    def commit(self, parts: Sequence[WritePart], rows: pa.Table | None) -> SinkCommit:
        """Write the results of several writes in one commit, and return what the table says of each of them.

        All of them are in it, or none is: then each is fenced.

        Args:
            rows: the results; there may be none.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be written: the commit may still get into it.
        """
        text = metadata_text([part.metadata for part in parts], self._user_metadata)
        table = self._latest_table()
        if rows is not None and not set(rows.column_names) <= {field.name for field in table.schema().fields}:
            # They have a column that others have added since.
            table = self.load()
        for _ in range(_MAX_ATTEMPTS):
            if not all(_may_begin(table, part) for part in parts):
                break
            before = table.version()
            table = table if self._has_appended(table, parts, rows, text) else self.load()
            reports = self._read_back(table, before, parts)
            if reports is not None:
                return SinkCommit(is_written=True, reports=reports)
            # A fence of an earlier write of its application id conflicts, too, unless the snapshot has it.
        self._latest = None
        lookups = [self._lookup(part.write) for part in parts]
        return SinkCommit(
            is_written=all(has_part(commits, part) for commits, part in zip(lookups, parts, strict=True)),
            reports=[
                resolution(part.write, part.write.table_id, commits, is_closed=True)
                for commits, part in zip(lookups, parts, strict=True)
            ],
        )

    def resolve(self, write: UnresolvedWrite) -> ResolveWriteRequest:
        """Fence a write unless it is complete, and return what the table says of it, for ever.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read or written.
        """
        return resolution(write, write.table_id, self._lookup(write), is_closed=True)

    def _lookup(self, write: UnresolvedWrite) -> list[WriteCommit]:
        """Fence a write unless it is complete, and return its commits with rows, and its fence."""
        closing = transaction_version(write.version)
        for _ in range(_MAX_ATTEMPTS):
            table = self.load()
            if str(table.metadata().id) != write.table_id:
                return []
            known = _known_transaction(table, write)
            # What a snapshot does not know is not in the table, even where a file of the log shows it.
            is_there = known >= transaction_version(write.version, 0)
            if not is_there:
                _check_remembered(table, write, self._expiry_ms)
            fence = WriteMetadata(app_id=write.app_id, version=write.version, is_fence=True)
            text = metadata_text([fence], self._user_metadata)
            if known < closing and not self.has_fenced(table, text, {write.app_id: closing}):
                continue
            return self._known_commits(write, known) if is_there else []
        raise SinkError(
            f"Write {write.version} could not be fenced in {self._address} in {_MAX_ATTEMPTS} attempts.", "Try again."
        )

    def _latest_table(self) -> DeltaTable:
        """Return the table as the last commit of this process has left it, or open it, which takes as long as a commit.

        A commit is checked against all that came after the version that it starts from. But if the table was dropped
        and created again, an old version must not begin a commit: the file of that version shows it.
        """
        latest, self._latest = self._latest, None
        if latest is None or time.monotonic() >= latest.until_s:
            return self.load()
        is_same = [lines for _, lines in self._log_files(latest.table, latest.table.version())] == [latest.lines]
        return latest.table if is_same else self.load()

    def _read_back(
        self, table: DeltaTable, before: int, parts: Sequence[WritePart]
    ) -> list[ResolveWriteRequest] | None:
        """Return what the log says of parts that were committed after a version; None if it does not have them."""
        if any(_known_transaction(table, part.write) != part.transaction_version for part in parts):
            return None
        files = list(self._log_files(table, before + 1))
        commits = {
            (commit.metadata.app_id, commit.metadata.version): commit
            for version, lines in files
            for commit in commits_of(lines, version)
        }
        reports: list[ResolveWriteRequest] = []
        for part in parts:
            commit = commits.get((part.write.app_id, part.write.version))
            if commit is None or not has_part([commit], part):
                return None
            is_closed = part.part == CLOSING_PART
            # A closed write is reported with all its parts, since others of its records count as not written.
            all_parts = self._lookup(part.write) if is_closed and part.after is not None else [commit]
            reports.append(resolution(part.write, part.write.table_id, all_parts, is_closed=is_closed))
        self._sink = self._described(table)
        if files and files[-1][0] == table.version():
            self._latest = _LatestTable(table, files[-1][1], time.monotonic() + _LATEST_S)
        return reports

    def _has_appended(self, table: DeltaTable, parts: Sequence[WritePart], rows: pa.Table | None, text: str) -> bool:
        """Commit rows, which brings the table to its new version; return False if the log has to decide."""
        properties = _properties(text, {part.write.app_id: part.transaction_version for part in parts})
        # A conflict: a commit of the application id came between, such as a fence, or an earlier attempt whose response
        # was lost. The log decides.
        try:
            if rows is None or not rows.num_rows:
                self._commit_nothing(table, properties)
                # Unlike a write, this leaves the table at its version.
                table.update_incremental()
            else:
                columns = pa.schema(table.schema().to_arrow())
                # Columns may have been added since the rows were made.
                rows = rows if rows.schema.names == columns.names else result_table(rows, columns)
                write_deltalake(table, rows, mode="append", commit_properties=properties)
        except CommitFailedError:
            return False
        except Exception as error:
            # Not only errors of Delta: the store's own come as they are.
            raise SinkError(f"The commit into {self._address} failed: {error}") from error
        return True

    def has_fenced(self, table: DeltaTable, text: str, transactions: Mapping[str, int]) -> bool:
        """Commit transactions without rows, from a table that was loaded before; return False if one was taken.

        Args:
            text: the `userMetadata`.
            transactions: application id → version.

        Raises:
            SinkError: the table cannot be written.
        """
        try:
            self._commit_nothing(table, _properties(text, transactions))
        except CommitFailedError:
            return False
        except Exception as error:
            raise SinkError(f"Writes could not be fenced in {self._address}: {error}") from error
        return True

    def _commit_nothing(self, table: DeltaTable, properties: CommitProperties) -> None:
        table.create_write_transaction(
            actions=[],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=properties,
        )

    def _known_commits(self, write: UnresolvedWrite, known: int) -> list[WriteCommit]:
        """Return the commits of a write up to the transaction that the table knows of it."""
        table = self.load()
        commits: dict[int, WriteCommit] = {}
        file_count = 0
        for version, lines in self._log_files(table, write.sink_version + 1):
            file_count += 1
            for commit in commits_of(lines, version):
                names = commit.metadata.app_id, commit.metadata.version
                is_known = transaction_version(write.version, commit.metadata.part) <= known
                if names == (write.app_id, write.version) and is_known:
                    # An older file with the same transaction has a name that a clean-up of the log had freed: a writer
                    # whose snapshot was older than that made it, and the table does not have it.
                    commits[commit.metadata.part] = commit
        closing = commits.get(CLOSING_PART)
        is_whole = closing is not None and not _is_partial(closing.metadata)
        if not is_whole and file_count < table.version() - write.sink_version:
            raise UndecidedWriteError(
                f"Write {write.version} of {write.app_id} is in the table, and the log does not have its commits any "
                "more.",
                _DECIDE_BY_HAND,
            )
        return list(commits.values())

    def _log_files(self, table: DeltaTable, first_version: int) -> Iterator[tuple[int, list[str]]]:
        store = DeltaStorageHandler.from_table(table._table, self._options)
        for version in range(first_version, table.version() + 1):
            try:
                with store.open_input_file(f"_delta_log/{version:020}.json") as file:
                    lines = file.read().decode().splitlines()
            except FileNotFoundError:
                # Cleaned up: a checkpoint has it.
                continue
            except Exception as error:
                raise SinkError(f"The log of {self._address} cannot be read: {error}") from error
            yield version, lines

    def load(self) -> DeltaTable:
        """Return the table as it is now.

        Raises:
            SinkError: it is no Delta table, or cannot be read.
        """
        try:
            table = DeltaTable(self._address, storage_options=self._options)
            self._sink = self._described(table)
            self._schema = pa.schema(table.schema().to_arrow())
        except TableNotFoundError as error:
            raise SinkMissingError(
                f"{self._address} is no Delta table.",
                "Create it with the columns of the results, then try again. A table of a catalog has to be named by "
                "its address, or written by a Spark worker.",
            ) from error
        except Exception as error:
            raise SinkError(f"{self._address} cannot be read: {error}") from error
        return table

    def _described(self, table: DeltaTable) -> Sink:
        return Sink(address=self._address, table_id=str(table.metadata().id), version=table.version())


def _known_transaction(table: DeltaTable, write: Written) -> int:
    try:
        known = table.transaction_version(write.app_id)
    except Exception as error:
        # It reads the log, which may be away, or cleaned up since the table was loaded.
        raise SinkError(f"The log of {table.table_uri} cannot be read: {error}") from error
    return _NONE if known is None else int(known)


def _may_begin(table: DeltaTable, part: WritePart) -> bool:
    """Return True if a table has nothing of a write but the parts of this run before."""
    write = part.write
    if str(table.metadata().id) != write.table_id:
        return False
    known = _known_transaction(table, write)
    if part.after is None:
        return known < transaction_version(write.version, 0)
    return known == transaction_version(write.version, part.after)


def _properties(text: str, transactions: Mapping[str, int]) -> CommitProperties:
    now_ms = time.time_ns() // 1_000_000
    return CommitProperties(
        custom_metadata={"userMetadata": text},
        app_transactions=[Transaction(app_id, version, now_ms) for app_id, version in transactions.items()],
        max_commit_retries=_MAX_COMMIT_RETRIES,
    )


def _is_partial(metadata: WriteMetadata) -> bool:
    """Return True if a commit that closes a write may have others of the same write before it."""
    return metadata.is_fence or metadata.after is not None


def _check_remembered(table: DeltaTable, write: UnresolvedWrite, expiry_ms: int) -> None:
    """Refuse to take a write for unwritten that the table may have forgotten.

    Raises:
        UndecidedWriteError: the table forgets transactions, and the write is older than it is sure to remember.
    """
    age_ms = time.time_ns() // 1_000_000 - write.opened_ms
    if write.opened_ms and age_ms > expiry_ms and forgets_transactions(table.metadata().configuration):
        raise UndecidedWriteError(
            f"Write {write.version} of {write.app_id} was opened {age_ms // 3_600_000} hours ago, and the table may "
            "have forgotten its transaction.",
            _DECIDE_BY_HAND,
        )
