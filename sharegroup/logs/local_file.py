"""The SQLite file of a local log: its schema, its format version, connections, transactions and error translation.

A thread that waits for commits uses no CPU. Every commit of any process changes one counter of the file,
`data_version`. After the commit its writer writes a byte to the file of the write queue, which the kernel reports; then
the counter is read, within a millisecond. A writer that is killed between its commit and that byte reports nothing: the
counter is also read each second.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sharegroup.errors import (
    LogCorruptedError,
    LogError,
    LogLockedError,
    LogUnavailableError,
    UnsupportedFormatVersionError,
)
from sharegroup.logs.file_watch import Watch, watch
from sharegroup.logs.write_queue import WriteQueue, WriteQueueTimeoutError, lock_holder

FORMAT_VERSION = 2
"""Version of the schema below; a file of another version is refused."""

_SCHEMA = (
    "CREATE TABLE log_format (format_version INTEGER NOT NULL) STRICT",
    """
    CREATE TABLE topics (
        rowid INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        topic_id TEXT NOT NULL UNIQUE,
        partition_count INTEGER NOT NULL,
        config TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE partitions (
        topic INTEGER NOT NULL,
        partition INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        last_timestamp_ms INTEGER NOT NULL,
        PRIMARY KEY (topic, partition)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE TABLE deleted_topics (topic INTEGER PRIMARY KEY) STRICT",
    """
    CREATE TABLE records (
        topic INTEGER NOT NULL,
        partition INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        timestamp_ms INTEGER NOT NULL,
        key BLOB,
        value BLOB,
        headers BLOB,
        PRIMARY KEY (topic, partition, offset)
    ) STRICT, WITHOUT ROWID
    """,
)

# Of 4, 8, 16 and 32 KB this size read a quarter faster than 4 KB and still commits one small record in 20 µs.
_PAGE_SIZE_BYTES = 8192

_RETRY_PAUSE_MS = 5

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CORRUPTED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNREACHABLE = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)


