"""The host of a processor that needs no Spark: the loop runs on a thread of this process.

`spark/processor_query.py` is the other host. It begins as this one does, and hands the loop over to the first
micro-batch of a streaming query; in a session of Spark Connect it stays with the thread. Members and state cannot tell
the hosts apart.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from sharegroup.config.loader import Settings
from sharegroup.errors import ShareGroupError
from sharegroup.processor.processor import Processor

_SERVE_POLL_S = 0.2


class ThreadHost:
    """Runs all share groups of one request log on a thread.

    Args:
        accepts_older_state: whether the state table may be an older copy than the request log.
        processor: the processor to host, not started; it is made of the other arguments by default.

    Example:
        ThreadHost(settings).serve(stop)
    """

    def __init__(
        self, settings: Settings, *, accepts_older_state: bool = False, processor: Processor | None = None
    ) -> None:
        self._processor = processor or Processor(settings, accepts_older_state=accepts_older_state)
        self._stopping = threading.Event()
        self._handed_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharegroup-loop", daemon=True)

    @property
    def processor(self) -> Processor:
        """The processor that is hosted."""
        return self._processor

    def serve(self, stop: threading.Event | None = None, idle_limit_s: float | None = None) -> None:
        """Start, work until `stop` is set, and stop: commit and publish what was applied.

        Args:
            stop: ends the work; without it the work has no end.
            idle_limit_s: also ends the work when, for so long, no group had a member and no work was left.

        Raises:
            ShareGroupError: the cause of a failure.
        """
        stop = stop or threading.Event()
        try:
            with self._processor.giving_up_when(stop):
                self.start()
                while not stop.wait(_SERVE_POLL_S):
                    self.check()
                    if idle_limit_s is not None and (self._processor.idle_s() or 0.0) >= idle_limit_s:
                        break
        finally:
            self.stop()

    def start(self) -> None:
        """Take over, and start the loop.

        Raises:
            ShareGroupError: as `Processor.start`.
        """
        self._processor.start()
        self._thread.start()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the host stops, and return True; return False after the timeout.

        Raises:
            ShareGroupError: the cause of a failure.
        """
        ended = self._stopping.wait(timeout_s)
        self.raise_failure()
        return ended

    def check(self) -> None:
        """Check that the host works.

        Raises:
            ShareGroupError: the cause of a failure.
        """
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the cause if the processor has failed.

        Raises:
            ShareGroupError: the cause of a failure.
        """
        self._processor.raise_failure()

    def last_progress(self) -> Mapping[str, Any]:
        """Return the loop's figures since the start."""
        return self._processor.figures.named()

    def stop(self) -> None:
        """Commit and publish what was applied."""
        self._stopping.set()
        self._processor.stop()

    def _hand_over(self) -> None:
        """End the turn of the thread; the caller runs the loop from now on."""
        self._handed_over.set()
        self._processor.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._processor.run(lambda: self._stopping.is_set() or self._handed_over.is_set())
        except ShareGroupError:
            # `raise_failure` raises it.
            self._stopping.set()
