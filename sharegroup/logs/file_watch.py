"""Waits for writes to a file, as the kernel reports them (inotify), or for a word from another thread."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
from pathlib import Path
from typing import Protocol

_IN_MODIFY = 0x2
_BUFFER_BYTES = 64 * 1024


class Watch(Protocol):
    """What a thread waits on between two looks at a file."""

    longest_pause_ms: float
    """After this time the file is looked at, though nothing was reported."""

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
        """Give everything back; no wait may be under way."""
        ...


def watch(path: Path) -> Watch:
    """Watch a file: by inotify, or, where the system has none (left), by short pauses between looks."""
    if sys.platform == "linux":
        try:
            return _InotifyWatch(path)
        except OSError:
            # Each user has 128 instances by default.
            pass
    return _PausingWatch()


class _InotifyWatch:
    """A report may come before the write that it is about can be seen, so a look must follow soon after, too."""

    longest_pause_ms = 200.0

    def __init__(self, path: Path) -> None:
        self._path = os.fsencode(path)
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
        if self._system.inotify_add_watch(self._file, self._path, _IN_MODIFY) < 0:
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
    longest_pause_ms = 6.0

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
