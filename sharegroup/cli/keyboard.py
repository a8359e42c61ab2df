"""Single keys from the terminal, without the Enter key."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from sharegroup.cli.interruption import Interruption


class Keyboard:
    """Waits, and tells the key that ended the wait.

    Args:
        interrupted: ends a wait, too.
        has_keys: whether standard input is a terminal.
    """

    def __init__(self, interrupted: Interruption, has_keys: bool) -> None:
        self._interrupted = interrupted
        self._has_keys = has_keys

    def wait(self, timeout_s: float) -> str:
        """The key that was pressed within a time; "" for none.

        Raises:
            Interrupted: a signal came.
        """
        with self._interrupted.waiting():
            if not self._has_keys:
                time.sleep(timeout_s)
                return ""
            ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
            # Not by sys.stdin, which would keep the keys after this one where `select` does not see them.
            return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""


@contextmanager
def keyboard(interrupted: Interruption) -> Iterator[Keyboard]:
    """Read keys as they are pressed; the terminal is as before when the block ends."""
    if not sys.stdin.isatty():
        yield Keyboard(interrupted, has_keys=False)
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield Keyboard(interrupted, has_keys=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
