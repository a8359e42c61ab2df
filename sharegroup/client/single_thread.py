"""A share consumer is for one thread: calls that overlap are refused, those from inside the commit callback too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sharegroup.client.kafka_types import ConcurrentModificationException, IllegalStateException


class SingleThreadGuard:
    """Lets one call in at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The time of one call.

        Raises:
            ConcurrentModificationException: another thread is in a call.
            IllegalStateException: this thread is in a call, so this is the commit callback.
        """
        current = threading.get_ident()
        if not self._lock.acquire(blocking=False):
            if self._owner == current:
                raise IllegalStateException(
                    "Share consumer methods are not accessible from user-defined acknowledgement commit callback"
                )
            raise ConcurrentModificationException(
                "Share consumer is not safe for multi-threaded access. "
                f"currentThread(id: {current}) otherThread(id: {self._owner})"
            )
        self._owner = current
        try:
            yield
        finally:
            self._owner = 0
            self._lock.release()
