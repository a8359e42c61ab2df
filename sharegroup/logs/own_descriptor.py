"""Open files with a lock that ends with this process, whatever was forked from it.

A forked process has a copy of each descriptor, and a `flock` lasts until the last copy is closed. So a fork closes its
copies at once, which does not end the lock of the original.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from weakref import WeakSet

_CLOSED = -1


class OwnDescriptor:
    """A descriptor of a file that only the process that opened it has open.

    Args:
        flags: those of `os.open`.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, flags: int) -> None:
        self._number = os.open(path, flags | os.O_CLOEXEC, 0o666)
        _open.add(self)

    def fileno(self) -> int:
        """Return its number; -1 once it is closed, and in a process that was forked."""
        return self._number

    @property
    def is_open(self) -> bool:
        """Return False once it is closed, and in a process that was forked."""
        return self._number != _CLOSED

    def close(self) -> None:
        """Close it, which ends its lock; a second close does nothing."""
        # A number that is closed twice may be another file's by then.
        number, self._number = self._number, _CLOSED
        if number != _CLOSED:
            os.close(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_open: WeakSet[OwnDescriptor] = WeakSet()


def _close_in_fork() -> None:
    for descriptor in list(_open):
        with suppress(OSError):
            descriptor.close()
    _open.clear()


os.register_at_fork(after_in_child=_close_in_fork)
