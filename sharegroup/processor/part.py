"""A part of a processor: a thread with a name, a stop, and somebody who hears of its failure."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Part:
    """Runs a function on a thread of its own.

    Args:
        name: the thread's name, after `sharegroup-`.
        run: the body; it returns soon after `is_stopping` is set.
        fail: called with the exception that ended the body, on its thread.
        wake: called by a stop after `is_stopping` is set: lets a body that waits for something else return.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], object],
        fail: Callable[[BaseException], object],
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self.is_stopping = threading.Event()
        self._run = run
        self._fail = fail
        self._wake = wake
        # Parts end with the process: what they leave undone is done again by the next processor.
        self._thread = threading.Thread(target=self._guarded, name=f"sharegroup-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask the body to return, and do not wait for that."""
        self.is_stopping.set()
        self._wake()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ask the body to return, and wait until it has; return False if it has not within the time.

        A part that was never started has ended. A part that stops itself does not wait for itself.
        """
        self.request_stop()
        if not self._thread.is_alive() or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            self._fail(failure)
