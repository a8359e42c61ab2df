"""A real processor on a thread of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sharegroup.config.loader import Settings
from sharegroup.errors import ShareGroupError
from sharegroup.processor.processor import Processor
from tests.support.eventually import DEADLINE_S


class ProcessorThread:
    """Hosts a processor from `start` to `stop`, as the streaming query does, but without Spark."""

    def __init__(self, settings: Settings, *, accepts_older_state: bool = False) -> None:
        self.settings = settings
        self.processor = Processor(settings, accepts_older_state=accepts_older_state)
        self._is_paused = threading.Event()
        self._may_run = threading.Event()
        self._may_run.set()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="processor", daemon=True)

    def start(self) -> None:
        self.processor.start()
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._may_run.set()
        self.processor.stop()
        if self._thread.is_alive():
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive(), "the processor's thread did not end"

    def raise_failure(self) -> None:
        """Raise what stopped the processor."""
        self.processor.raise_failure()

    def await_failure(self, timeout_s: float = DEADLINE_S) -> None:
        """Wait until the processor has stopped, and raise the cause."""
        self._thread.join(timeout_s)
        self.processor.raise_failure()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """No message is applied inside the block, as if the processor were down."""
        self._is_paused.clear()
        self._may_run.clear()
        self.processor.wake()
        assert self._is_paused.wait(DEADLINE_S), "the processor goes on"
        try:
            yield
        finally:
            self._may_run.set()

    def _run(self) -> None:
        try:
            while not self._is_over:
                self.processor.run(lambda: not self._may_run.is_set(), poll_interval_ms=50)
                self._is_paused.set()
                self._may_run.wait()
        except ShareGroupError:
            # The processor keeps it; it is raised again for each caller.
            return
