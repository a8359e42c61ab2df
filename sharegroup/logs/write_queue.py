"""The queue of a local log's writers: SQLite lets whoever asks at the right moment write, so that others starve.

A lock of the operating system on a file beside the log serves processes in about the order in which they came, and
ends with its process.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class WriteQueueTimeoutError(Exception):
    """The turn did not come in time."""


class WriteQueue:
    """Gives one thread of one process at a time the turn to write.

    Args:
        path: the lock's file, created when missing.
        timeout_ms: how long to wait for the turn.
    """

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self._path = path
        self._timeout_s = timeout_ms / 1_000
        self._own_threads = threading.Lock()
        self._descriptor: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, and have it inside the block.

        Raises:
            WriteQueueTimeoutError: others kept it for longer than the timeout.
        """
        give_up_at_s = time.monotonic() + self._timeout_s
        if not self._own_threads.acquire(timeout=self._timeout_s):
            raise WriteQueueTimeoutError
        try:
            descriptor = self._lock(give_up_at_s)
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            self._own_threads.release()

    def close(self) -> None:
        """Give the file back, unless a thread has its turn at this moment."""
        if self._own_threads.acquire(blocking=False):
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            self._own_threads.release()

    def _lock(self, give_up_at_s: float) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(self._descriptor, give_up_at_s)
        return self._descriptor

    def _wait(self, descriptor: int, give_up_at_s: float) -> None:
        """Wait in the operating system's queue, on a thread that can be given up; its lock goes with its descriptor."""
        has_turn = threading.Event()

        def wait() -> None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                return
            has_turn.set()

        threading.Thread(target=wait, name="local-log-queue", daemon=True).start()
        if not has_turn.wait(max(give_up_at_s - time.monotonic(), 0.0)):
            # The thread goes on waiting on the old descriptor, whose lock must not become this process's.
            self._descriptor = None
            threading.Thread(target=_release_later, args=(has_turn, descriptor), daemon=True).start()
            raise WriteQueueTimeoutError


def _release_later(has_turn: threading.Event, descriptor: int) -> None:
    has_turn.wait()
    os.close(descriptor)
