"""The writers that may commit to a table on a local disk: processes with delta-rs, or one Spark application.

Spark's commit on a local disk is atomic within one JVM only. So both kinds lock a file beside the table, the delta-rs
processes together and a Spark application alone, and each refuses to start while the other kind has it. The lock is
one of `fcntl` (POSIX), as Java's FileLock is: it ends with its process, and neither earlier nor later than the last
commit that this process could make.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from sharegroup.errors import SinkError

DELTA_RS = "delta-rs"
"""Content of the file while processes with delta-rs have its lock; a Spark application writes its own name."""

_MAX_CONTENT_BYTES = 1_000


def sink_lock_path(table: Path) -> Path:
    """Return the file that the writers of a table lock: beside it, so that it stays when the table is dropped."""
    real = table.resolve()
    return real.with_name(f".{real.name}.sharegroup-sink.lock")


class _Held:
    """The locks of this process: closing one descriptor of a file would end all of its locks on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptors: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}

    def take(self, path: Path) -> None:
        with self._lock:
            if path not in self._descriptors:
                self._descriptors[path] = _locked(path)
            self._counts[path] = self._counts.get(path, 0) + 1

    def give_back(self, path: Path) -> None:
        with self._lock:
            self._counts[path] -= 1
            if not self._counts[path]:
                del self._counts[path]
                os.close(self._descriptors.pop(path))

    def forget(self) -> None:
        """Begin without locks, in a process that was forked: it has none."""
        for descriptor in self._descriptors.values():
            with suppress(OSError):
                os.close(descriptor)
        self._lock = threading.Lock()
        self._descriptors.clear()
        self._counts.clear()


_held = _Held()
os.register_at_fork(after_in_child=_held.forget)


class SharedSinkLock:
    """The lock of a table for writers with delta-rs in this process, until `close`.

    Raises:
        SinkError: a Spark application has it, or the file cannot be made.
    """

    def __init__(self, table: Path) -> None:
        self._path: Path | None = sink_lock_path(table)
        self._process_id = os.getpid()
        _held.take(self._path)

    def close(self) -> None:
        """Give it back; a second call does nothing, and neither does one in a process that was forked."""
        path, self._path = self._path, None
        if path is not None and os.getpid() == self._process_id:
            _held.give_back(path)


def _locked(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise SinkError(
            f"The file {path}, which the writers of the sink lock, cannot be made: {error.strerror}.",
            "Writers of a table on a local disk need a folder that they can write to around it.",
        ) from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, _MAX_CONTENT_BYTES, 0).decode(errors="replace").strip() or "another program"
        os.close(descriptor)
        raise SinkError(
            f"{holder} writes to the table beside {path.name}, in {path.parent}. On a local disk Spark and delta-rs "
            "may not both commit: both can win.",
            "Stop it first, use a table for each, or a table on an object store.",
        ) from None
    os.pwrite(descriptor, f"{DELTA_RS}\n".encode(), 0)
    os.ftruncate(descriptor, len(DELTA_RS) + 1)
    return descriptor
