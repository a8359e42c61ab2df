"""A machine's clock that tests can move: all processes of one folder read the same shift.

Only the stamps of the log depend on it: a processor's time is that of the log, carried on by a clock that is never set.
"""

from __future__ import annotations

import time
from pathlib import Path

_NAME = "clock-shift-ms"


def shift(folder: Path, by_ms: int) -> None:
    """Let the wall clock of all processes of a folder jump, so that it is off by this much."""
    new = folder / f"{_NAME}.new"
    new.write_text(str(by_ms))
    new.replace(folder / _NAME)


def follow(folder: Path, own_shift_ms: int = 0) -> None:
    """Let Python's wall clock in this process follow the shift from now on.

    Args:
        folder: the site's folder.
        own_shift_ms: of this process alone.
    """
    path = folder / _NAME
    real_time_ns = time.time_ns

    def time_ns() -> int:
        return real_time_ns() + (_shift_ms(path) + own_shift_ms) * 1_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


def _shift_ms(path: Path) -> int:
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
