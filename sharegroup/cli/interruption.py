"""Ctrl-C and SIGTERM: work ends at a place where nothing is half done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The process was asked to end.

    Args:
        signal_number: by which signal.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number


class Interruption:
    """Whether the process was asked to end; a second signal ends it at once, with the signal's own effect."""

    def __init__(self) -> None:
        self._signal_number: int | None = None
        self._is_waiting = False

    @property
    def is_requested(self) -> bool:
        """Whether a signal has come."""
        return self._signal_number is not None

    def check(self) -> None:
        """End here if a signal has come; raises `Interrupted`."""
        if self._signal_number is not None:
            raise Interrupted(self._signal_number)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A part that a signal ends at once, because nothing in it can be left half done; raises `Interrupted`."""
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
    """Receive the signals as long as the block lasts; for the main thread."""
    received = Interruption()
    before = {number: signal.signal(number, received._receive) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
