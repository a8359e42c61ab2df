"""Where a client's log is, and how it connects: keys of librdkafka and callbacks that are passed on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharegroup.client.client_events import ClientEvents, take_callbacks
from sharegroup.client.settings import BOOTSTRAP_SERVERS, CHANNEL_TOPIC_KEYS, LOG_KEYS, log_address
from sharegroup.config.connections import ALIASES, OAUTHBEARER, PASSED
from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log

_CLIENT_ID = "client.id"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The parts of a client's configuration that its connections need.

    Attributes:
        log: address of its log.
        properties: keys for the clients of librdkafka.
        callbacks: the application's callbacks and its logger, by key.
    """

    log: str | KafkaConfig
    properties: Mapping[str, object]
    callbacks: Mapping[str, Any]

    def open(self, events: ClientEvents) -> Log:
        """Open the log.

        Args:
            events: gets what the clients of the log report.

        Raises:
            ConfigurationError: a value is not acceptable, or values contradict each other.
            LogError: the log cannot be opened.
        """
        return open_log(self.log, options=events.options(self.properties))


@dataclass(frozen=True, slots=True)
class ClientValues:
    """A client's configuration by the names that its keys have here, without those of None; apart from callbacks.

    Attributes:
        by_key: key → value: texts, as librdkafka takes them.
        callbacks: the application's callbacks and its logger, by key.
    """

    by_key: dict[str, object]
    callbacks: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[Any, object]) -> ClientValues:
        """Parse a configuration.

        Raises:
            TypeError, ValueError, AttributeError: a callback cannot be called, as confluent-kafka raises it.
        """
        entries = {str(key): value for key, value in config.items() if value is not None}
        callbacks = take_callbacks(entries)
        return cls({ALIASES.get(key, key): _text(value) for key, value in entries.items()}, callbacks)

    def own(self) -> dict[str, object]:
        """Return the values of the client itself: all but those of its connections."""
        others = {*self._passed(), *LOG_KEYS, *CHANNEL_TOPIC_KEYS}
        return {key: value for key, value in self.by_key.items() if key not in others}

    def connection(self) -> ConnectionSettings:
        """Return those of its connections; a key that has no effect on an embedded log is logged as a warning.

        Raises:
            ConfigurationError: they contain no log or two, or a value is not acceptable.
        """
        passed = self._passed()
        properties = {key: value for key, value in self.by_key.items() if key in passed}
        log = log_address({key: value for key, value in self.by_key.items() if key not in passed})
        if not isinstance(log, KafkaConfig) and (unused := [*properties, *self.callbacks]):
            _logger.warning("%s: no effect, since the embedded log has no connections.", ", ".join(unused))
        elif client_id := self.by_key.get(_CLIENT_ID):
            properties[_CLIENT_ID] = client_id
        return ConnectionSettings(log=log, properties=properties, callbacks=self.callbacks)

    def _passed(self) -> frozenset[str]:
        """Return the keys that go to librdkafka as they are.

        A log-in by OAUTHBEARER is librdkafka's alone: `KafkaConfig` is for all programs, and has none.
        """
        if self.by_key.get("sasl.mechanism") == OAUTHBEARER and self.by_key.get(BOOTSTRAP_SERVERS):
            return PASSED | {"sasl.mechanism", "security.protocol"}
        return PASSED


def _text(value: object) -> object:
    """Return a value as librdkafka takes it: numbers as texts."""
    if not isinstance(value, int):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
