"""The queue of a local log's writers: SQLite itself is not fair, and lets some writers starve.

An operating system lock on a file beside the log serves processes in about the order in which they came, and ends with
its process. After each turn a byte is written to that file, which the kernel reports to its watchers: then they can see
the commit of the turn (`local_file.py`).

A turn that timed out leaves its thread waiting in the system's queue, and the next turn takes it over: so however long
another process keeps the lock, one thread and one descriptor wait for it. A lock that comes while no turn needs it is
given back at once.
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

from sharegroup.logs.own_descriptor import OwnDescriptor


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
        self._descriptor: OwnDescriptor | None = None
        self._waiter: _Waiter | None = None

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
        self._opened().close()

    def close(self) -> None:
        """Close the file, unless a thread has its turn now; its watchers check once more."""
        if self._own_threads.acquire(blocking=False):
            if self._descriptor is not None:
                _report(self._descriptor)
                if self._waiter is None or not self._waiter.close_later():
                    self._descriptor.close()
                self._descriptor = self._waiter = None
            self._own_threads.release()

    def _lock(self, give_up_at_s: float) -> OwnDescriptor:
        while True:
            if self._descriptor is None:
                self._descriptor = self._opened()
            if self._waiter is None:
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return self._descriptor
                except BlockingIOError:
                    self._waiter = _Waiter(self._descriptor)
            has_turn = self._waiter.take(max(give_up_at_s - time.monotonic(), 0.0))
            if self._waiter.has_ended:
                self._waiter = None
            if has_turn:
                return self._descriptor
            if time.monotonic() >= give_up_at_s:
                raise WriteQueueTimeoutError

    def _opened(self) -> OwnDescriptor:
        return OwnDescriptor(self.path, os.O_RDWR | os.O_CREAT)


class _Waiter:
    """A thread that waits in the system's queue for a lock, for one turn after the other until it comes.

    While it waits nobody else may lock or close the descriptor: the lock belongs to the descriptor, whichever thread
    asked for it.
    """

    def __init__(self, descriptor: OwnDescriptor) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._is_needed = True
        self._has_lock = False
        self._is_closing = False
        self.has_ended = False
        threading.Thread(target=self._run, name="local-log-queue", daemon=True).start()

    def take(self, timeout_s: float) -> bool:
        """Wait for the lock; return False if it does not come in time, or came while no turn needed it."""
        with self._changed:
            self._is_needed = True
            try:
                self._changed.wait_for(lambda: self.has_ended, timeout_s)
                is_taken, self._has_lock = self._has_lock, False
                return is_taken
            finally:
                self._is_needed = False
                if self._has_lock:
                    # An interrupted turn must not keep it.
                    self._unlock()

    def close_later(self) -> bool:
        """Close the descriptor once the lock came; return False if the thread has ended."""
        with self._changed:
            self._is_closing = not self.has_ended
            return self._is_closing

    def _run(self) -> None:
        is_locked = False
        # After an error the next turn meets it, too.
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            is_locked = True
        with self._changed:
            self._has_lock, self.has_ended = is_locked, True
            if self._has_lock and not self._is_needed:
                self._unlock()
            if self._is_closing:
                self._descriptor.close()
            self._changed.notify()

    def _unlock(self) -> None:
        self._has_lock = False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _report(descriptor: OwnDescriptor) -> None:
    # A watcher without a report, on a full disk perhaps, checks by itself a second later.
    with suppress(OSError):
        os.pwrite(descriptor.fileno(), b"\0", 0)


_STOPPED_STATES = ("T", "t")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process that holds a lock.

    Attributes:
        is_stopped: True if a signal or a debugger stopped it; then it releases no lock before it continues.
    """

    pid: int
    is_stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid}{', which is stopped' if self.is_stopped else ''}"


def lock_holder(path: Path, proc: Path = Path("/proc")) -> LockHolder | None:
    """Return the process that holds the `flock` of a file; None when there is none, or it cannot be known.

    Args:
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
