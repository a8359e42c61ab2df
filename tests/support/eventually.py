"""Waiting for a condition, with one deadline for all tests, which is longer where the machine is busy."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_VARIABLE = "TESTS_SLOWNESS"
_SAMPLES = 20
_LOOPS = 100_000
_QUIET_S = 0.0014
"""Time of a sample on a quiet machine of the kind that CI has."""
_HIGHEST = 4.0


def _slowness() -> float:
    """Return how many times longer than on a quiet machine a computation takes now, at least 1.

    It is measured once in a run: all other processes of the run inherit the figure.
    """
    if _VARIABLE not in os.environ:
        begun_s = time.perf_counter()
        for _ in range(_SAMPLES):
            sum(range(_LOOPS))
        taken_s = time.perf_counter() - begun_s
        os.environ[_VARIABLE] = f"{min(max(1.0, taken_s / (_SAMPLES * _QUIET_S)), _HIGHEST):.2f}"
    return float(os.environ[_VARIABLE])


SLOWNESS: Final = _slowness()
DEADLINE_S: Final = 180.0 * SLOWNESS
"""When tests give up; generous, since only failures wait so long."""
WAIT_MS: Final = round(1_000 * DEADLINE_S)


def eventually(probe: Callable[[], T | None], what: str, *, pause_s: float = 0.02) -> T:
    """Return the first true value of `probe`; fail with `what` and the last value when the time is over.

    Args:
        probe: reads, and changes nothing.
        what: what is waited for, for the failure's message.
        pause_s: shortest time between two probes; one that takes long is followed by a pause twice as long, so that
            what is waited for gets on.
    """
    started_s = time.monotonic()
    give_up_at = started_s + DEADLINE_S
    while not (seen := probe()):
        now_s = time.monotonic()
        if now_s > give_up_at:
            raise AssertionError(f"after {DEADLINE_S:.0f} s still not so: {what}; last seen: {seen!r}")
        threading.Event().wait(max(pause_s, 2 * (now_s - started_s)))
        started_s = time.monotonic()
    return seen
