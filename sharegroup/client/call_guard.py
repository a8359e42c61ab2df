"""CallGuard: lets calls of a consumer in: those of one thread at a time, of its process, until it is closed."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sharegroup.client.kafka_exceptions import ConcurrentModificationException, IllegalStateException
from sharegroup.event_log import Event

_logger = logging.getLogger(__name__)


class CallGuard:
    """Lets calls of a consumer in one by one: overlapping ones are refused, also those from the commit callback.

    Args:
        member_id: of the consumer.
    """

    def __init__(self, member_id: str) -> None:
        self._member_id = member_id
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._owner = 0
        self._is_closed = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Enter a call, for its duration.

        Raises:
            ConcurrentModificationException: another thread is in a call.
            IllegalStateException: this thread is in a call, so this is the commit callback; the consumer is closed, or
                it is another process's.
        """
        if self._is_forked:
            raise IllegalStateException(
                f"Share consumer belongs to process {self._process_id}, from which this one was forked: make one here"
            )
        with self._alone():
            if self._is_closed:
                raise IllegalStateException("Share consumer closed")
            yield

    @contextmanager
    def closing(self) -> Iterator[bool]:
        """Enter the call that closes the consumer, for its duration; True if there is something to close.

        A second close has nothing to close, and neither has a process that was forked, which logs a warning once: the
        consumer and its threads are the other process's.

        Raises:
            ConcurrentModificationException: another thread is in a call.
            IllegalStateException: this thread is in a call, so this is the commit callback.
        """
        if self._is_forked:
            if not self._is_closed:
                self._is_closed = True
                _logger.warning(Event("forked_consumer_not_closed", member=self._member_id, process=self._process_id))
            yield False
            return
        with self._alone():
            is_first, self._is_closed = not self._is_closed, True
            yield is_first

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process_id

    @contextmanager
    def _alone(self) -> Iterator[None]:
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
