"""How operations meet a Kafka cluster that is away: reported errors, refreshed metadata, pauses, log events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sharegroup.event_log import Event
from sharegroup.logs.kafka_errors import AUTHENTICATION

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_REFRESH_TIMEOUT_S = 0.5
"""Time limit of a metadata request while another request waits, and the interval between two."""

_FIRST_LINE_S = 5.0
"""A restarting broker is away for some seconds; longer waits are logged."""
_LINE_EVERY_S = 60.0

_REPEATED_AFTER_S = 35.0
"""librdkafka's own interval is 30 s."""

_logger = logging.getLogger(__name__)


def pauses() -> Iterator[float]:
    """Yield the pauses between attempts, in seconds, without end."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


class Connection:
    """Connection errors that the clients of one operation have reported since it began.

    A client reports an error that repeats only every 30 s. So one of an operation before counts until then, if this one
    gets no response either.

    Args:
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.last_error: KafkaError | None = None
        self.refusal: KafkaError | None = None
        self._monotonic_s = monotonic_s
        self._reported: tuple[KafkaError, float] | None = None

    def cause_of(self, error: KafkaError) -> KafkaError:
        """Return the connection error that explains a transient one, or the transient one itself."""
        if self.last_error is not None:
            return self.last_error
        # A broker's own response has a code above 0: there was a connection.
        if error.code() > 0 or self._reported is None or self._monotonic_s() > self._reported[1] + _REPEATED_AFTER_S:
            return error
        return self._reported[0]

    def failed(self, error: KafkaError) -> None:
        """Record an error that no call returns."""
        # A producer without write permission fails permanently.
        if error.code() in AUTHENTICATION or error.fatal():
            self.refusal = error
        # "All brokers down" follows from an error that has the reason.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.last_error is None:
            self.last_error = error
            self._reported = (error, self._monotonic_s())

    def reset(self) -> None:
        """Begin the next operation."""
        self.last_error = self.refusal = None


class MetadataRefresh:
    """Requests the metadata of brokers while a request has waited for long.

    A request to the controller waits for the broker that was the controller in the client's last metadata: for ever, if
    that broker died. The client refreshes its metadata only every five minutes.

    Args:
        client: the client whose request waits from now on.
    """

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._next_s = time.monotonic() + _REFRESH_TIMEOUT_S

    def refresh_if_due(self) -> None:
        """Request the metadata, unless the request or the last refresh is younger than half a second."""
        if time.monotonic() < self._next_s:
            return
        with suppress(KafkaException):
            self._client.list_topics(timeout=_REFRESH_TIMEOUT_S)
        self._next_s = time.monotonic() + _REFRESH_TIMEOUT_S


class Outage:
    """The log events of outages; any thread may use it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._next_line_s = 0.0

    def log_wait(self, action: str, seconds: float, reason: str) -> None:
        """Log that an operation has waited for this long, at most once a minute.

        Args:
            action: the action that fails, after "cannot", such as "describe topic orders".
            seconds: duration of the wait so far.
            reason: cause of the wait; must hold no secret.
        """
        with self._lock:
            now_s = time.monotonic()
            if seconds < _FIRST_LINE_S or now_s < self._next_line_s:
                return
            self._next_line_s = now_s + _LINE_EVERY_S
        _logger.warning(
            Event("log_unavailable", log=self._name, action=action, seconds=round(seconds), reason=reason or None)
        )