class LocalFile:
    """A local log's file, created when missing, with connections that serve one operation at a time.

    Any thread may use it. A process that was forked may not: SQLite's locks do not survive a fork, and a log
    shared that way can lose what it committed.

    Raises:
        LogError: it is missing, but must exist.
        LogCorruptedError: the file is there but is not a local log.
        LogLockedError: it stays locked for `busy_timeout_ms`.
        LogUnavailableError: it cannot be opened or created.
        UnsupportedFormatVersionError: another release wrote it.
    """

    def __init__(self, path: Path, busy_timeout_ms: int, must_exist: bool = False) -> None:
        self.path = path
        self.closed = threading.Event()
        self._busy_timeout_ms = busy_timeout_ms
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._queue = WriteQueue(path.with_name(f"{path.name}-lock"), busy_timeout_ms)
        self._idle: list[sqlite3.Connection] = []
        if must_exist and not path.exists():
            raise LogError(
                f"There is no log at {path}.",
                "Start the processor or create a topic, which makes it; or correct the path.",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogUnavailableError(
                f"The folder of the local log {path} cannot be created: {error.strerror}.",
                "Choose a path in a folder that this user may write to.",
            ) from error
        with self.connection(create=True) as connection:
            if not _table_names(connection):
                self._create_tables(connection)
            self._check_format(connection)

    def commit_report_path(self) -> Path:
        """Return the file that is written to after each commit; create it when missing, if possible."""
        with suppress(OSError):
            self._queue.create()
        return self._queue.path

    @contextmanager
    def connection(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Lend a connection outside of any transaction; SQLite's errors are translated into this package's."""
        connection: sqlite3.Connection | None = None
        try:
            connection = self._take(create)
            yield connection
        except BaseException as error:
            if connection is not None:
                _discard(connection)
            if isinstance(error, sqlite3.Error):
                raise self._translated(error) from error
            raise
        self._give_back(connection)

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection whose reads all see one state of the log."""
        with self.connection() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.commit()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection as the only writer; all its changes are committed at the end, or none."""
        self._check_process()
        try:
            with self._queue.turn(), self.connection() as connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.commit()
        except WriteQueueTimeoutError:
            raise self._locked() from None
        except OSError as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        """Close all idle connections; a lent connection is closed when it comes back.

        In a process that was forked it does nothing: they are the other process's.
        """
        if self._is_forked:
            return
        with self._lock:
            self.closed.set()
            while self._idle:
                _discard(self._idle.pop())
        self._queue.close()

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process_id

    def _check_process(self) -> None:
        if self._is_forked:
            raise LogError(
                f"The local log {self.path} was opened by process {self._process_id}, which this one was forked from.",
                "Close it before the fork and open it after, or start processes with the spawn method.",
            )

    def _take(self, create: bool) -> sqlite3.Connection:
        self._check_process()
        with self._lock:
            if self.closed.is_set():
                raise LogError(f"The local log {self.path} is closed.", "Open it again.")
            if self._idle:
                return self._idle.pop()
        return self._connect(create)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if self.closed.is_set():
                _discard(connection)
            else:
                self._idle.append(connection)

    def _connect(self, create: bool) -> sqlite3.Connection:
        # A file that was removed under an open log must not come back empty: later connections never create it.
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=self._busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        # With NORMAL, a power failure may lose the last commits, and their offsets would be assigned again.
        connection.execute("PRAGMA synchronous=FULL")
        # On macOS fsync leaves the data in the disk's own cache; elsewhere this has no effect.
        connection.execute("PRAGMA fullfsync=ON")
        return connection

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size={_PAGE_SIZE_BYTES}")
        self._use_write_ahead_log(connection)
        connection.execute("BEGIN IMMEDIATE")
        if not _table_names(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO log_format VALUES (?)", (FORMAT_VERSION,))
        connection.commit()

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        # SQLite does not wait here as it does for transactions, so processes that create one file at once conflict.
        deadline = time.monotonic() + self._busy_timeout_ms / 1000
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if _primary_code(error) not in _BUSY or time.monotonic() > deadline:
                    raise
                self.closed.wait(_RETRY_PAUSE_MS / 1000)

    def _check_format(self, connection: sqlite3.Connection) -> None:
        if "log_format" not in _table_names(connection):
            raise LogCorruptedError(
                f"The file {self.path} is a SQLite database, but not a local log.", "Choose another path for the log."
            )
        version = connection.execute("SELECT max(format_version) FROM log_format").fetchone()[0]
        if version != FORMAT_VERSION:
            raise UnsupportedFormatVersionError(
                f"The local log {self.path} has format version {version}; this release reads {FORMAT_VERSION}.",
                "Open it with the release that wrote it, or choose another path.",
            )

    def _locked(self) -> LogLockedError:
        holder = lock_holder(self._queue.path)
        if holder is None:
            remedy = "Try again; if it lasts, stop the process that keeps the file locked."
        elif holder.is_stopped:
            remedy = f"Let it go on with `kill -CONT {holder.pid}`, or end it with `kill -KILL {holder.pid}`."
        else:
            remedy = f"Try again; if it lasts, end process {holder.pid}."
        return LogLockedError(
            f"The local log {self.path} stayed locked by {holder or 'another writer'} for {self._busy_timeout_ms} ms.",
            remedy,
        )

    def _unreachable(self, error: Exception) -> LogUnavailableError:
        return LogUnavailableError(
            f"The local log {self.path} cannot be read or written: {error}.",
            "Check that its disk works and has space, and that this user may write to the file and its folder.",
        )

    def _translated(self, error: sqlite3.Error) -> LogError:
        code = _primary_code(error)
        if code in _BUSY:
            return self._locked()
        if code == sqlite3.SQLITE_FULL:
            return LogUnavailableError(
                f"The local log {self.path} cannot grow: the disk is full. Nothing was changed.",
                "Free space on its disk and try again.",
            )
        if code in _UNREACHABLE:
            return self._unreachable(error)
        if code in _CORRUPTED:
            return LogCorruptedError(
                f"The local log {self.path} is not readable as a log: {error}.",
                "Move the file away and restore a copy of it, or choose another path.",
            )
        return LogError(f"The local log {self.path} refused the operation: {error}.")


class CommitWatch:
    """Lets one thread wait for commits."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self._is_woken = False
        self._watch: Watch = watch(file.commit_report_path())

    def renew(self) -> None:
        """Watch the file that is there now: the log may have been deleted and created again."""
        with suppress(OSError):
            self._watch.renew()

    def wait(self, connection: sqlite3.Connection, version: int, deadline_s: float) -> bool:
        """Block until another connection has committed; return False when woken, closed, or the time is over.

        Args:
            connection: the connection whose counter is compared.
            version: the counter at the last read.
            deadline_s: end of the wait, on the monotonic clock.
        """
        while data_version(connection) == version:
            if self._is_woken:
                self._is_woken = False
                return False
            remaining_ms = (deadline_s - time.monotonic()) * 1000
            if remaining_ms <= 0 or self._file.closed.is_set():
                return False
            self._watch.wait(min(remaining_ms, self._watch.longest_pause_ms))
        return True

    def wake(self) -> None:
        """End the current or the next wait with False; any thread may call it."""
        self._is_woken = True
        self._watch.wake()

    def close(self) -> None:
        """Release all resources; no wait may be under way."""
        self._watch.close()


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes with each commit of another connection."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _table_names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def _primary_code(error: sqlite3.Error) -> int:
    # Errors of the Python module itself have no code; the low byte of an extended code is the primary one.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _discard(connection: sqlite3.Connection) -> None:
    # The roll-back comes first: closing alone would keep the lock for as long as a statement is alive.
    with suppress(sqlite3.Error):
        connection.rollback()
    with suppress(sqlite3.Error):
        connection.close()
