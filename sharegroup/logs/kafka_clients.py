"""Clients of one Kafka cluster: how they are made, how long they try, and how their failures are told."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import ConfigurationError, LogError, ShareGroupError
from sharegroup.logs.kafka_errors import AUTHENTICATION, TRANSIENT, translated
from sharegroup.logs.kafka_outage import Outage

T = TypeVar("T")
Key = TypeVar("Key")

LOOK_S = 0.1
"""After this time a blocked operation looks whether the log was closed or refused."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_LIST_TIMEOUT_S = 5.0
_REFRESH_TIMEOUT_S = 0.5
"""A look at the metadata while a request waits, and the time between two."""

_COMMON = {
    # A topic that was deleted must not come back with a broker's defaults: it is another one.
    "allow.auto.create.topics": False,
    # A broker that comes back is found within a second; librdkafka's own limit is 10 s.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 50,
    "log_level": 4,
}

_logger = logging.getLogger(__name__)


class Connection:
    """What the clients of one operation have heard of their connections since it began."""

    def __init__(self) -> None:
        self.last_error: KafkaError | None = None
        self.refusal: KafkaError | None = None

    def failed(self, error: KafkaError) -> None:
        """Take note of an error that no call returns."""
        # A producer that may not write fails for good.
        if error.code() in AUTHENTICATION or error.fatal():
            self.refusal = error
        # That all brokers are down follows from an error that says why.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.last_error is None:
            self.last_error = error

    def reset(self) -> None:
        """Forget what was heard."""
        self.last_error = self.refusal = None


