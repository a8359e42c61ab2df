"""Settings of the Python interpreter while a processor runs.

They hold for the whole process, also for handlers and notebooks of the same driver. So they are in one module, and the
last processor that stops restores the earlier values.

- **Switch interval.** The commit thread releases the interpreter's lock at each write and sync, and acquires it again
  only when the other thread, which applies messages, has had it for an interval. At Python's 5 ms a commit of ten
  such steps takes 50 ms longer under load; at 0.5 ms it takes 5, and the switches cost less than 1 % of the CPU.
- **Cycle collector.** The objects of a message are freed with its commit, without cycles. At Python's threshold of 700
  objects most of them are scanned several times before, which takes 10 to 20 % of the CPU. The objects of the takeover
  live as long as the processor: they are frozen, so that no collection scans them. With 100,000 share-partitions that
  would stop all responses for half a second.
"""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import dataclass

SWITCH_INTERVAL_S = 0.0005
COLLECTOR_THRESHOLDS = (50_000, 20, 100)
"""More objects than the messages of a commit create, so that collections are rare."""


@dataclass(frozen=True, slots=True)
class _Settings:
    switch_interval_s: float
    thresholds: tuple[int, int, int]
    is_frozen: bool


class _Interpreter:
    """Counts the processors of this process; the first one changes the settings, the last one restores them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processors = 0
        self._before: _Settings | None = None

    def enter(self) -> None:
        with self._lock:
            self._processors += 1
            if self._before is None:
                self._before = _Settings(sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count() > 0)
                sys.setswitchinterval(SWITCH_INTERVAL_S)
                gc.set_threshold(*COLLECTOR_THRESHOLDS)
            gc.freeze()

    def leave(self) -> None:
        with self._lock:
            self._processors -= 1
            if self._processors or self._before is None:
                return
            sys.setswitchinterval(self._before.switch_interval_s)
            gc.set_threshold(*self._before.thresholds)
            if not self._before.is_frozen:
                gc.unfreeze()
            self._before = None


_interpreter = _Interpreter()


class InterpreterSettings:
    """One processor's share in the settings."""

    def __init__(self) -> None:
        self._is_applied = False

    def apply(self) -> None:
        """Change the settings for a processor that has taken over."""
        if not self._is_applied:
            self._is_applied = True
            _interpreter.enter()

    def restore(self) -> None:
        """Restore the earlier values, unless another processor of this process still runs."""
        if self._is_applied:
            self._is_applied = False
            _interpreter.leave()
