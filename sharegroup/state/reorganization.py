"""The right to rewrite a table's files, which one process has at a time.

The Delta library does not see that another process has merged the same files meanwhile (delta-rs 1.6): both commits
succeed, and each row is there twice. So whoever merges files, or deletes rows from them, holds a lock on the table.
Appends need no lock.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK_FILE = "_reorganization.lock"
"""Delta takes no notice of names that begin like this."""

PATIENCE_S = 30.0
"""How long maintenance waits for the processor's own, which takes about a second."""

_LOOK_AGAIN_S = 0.05


@contextmanager
def reorganizing(path: str, patience_s: float = 0.0) -> Iterator[bool]:
    """Hold the right while the context lasts, and for no longer than this process lives; False: another one has it.

    Args:
        path: the table's folder, on a local disk.
        patience_s: how long to wait for it.
    """
    give_up_at = time.monotonic() + patience_s
    with Path(path, _LOCK_FILE).open("a") as lock:
        is_held = _is_taken(lock.fileno())
        while not is_held and time.monotonic() < give_up_at:
            time.sleep(_LOOK_AGAIN_S)
            is_held = _is_taken(lock.fileno())
        yield is_held


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
