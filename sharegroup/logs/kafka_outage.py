"""What a program's log says while Kafka does not answer: one line a minute, however many operations wait."""

from __future__ import annotations

import logging
import threading
import time

from sharegroup.event_log import Event

_FIRST_LINE_S = 5.0
"""A broker that is restarted is away for some seconds; who waits for longer may want to know."""
_LINE_EVERY_S = 60.0

_logger = logging.getLogger(__name__)


class Outage:
    """Any thread may use it.

    Args:
        name: the cluster.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._next_line_s = 0.0

    def lasts(self, action: str, seconds: float, reason: str) -> None:
        """Tell that an operation has waited for so long, unless it was told less than a minute ago.

        Args:
            action: what cannot be done, after "cannot", such as "describe topic orders".
            seconds: since when it is tried.
            reason: what is in the way; must hold no secret.
        """
        with self._lock:
            now_s = time.monotonic()
            if seconds < _FIRST_LINE_S or now_s < self._next_line_s:
                return
            self._next_line_s = now_s + _LINE_EVERY_S
        _logger.warning(
            Event("log_unavailable", log=self._name, action=action, seconds=round(seconds), reason=reason or None)
        )
