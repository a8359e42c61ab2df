"""The time that a thread waits in polls, of any member.

A member takes the time between two polls for the processing time of its records (`pace.py`). A thread that polls
several members in turn spends a part of it waiting in the polls of the others, which is no processing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sharegroup.logs.log_clock import monotonic_ms


class _Waited(threading.local):
    total_ms = 0


_waited = _Waited()


def waited_ms() -> int:
    """Return the time that this thread has waited in polls so far, ms."""
    return _waited.total_ms


@contextmanager
def waiting_poll() -> Iterator[None]:
    """Count the time in the context as waiting."""
    started_ms = monotonic_ms()
    try:
        yield
    finally:
        _waited.total_ms += monotonic_ms() - started_ms
