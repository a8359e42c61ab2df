"""Waits for writes to a file, as the kernel reports them (inotify), or for a wake-up from another thread."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
from pathlib import Path
from typing import Protocol

IN_MODIFY = 0x2
IN_CLOSE_WRITE = 0x8
"""Event kinds: file modified; file closed after writing, also when its process ends. Of a folder: of its files."""

_BUFFER_BYTES = 64 * 1024


class Watch(Protocol):
    """A wait for changes of a file, used by one thread between two reads."""

    longest_pause_ms: float
    """Maximum time between two reads of the file when nothing is reported."""
    reports: bool
    """True if the kernel reports events; otherwise the waits are pauses."""

    def wait(self, timeout_ms: float) -> bool:
        """Block until a write is reported or `wake` is called; return False if the time is over first."""
        ...

    def renew(self) -> None:
        """Watch the file that has the path now: it may have been deleted and created again."""
        ...

    def wake(self) -> None:
        """End the wait at hand, or the next one; any thread may call it."""
        ...

    def close(self) -> None:
        """Release all resources; no wait may be under way."""
        ...


def watch(path: Path, events: int = IN_MODIFY) -> Watch:
    """Watch a file or folder by inotify, or by short pauses where the system has none (left)."""
    if sys.platform == "linux":
        try:
            return _InotifyWatch(path, events)
        except OSError:
            # Each user has 128 instances by default.
            pass
    return _PausingWatch()


class _InotifyWatch:
    longest_pause_ms = 1_000.0
    reports = True

    def __init__(self, path: Path, events: int) -> None:
        self._path = os.fsencode(path)
        self._events = events
        self._system = ctypes.CDLL(None, use_errno=True)
        self._file = int(self._system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        try:
            self.renew()
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            os.close(self._file)
            raise
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)
        self._lock = threading.Lock()
        self._is_closed = False

    def renew(self) -> None:
        # The kernel watches what is behind the path; for the same file this changes nothing.
        if self._system.inotify_add_watch(self._file, self._path, self._events) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", os.fsdecode(self._path))

    def wait(self, timeout_ms: float) -> bool:
        reported = self._poll.poll(timeout_ms)
        for descriptor, _ in reported:
            os.read(descriptor, _BUFFER_BYTES if descriptor == self._file else 8)
        return bool(reported)

    def wake(self) -> None:
        # The descriptor's number may be another file's after the close.
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._bell)
                os.close(self._file)


class _PausingWatch:
    longest_pause_ms = 4.0
    reports = False

    def __init__(self) -> None:
        self._woken = threading.Event()

    def renew(self) -> None:
        pass

    def wait(self, timeout_ms: float) -> bool:
        is_woken = self._woken.wait(timeout_ms / 1000)
        self._woken.clear()
        return is_woken

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        pass
