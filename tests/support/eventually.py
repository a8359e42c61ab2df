"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T], what: str, deadline_s: float = 30.0, pause_s: float = 0.02) -> T:
    """The first true value of `probe`; fails with `what` and the last value when the time is over.

    Args:
        probe: looks, and changes nothing.
        what: what is waited for, for the failure's message.
        deadline_s: when to give up; generous, since only failures wait so long.
        pause_s: time between two looks, longer for looks that cost much.
    """
    give_up_at = time.monotonic() + deadline_s
    while not (seen := probe()):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"after {deadline_s} s still not so: {what}; last seen: {seen!r}")
        threading.Event().wait(pause_s)
    return seen
