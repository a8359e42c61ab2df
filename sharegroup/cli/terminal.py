"""Signals and keys: a command ends where no work is half done."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):  # noqa: N818 - it is no error
    """A signal asks the process to end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number


class Interruption:
    """The signals that ask the process to end; a second one ends it at once, with the signal's own effect."""

    def __init__(self) -> None:
        self._signal_number: int | None = None
        self._is_waiting = False

    @property
    def is_requested(self) -> bool:
        """True if a signal has come."""
        return self._signal_number is not None

    def check(self) -> None:
        """Raise `Interrupted` if a signal has come."""
        if self._signal_number is not None:
            raise Interrupted(self._signal_number)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Raise `Interrupted` as soon as a signal comes, since nothing in the block can be left half done."""
        self._is_waiting = True
        try:
            self.check()
            yield
        finally:
            self._is_waiting = False

    def _receive(self, signal_number: int, frame: FrameType | None) -> None:
        self._signal_number = signal_number
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if self._is_waiting:
            raise Interrupted(signal_number)


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Receive the signals within the block; for the main thread."""
    received = Interruption()
    before = {number: signal.signal(number, received._receive) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_reader(output: TextIO) -> bool:
    """Return False if a stream is a pipe whose reader has closed it."""
    try:
        descriptor = output.fileno()
    except OSError:
        # A stream in memory.
        return True
    pipe = select.poll()
    # An error is reported whatever is asked for.
    pipe.register(descriptor, 0)
    return not any(events & select.POLLERR for _, events in pipe.poll(0))


class Keyboard:
    """The keys of the terminal, which end a wait.

    Args:
        interrupted: ends a wait, too.
        has_keys: True if standard input is a terminal.
    """

    def __init__(self, interrupted: Interruption, has_keys: bool) -> None:
        self._interrupted = interrupted
        self._has_keys = has_keys

    def wait(self, timeout_s: float) -> str:
        """Return the key that is pressed within a time; "" for none.

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
