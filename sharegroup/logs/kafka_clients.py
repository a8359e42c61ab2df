"""Clients of one Kafka cluster: their creation, deadlines, error translation, pools, and log events of outages."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sharegroup.config.connections import DIAGNOSTICS
from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import ConfigurationError, ContradictionError, LogError, ShareGroupError
from sharegroup.logs.client_options import ClientOptions
from sharegroup.logs.kafka_errors import is_transient, translated
from sharegroup.logs.kafka_outage import Connection, MetadataRefresh, Outage, pauses
from sharegroup.logs.port import ENDLESS_MS

_logger = logging.getLogger(__name__)


def _is_debugged(record: logging.LogRecord) -> bool:
    """Make a line of Kafka's client a line for debugging: it repeats each error at each attempt to connect.

    The errors reach the callers by `error_cb` and as results, and long waits are logged as `log_unavailable`.
    """
    record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return _client_logger.isEnabledFor(logging.DEBUG)


_client_logger = logging.getLogger(f"{__name__}.librdkafka")
_client_logger.addFilter(_is_debugged)


T = TypeVar("T")
Key = TypeVar("Key")

CHECK_INTERVAL_S = 0.1
"""Interval at which a blocked operation checks whether the log was closed or refuses the client."""

_FIRST_ATTEMPT_S = 1.0
"""Time of the first attempt of a request that changes nothing; each further one takes twice as long."""
_LIST_TIMEOUT_S = 5.0

_COMMON = {
    # A deleted topic must not come back with a broker's defaults: that would be another topic.
    "allow.auto.create.topics": False,
    # A broker that restarts is reconnected within a second; librdkafka's own limit is 10 s.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 50,
    "log_level": 4,
}
_ADMIN: Mapping[str, object] = {
    # With connections on demand, a request that waits for a broker that is gone connects to it without any pause: each
    # such client takes a core, and gets no newer metadata meanwhile (librdkafka 2.16).
    "enable.sparse.connections": False,
}
_READER: Mapping[str, object] = {
    **_ADMIN,
    # A broker that does not respond is asked again and again until its connection ends: after a minute by default.
    "socket.timeout.ms": 3_000,
}
_HELPER: Mapping[str, object] = {
    "linger.ms": 0,
    # A sign of life that is late shows nothing.
    "message.timeout.ms": 10_000,
    # Nobody reads what the helper process writes.
    "log_level": 0,
}


class KafkaClients:
    """Makes clients, and waits for their responses; any thread may use it.

    Args:
        timeout_ms: how long an operation retries while Kafka cannot be reached.
        options: what the application adds.

    Raises:
        ConfigurationError: no bootstrap.servers, or the client does not accept a setting.
    """

    def __init__(self, config: KafkaConfig, timeout_ms: int, options: ClientOptions | None = None) -> None:
        if not config.bootstrap_servers:
            raise ConfigurationError("bootstrap.servers is empty.", "Name a broker of the cluster, host:port.")
        self.closed = threading.Event()
        self.name = f"Kafka at {config.bootstrap_servers}"
        self._config = config
        self._options = options or ClientOptions()
        self._logger = self._options.logger or _client_logger
        self.own_timeout_ms = timeout_ms
        self._limit = threading.local()
        self._outage = Outage(self.name)
        self._process_id = os.getpid()
        self._admin_connection = Connection()
        self._admin = self._administrator(_ADMIN)
        self._reader = self._admin
        """The client of requests that change nothing: another one once a request has got no response."""

    def consumer(self, connection: Connection, settings: Mapping[str, object]) -> Consumer:
        """Return a new consumer that belongs to no group."""
        own = {"group.id": "sharegroup-none", "enable.auto.commit": False, **settings}
        return self._made(lambda merged: Consumer(merged, logger=self._logger), connection, own)

    def producer(self, connection: Connection, settings: Mapping[str, object]) -> Producer:
        """Return a new producer."""
        return self._made(lambda merged: Producer(merged, logger=self._logger), connection, settings)

    def helper_settings(self) -> dict[str, object] | None:
        """Return the configuration of a producer in another process, which holds secrets; None if it cannot log in."""
        if self._options.oauth_cb is not None:
            return None
        added = {key: value for key, value in self._options.properties.items() if key not in DIAGNOSTICS}
        return {**_COMMON, **self._config.client_properties(), **added, **_HELPER}

    @property
    def timeout_ms(self) -> int:
        """How long an operation of this thread retries while Kafka cannot be reached."""
        _, limit_ms = self._limit_of_thread()
        return min(self.own_timeout_ms, limit_ms)

    @contextmanager
    def limited(self, timeout_ms: int) -> Iterator[None]:
        """Bound all operations of this thread together."""
        before = self._limit_of_thread()
        self._limit.bound = (time.monotonic() + timeout_ms / 1000, timeout_ms)
        try:
            yield
        finally:
            self._limit.bound = before

    def deadline(self) -> float:
        """Return the deadline of an operation that begins now, in seconds of the monotonic clock."""
        self.check_usable()
        limit_s, _ = self._limit_of_thread()
        return min(time.monotonic() + self.own_timeout_ms / 1000, limit_s)

    @property
    def is_forked(self) -> bool:
        """Return True in a process that was forked from the one that made the clients."""
        return os.getpid() != self._process_id

    def check_usable(self) -> None:
        """Raise `LogError` after `close`, and in a process that was forked."""
        if self.is_forked:
            raise LogError(
                f"{self.name} was opened by process {self._process_id}, which this one was forked from.",
                "Close it before the fork and open it after, or start processes with the spawn method.",
            )
        if self.closed.is_set():
            raise LogError(f"{self.name} is closed.", "Open it again.")

    def wait(self, pause_s: float) -> None:
        """Wait between two attempts; raise `LogError` when the log is closed meanwhile."""
        if self.closed.wait(pause_s):
            self.check_usable()

    def ask(self, action: str, start: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> list[Any]:
        """Return the results of an administrative request, in the order of its parts; transient failures are retried.

        Args:
            action: the action for error messages, after "cannot", such as "describe topic orders".
            start: sends the request, and may be called again.

        Raises:
            ShareGroupError: the translated error of the request.
        """
        return self._retried(
            action,
            lambda deadline: [self._awaited(action, future, deadline) for future in start(self._admin).values()],
        )

    def ask_each(
        self,
        action: str,
        keys: Sequence[Key],
        start: Callable[[AdminClient, Sequence[Key], float], Mapping[Key, Future[Any]]],
        timeout_ms: int | None = None,
    ) -> tuple[dict[Key, Any], dict[Key, ShareGroupError]]:
        """Return the results of the parts of a request that changes nothing, and the errors of the other parts.

        A broker that does not respond to this client holds it up for some seconds, while others do.

        Args:
            action: the action for error messages, after "cannot", such as "describe topics".
            start: sends a request for some parts with a timeout in seconds; may be called again.
            timeout_ms: how long to retry; None for the timeout of any operation.

        Raises:
            LogError: the log is closed, or it refuses the client.
        """
        deadline = self.deadline() if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        results: dict[Key, Any] = {}
        errors: dict[Key, KafkaError] = {}
        waiting = list(keys)
        self._admin_connection.reset()
        intervals = pauses()
        attempt_s = _FIRST_ATTEMPT_S
        while waiting:
            reader = self._reader
            futures = start(reader, waiting, max(min(attempt_s, deadline - time.monotonic()), CHECK_INTERVAL_S))
            attempt_s *= 2
            self._wait_for_all(action, reader, futures, deadline)
            for key, future in futures.items():
                failure = future.exception() if future.done() else KafkaException(KafkaError(KafkaError._TIMED_OUT))
                if failure is None:
                    results[key] = future.result()
                elif isinstance(failure, KafkaException):
                    errors[key] = kafka_error(failure)
                else:
                    raise failure
            waiting = [key for key in waiting if key not in results and is_transient(errors[key])]
            if reader is self._admin and any(errors[key].code() == KafkaError._TIMED_OUT for key in waiting):
                self._reader = self._administrator(_READER)
            pause_s = next(intervals)
            if time.monotonic() + pause_s > deadline:
                break
            if waiting:
                if timeout_ms is None:
                    self._tell_outage(action, self._admin_connection, deadline)
                self.wait(pause_s)
        failed = {key: error for key, error in errors.items() if key not in results}
        return results, {
            key: self.error(action, error, self._admin_connection, timeout_ms) for key, error in failed.items()
        }

    def topic_names(self) -> list[str]:
        """Return the names of all topics, Kafka's own included."""

        def listed(deadline: float) -> list[str]:
            remaining_s = max(deadline - time.monotonic(), CHECK_INTERVAL_S)
            return list(self._admin.list_topics(timeout=min(remaining_s, _LIST_TIMEOUT_S)).topics)

        return self._retried("list the topics", listed)

    def check_connection(self, action: str, connection: Connection, deadline: float) -> None:
        """Raise when a blocked operation cannot succeed: the log is closed, refuses the client, or time is over."""
        self.check_usable()
        if connection.refusal is not None:
            raise self.error(action, connection.refusal, connection)
        if time.monotonic() > deadline:
            raise self.error(action, KafkaError(KafkaError._TIMED_OUT), connection)
        self._tell_outage(action, connection, deadline)

    def error(
        self, action: str, error: KafkaError, connection: Connection, timeout_ms: int | None = None
    ) -> ShareGroupError:
        """Translate an error of Kafka; without a response, include the timeout and the connection error.

        Args:
            action: the action, after "cannot".
            connection: what the clients of the operation have reported.
            timeout_ms: how long the operation was retried; None for the timeout of any operation.
        """
        cause = connection.cause_of(error) if is_transient(error) else error
        text = self._config.without_secrets(cause.str())
        # A broker's own response has a code above 0.
        if cause is not error or (is_transient(error) and error.code() < 0):
            text = f"no response{self._within(timeout_ms)}; {text}"
        return translated(KafkaError(cause.code(), text), f"{self.name} cannot {action}")

    def timed_out(self, action: str) -> ShareGroupError:
        """Return the error of an administrative request that got no usable response in time."""
        return self.error(action, KafkaError(KafkaError._TIMED_OUT), self._admin_connection)

    def _limit_of_thread(self) -> tuple[float, int]:
        """Return deadline, in seconds of the monotonic clock, and duration in ms."""
        bound: tuple[float, int] = getattr(self._limit, "bound", (math.inf, ENDLESS_MS))
        return bound

    def _within(self, timeout_ms: int | None) -> str:
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        return "" if limit_ms >= ENDLESS_MS else f" within {limit_ms} ms"

    def _retried(self, action: str, attempt: Callable[[float], T]) -> T:
        deadline = self.deadline()
        self._admin_connection.reset()
        intervals = pauses()
        refresh = MetadataRefresh(self._admin)
        while True:
            try:
                return attempt(deadline)
            except KafkaException as failure:
                error = kafka_error(failure)
                pause_s = next(intervals)
                # The admin client reports connection errors only when it is polled.
                self._admin.poll(0)
                if not is_transient(error) or time.monotonic() + pause_s > deadline:
                    raise self.error(action, error, self._admin_connection) from None
                self._tell_outage(action, self._admin_connection, deadline)
            # A leader refuses an epoch that the client has from outdated metadata.
            refresh.refresh_if_due()
            self.wait(pause_s)

    def _tell_outage(self, action: str, connection: Connection, deadline: float) -> None:
        seconds = time.monotonic() - (deadline - self.timeout_ms / 1000)
        error = connection.last_error
        self._outage.log_wait(action, seconds, self._config.without_secrets(error.str()) if error else "")

    def _administrator(self, own: Mapping[str, object]) -> AdminClient:
        return self._made(lambda settings: AdminClient(settings, logger=self._logger), self._admin_connection, own)

    def _wait_for_all(
        self, action: str, reader: AdminClient, futures: Mapping[Key, Future[Any]], deadline: float
    ) -> None:
        """Wait until all parts of a request have responses, or the time is over."""
        refresh = MetadataRefresh(reader)
        while wait_for(futures.values(), min(CHECK_INTERVAL_S, max(deadline - time.monotonic(), 0))).not_done:
            # The admin client reports connection errors only when it is polled.
            reader.poll(0)
            self.check_usable()
            refresh.refresh_if_due()
            if self._admin_connection.refusal is not None:
                raise self.error(action, self._admin_connection.refusal, self._admin_connection)
            if time.monotonic() > deadline:
                return

    def _awaited(self, action: str, future: Future[T], deadline: float) -> T:
        refresh = MetadataRefresh(self._admin)
        while True:
            try:
                return future.result(CHECK_INTERVAL_S)
            except FutureTimeoutError:
                self._admin.poll(0)
                refresh.refresh_if_due()
                self.check_connection(action, self._admin_connection, deadline)

    def _made(self, make: Callable[[dict[str, Any]], T], connection: Connection, own: Mapping[str, object]) -> T:
        def failed(error: KafkaError) -> None:
            connection.failed(error)
            if self._options.on_error is not None:
                self._options.on_error(error)

        settings = {
            **_COMMON,
            **self._config.client_properties(),
            **self._options.properties,
            **own,
            **self._options.callbacks(),
            "error_cb": failed,
        }
        try:
            return make(settings)
        except KafkaException as failure:
            text = self._config.without_secrets(kafka_error(failure).str())
            # The client checks each value by itself, and then all of them together.
            kind = ContradictionError if text.startswith("Failed to create") else ConfigurationError
            raise kind(
                f"The client of {self.name} does not accept its configuration: {text}.",
                "Check the settings of section kafka.",
            ) from None


def kafka_error(failure: KafkaException) -> KafkaError:
    """Return the KafkaError of an exception."""
    error = failure.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
