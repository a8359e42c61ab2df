"""A folder that is away for a while: to open or make something in it is an error."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def away(folder: str) -> Iterator[None]:
    """Let a plain file be where the folder is, so that nobody can make another one there."""
    file = Path(f"{folder}-away")
    file.touch()
    _exchange(folder, file)
    try:
        yield
    finally:
        _exchange(folder, file)


def _exchange(left: str | Path, right: str | Path) -> None:
    """Exchange two names at once, so that each of them is there all the time (renameat2(2))."""
    names = os.fsencode(left), os.fsencode(right)
    if _libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2", str(left))
