"""The common part of all programs: signals, the log, and the exit code.

The first SIGTERM or SIGINT asks a program to drain and end, the second one ends it at once.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

from sharegroup.errors import ShareGroupError
from sharegroup.event_log import Event, log_events
from sharegroup.exit_code import ExitCode, exit_code_of

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles signals from its creation, by the main thread, until `close`.

    Attributes:
        requested: set when the program should drain and end.
        signal_name: the first signal; empty before it.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.signal_name = ""
        self._lock = threading.Lock()
        self._receivers: set[str] = set()
        # A signal handler that sets an event can deadlock with the thread that it interrupts; a thread cannot.
        self._received, self._sent = socket.socketpair()
        self._sent.setblocking(False)
        self._handlers_before = {number: signal.signal(number, _leave_to_thread) for number in SIGNALS}
        self._wakeup_before = signal.set_wakeup_fd(self._sent.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="stop-signals", daemon=True).start()

    def restore(self) -> None:
        """Handle signals again after a Spark context was made, which takes SIGINT over on the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, _leave_to_thread)

    def close(self) -> None:
        """Restore the earlier signal handlers of this process."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        # Ends the thread, which closes its own end of the pair.
        self._sent.close()

    def receive(self, receiver: str, number: int) -> None:
        """Handle a signal to one of the program's processes.

        Args:
            receiver: the process; a signal to the whole process group reaches each of them once.
        """
        with self._lock:
            if receiver in self._receivers:
                os._exit(128 + number)
            self._receivers.add(receiver)
            self.signal_name = self.signal_name or signal.Signals(number).name
        self.requested.set()

    def _listen(self) -> None:
        with self._received:
            while number := self._received.recv(1):
                if number[0] in SIGNALS:
                    self.receive("python", number[0])


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Do nothing: the thread of `StopSignals` receives the signal, too."""


class Program:
    """A program, from its flags to its exit code.

    Attributes:
        stop: set when the program should drain and end.

    Args:
        is_verbose: log every commit or batch.
    """

    def __init__(self, is_verbose: bool) -> None:
        self.signals = StopSignals()
        self.stop = self.signals.requested
        log_events(is_verbose)

    def run(self, work: Callable[[Self], None]) -> int:
        """Do the work, log its end, and return the exit code."""
        try:
            work(self)
            code = ExitCode.OK
        except ShareGroupError as error:
            code = exit_code_of(error)
            logger.error(Event("failed", type=type(error).__name__, error=error.message, remedy=error.remedy or None))
        except Exception:
            code = ExitCode.FAILED
            logger.exception(Event("failed"))
        logger.info(Event("ended", exit_code=code.value, signal=self.signals.signal_name or None))
        self.close()
        return code

    def close(self) -> None:
        """Release what the program holds; called when its work has ended."""
        self.signals.close()
