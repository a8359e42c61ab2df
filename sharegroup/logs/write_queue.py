"""The queue of a local log's writers: SQLite itself is not fair, and lets some writers starve.

An operating system lock on a file beside the log serves processes in about the order in which they came, and ends with
its process. After each turn a byte is written to that file, which the kernel reports to its watchers: then they can see
the commit of the turn (`local_file.py`).
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


class WriteQueueTimeoutError(Exception):
    """Raised when the turn did not come in time."""


class WriteQueue:
    """Turns to write, one thread of one process at a time.

    Args:
        path: the lock's file, created when missing.
        timeout_ms: how long to wait for the turn.
    """

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self.path = path
        self._timeout_s = timeout_ms / 1_000
        self._own_threads = threading.Lock()
        self._descriptor: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, and keep it until the block ends.

        Raises:
            WriteQueueTimeoutError: other writers kept it for longer than the timeout.
        """
        give_up_at_s = time.monotonic() + self._timeout_s
        if not self._own_threads.acquire(timeout=self._timeout_s):
            raise WriteQueueTimeoutError
        try:
            descriptor = self._lock(give_up_at_s)
            try:
                yield
            finally:
                _report(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            self._own_threads.release()

    def create(self) -> None:
        """Create the file, unless it exists.

        Raises:
            OSError: the folder cannot be written.
        """
        os.close(self._opened())

    def close(self) -> None:
        """Close the file, unless a thread has its turn now; its watchers check once more."""
        if self._own_threads.acquire(blocking=False):
            if self._descriptor is not None:
                _report(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = None
            self._own_threads.release()

    def _lock(self, give_up_at_s: float) -> int:
        if self._descriptor is None:
            self._descriptor = self._opened()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(self._descriptor, give_up_at_s)
        return self._descriptor

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _wait(self, descriptor: int, give_up_at_s: float) -> None:
        """Wait in the system's queue, in a thread that may be abandoned; its lock ends with the descriptor."""
        has_turn = threading.Event()

        def wait() -> None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                return
            has_turn.set()

        threading.Thread(target=wait, name="local-log-queue", daemon=True).start()
        if not has_turn.wait(max(give_up_at_s - time.monotonic(), 0.0)):
            # The thread continues to wait on the old descriptor, whose lock must not become this process's.
            self._descriptor = None
            threading.Thread(target=_release_later, args=(has_turn, descriptor), daemon=True).start()
            raise WriteQueueTimeoutError


def _report(descriptor: int) -> None:
    # A watcher without a report, on a full disk perhaps, checks by itself a second later.
    with suppress(OSError):
        os.pwrite(descriptor, b"\0", 0)


def _release_later(has_turn: threading.Event, descriptor: int) -> None:
    has_turn.wait()
    os.close(descriptor)


_STOPPED_STATES = ("T", "t")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process that holds a lock.

    Attributes:
        pid: its process id.
        is_stopped: True if a signal or a debugger stopped it; then it releases no lock before it continues.
    """

    pid: int
    is_stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid}{', which is stopped' if self.is_stopped else ''}"


def lock_holder(path: Path, proc: Path = Path("/proc")) -> LockHolder | None:
    """Return the process that holds the `flock` of a file; None when there is none, or it cannot be known.

    Args:
        path: the file.
        proc: the folder with the kernel's locks and processes.
    """
    try:
        file_status = os.stat(path)
        locks = (proc / "locks").read_text()
    except OSError:
        return None
    wanted = f"{os.major(file_status.st_dev):02x}:{os.minor(file_status.st_dev):02x}:{file_status.st_ino}"
    for line in locks.splitlines():
        # "3: FLOCK  ADVISORY  WRITE 3502 00:1b:562311 0 EOF"; a waiting process has an arrow after the number.
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == wanted:
            pid = int(words[4])
            return LockHolder(pid, _is_stopped(pid, proc)) if pid > 0 else None
    return None


def _is_stopped(pid: int, proc: Path) -> bool:
    try:
        # The name in parentheses may contain any character.
        state = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in _STOPPED_STATES