class KafkaClients:
    """Makes clients, and waits for their answers; any thread may use it.

    Args:
        config: the cluster, and how to log in.
        timeout_ms: how long an operation goes on trying while Kafka cannot be reached.

    Raises:
        ConfigurationError: no bootstrap.servers, or the client does not accept a setting.
    """

    def __init__(self, config: KafkaConfig, timeout_ms: int) -> None:
        if not config.bootstrap_servers:
            raise ConfigurationError("bootstrap.servers is empty.", "Name a broker of the cluster, host:port.")
        self.closed = threading.Event()
        self.name = f"Kafka at {config.bootstrap_servers}"
        self._config = config
        self.timeout_ms = timeout_ms
        self._outage = Outage(self.name)
        self._process_id = os.getpid()
        self._admin_connection = Connection()
        self._next_refresh_s = 0.0
        self._admin: AdminClient = self._made(
            lambda settings: AdminClient(settings, logger=_logger), self._admin_connection, {}
        )

    def consumer(self, connection: Connection, settings: Mapping[str, object]) -> Consumer:
        """A new consumer that belongs to no group."""
        own = {"group.id": "sharegroup-none", "enable.auto.commit": False, **settings}
        return self._made(lambda merged: Consumer(merged, logger=_logger), connection, own)

    def producer(self, connection: Connection, settings: Mapping[str, object]) -> Producer:
        """A new producer."""
        return self._made(lambda merged: Producer(merged, logger=_logger), connection, settings)

    def deadline(self) -> float:
        """When an operation that begins now gives up, on the monotonic clock."""
        self.check_usable()
        return time.monotonic() + self.timeout_ms / 1000

    def check_usable(self) -> None:
        """Raise `LogError` after `close`, and in a process that was forked."""
        if os.getpid() != self._process_id:
            raise LogError(
                f"{self.name} was opened by process {self._process_id}, which this one was forked from.",
                "Close it before the fork and open it after, or start processes with the spawn method.",
            )
        if self.closed.is_set():
            raise LogError(f"{self.name} is closed.", "Open it again.")

    def ask(self, action: str, start: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> list[Any]:
        """What an administrative request answers, in the order of its parts; transient failures are tried again.

        Args:
            action: what is asked, after "cannot", such as "describe topic orders".
            start: sends the request, and may be called again.

        Raises:
            ShareGroupError: the error that the request ended with, after translation.
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
        """Return the answers to the parts of an administrative request, and the errors of the other parts.

        Args:
            action: the request, after "cannot", such as "look at topics".
            keys: the parts.
            start: sends a request for some parts that may take so many seconds; may be called again.
            timeout_ms: how long to go on trying; None for as long as any operation.

        Raises:
            LogError: the log is closed, or it refuses the client.
        """
        deadline = self.deadline() if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        answers: dict[Key, Any] = {}
        errors: dict[Key, KafkaError] = {}
        pause_s = _FIRST_PAUSE_S
        waiting = list(keys)
        self._admin_connection.reset()
        while waiting:
            futures = start(self._admin, waiting, max(deadline - time.monotonic(), LOOK_S))
            self._wait_for_all(action, futures, deadline)
            for key, future in futures.items():
                failure = future.exception() if future.done() else KafkaException(KafkaError(KafkaError._TIMED_OUT))
                if failure is None:
                    answers[key] = future.result()
                elif isinstance(failure, KafkaException):
                    errors[key] = kafka_error(failure)
                else:
                    raise failure
            waiting = [key for key in waiting if key not in answers and errors[key].code() in TRANSIENT]
            if time.monotonic() + pause_s > deadline:
                break
            if waiting and self.closed.wait(pause_s):
                self.check_usable()
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        failed = {key: error for key, error in errors.items() if key not in answers}
        return answers, {key: self.error(action, error, self._admin_connection) for key, error in failed.items()}

    def topic_names(self) -> list[str]:
        """The names of all topics, Kafka's own included."""

        def listed(deadline: float) -> list[str]:
            remaining_s = max(deadline - time.monotonic(), LOOK_S)
            return list(self._admin.list_topics(timeout=min(remaining_s, _LIST_TIMEOUT_S)).topics)

        return self._retried("list the topics", listed)

    def check_connection(self, action: str, connection: Connection, deadline: float) -> None:
        """Raise when a blocked operation cannot succeed any more: closed, refused, or its time is over."""
        self.check_usable()
        if connection.refusal is not None:
            raise self.error(action, connection.refusal, connection)
        if time.monotonic() > deadline:
            raise self.error(action, KafkaError(KafkaError._TIMED_OUT), connection)
        self._tell_outage(action, connection, deadline)

    def error(self, action: str, error: KafkaError, connection: Connection) -> ShareGroupError:
        """This package's error for one of Kafka's; an operation that ran out of time says what was in its way."""
        told = error
        if error.code() in TRANSIENT and connection.last_error is not None:
            told = connection.last_error
        text = self._config.without_secrets(told.str())
        if told is not error:
            text = f"no answer within {self.timeout_ms} ms; {text}"
        return translated(KafkaError(told.code(), text), f"{self.name} cannot {action}")

    def _retried(self, action: str, attempt: Callable[[float], T]) -> T:
        deadline = self.deadline()
        pause_s = _FIRST_PAUSE_S
        self._admin_connection.reset()
        while True:
            try:
                return attempt(deadline)
            except KafkaException as failure:
                error = kafka_error(failure)
                # The admin client tells of its connections only when it is polled.
                self._admin.poll(0)
                if error.code() not in TRANSIENT or time.monotonic() + pause_s > deadline:
                    raise self.error(action, error, self._admin_connection) from None
                self._tell_outage(action, self._admin_connection, deadline)
            if self.closed.wait(pause_s):
                self.check_usable()
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _tell_outage(self, action: str, connection: Connection, deadline: float) -> None:
        seconds = time.monotonic() - (deadline - self.timeout_ms / 1000)
        error = connection.last_error
        self._outage.lasts(action, seconds, self._config.without_secrets(error.str()) if error else "")

    def _wait_for_all(self, action: str, futures: Mapping[Key, Future[Any]], deadline: float) -> None:
        """Wait until all parts of a request are answered, or the time is over."""
        began_s = time.monotonic()
        while wait_for(futures.values(), min(LOOK_S, max(deadline - time.monotonic(), 0))).not_done:
            # The admin client tells of its connections only when it is polled.
            self._admin.poll(0)
            self.check_usable()
            self._refresh(began_s)
            if self._admin_connection.refusal is not None:
                raise self.error(action, self._admin_connection.refusal, self._admin_connection)
            if time.monotonic() > deadline:
                return

    def _refresh(self, waiting_since_s: float) -> None:
        """Look at the metadata when a request waits for long.

        A request that goes to a controller waits for the broker that was it when the client last looked: for ever, if
        that one died. The client looks by itself every five minutes.
        """
        now_s = time.monotonic()
        if now_s < max(waiting_since_s + _REFRESH_TIMEOUT_S, self._next_refresh_s):
            return
        with suppress(KafkaException):
            self._admin.list_topics(timeout=_REFRESH_TIMEOUT_S)
        self._next_refresh_s = time.monotonic() + _REFRESH_TIMEOUT_S

    def _awaited(self, action: str, future: Future[T], deadline: float) -> T:
        began_s = time.monotonic()
        while True:
            try:
                return future.result(LOOK_S)
            except FutureTimeoutError:
                self._admin.poll(0)
                self._refresh(began_s)
                self.check_connection(action, self._admin_connection, deadline)

    def _made(self, make: Callable[[dict[str, Any]], T], connection: Connection, own: Mapping[str, object]) -> T:
        settings = {**_COMMON, **own, **self._config.client_properties(), "error_cb": connection.failed}
        try:
            return make(settings)
        except KafkaException as failure:
            text = self._config.without_secrets(kafka_error(failure).str())
            raise ConfigurationError(
                f"The client of {self.name} does not accept its configuration: {text}.",
                "Check the settings of section kafka.",
            ) from None


def kafka_error(failure: KafkaException) -> KafkaError:
    """The error in an exception."""
    error = failure.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
