"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T | None], what: str, deadline_s: float = 120.0, pause_s: float = 0.02) -> T:
    """Return the first true value of `probe`; fail with `what` and the last value when the time is over.

    Args:
        probe: looks, and changes nothing.
        what: what is waited for, for the failure's message.
        deadline_s: when to give up; generous, since only failures wait so long.
        pause_s: shortest time between two looks; a look that takes long is followed by a pause twice as long, so that
            what is waited for gets on.
    """
    started_s = time.monotonic()
    give_up_at = started_s + deadline_s
    while not (seen := probe()):
        now_s = time.monotonic()
        if now_s > give_up_at:
            raise AssertionError(f"after {deadline_s} s still not so: {what}; last seen: {seen!r}")
        threading.Event().wait(max(pause_s, 2 * (now_s - started_s)))
        started_s = time.monotonic()
    return seen
