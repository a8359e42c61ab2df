"""Opening of the log at an address."""

from __future__ import annotations

import re

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import ConfigurationError
from sharegroup.logs.client_options import ClientOptions
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL_PREFIX = "local://"
_KAFKA_PREFIX = "kafka://"


KAFKA_TIMEOUT_MS = 60_000
"""Time for which an operation retries while Kafka cannot be reached: `default.api.timeout.ms` of Kafka's clients."""


def open_log(
    address: str | KafkaConfig,
    must_exist: bool = False,
    kafka_timeout_ms: int = KAFKA_TIMEOUT_MS,
    options: ClientOptions | None = None,
) -> Log:
    """Open the log at an address.

    Args:
        address: a path, or `local:///absolute/path`, is a local log; `kafka://host:port`, with more brokers after
            commas, is Kafka without TLS and without a log-in; a configuration is Kafka.
        must_exist: True if a missing local log is an error; otherwise it is created.
        kafka_timeout_ms: how long an operation retries while Kafka cannot be reached.
        options: what the application adds to the clients of Kafka.

    Raises:
        ConfigurationError: the kind of address is not supported.
        LogError: there is no local log at that path, and `must_exist` is true.
        LogUnavailableError, LogCorruptedError, UnsupportedFormatVersionError: as `LocalLog`.
    """
    if isinstance(address, KafkaConfig):
        return _open_kafka(address, kafka_timeout_ms, options)
    if address.startswith(_KAFKA_PREFIX):
        config = KafkaConfig(bootstrap_servers=address.removeprefix(_KAFKA_PREFIX))
        return _open_kafka(config, kafka_timeout_ms, options)
    path = address.removeprefix(_LOCAL_PREFIX)
    is_local_url = path != address
    if (is_local_url and not path.startswith("/")) or not path or (not is_local_url and _SCHEME.match(path)):
        raise ConfigurationError(
            f"The log address {address!r} is of no supported kind.",
            "Give a path such as ./events.log, local:///absolute/path, or kafka://host:port.",
        )
    return LocalLog(path, must_exist=must_exist)


def _open_kafka(config: KafkaConfig, timeout_ms: int, options: ClientOptions | None) -> Log:
    # Imported here because programs on a local log, such as the command line, start faster without Kafka's client.
    from sharegroup.logs.kafka_log import KafkaLog

    return KafkaLog(config, timeout_ms=timeout_ms, options=options)
