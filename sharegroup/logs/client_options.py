"""ClientOptions: what an application adds to the clients of a Kafka log: keys of librdkafka, and callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

TokenCallback = Callable[[str], tuple[object, ...]]
"""oauth_cb(sasl.oauthbearer.config) → token, its end in seconds since the epoch, and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of all clients of a log; threads of the clients make the calls.

    Attributes:
        properties: keys of librdkafka and their values, with the keys of the cluster's configuration that they replace.
        logger: gets the lines of librdkafka; None for this package's.
        on_error: called with each error that a client reports.
        on_statistics: called with the statistics of a client, as JSON.
        on_throttle: called with each event of a broker that delays a client.
        oauth_cb: returns the token of a log-in by OAUTHBEARER. Another process cannot call it, so that none speaks for
            the members.
    """

    properties: Mapping[str, object] = field(default_factory=dict)
    logger: logging.Logger | None = None
    on_error: Callable[[KafkaError], object] | None = None
    on_statistics: Callable[[str], object] | None = None
    on_throttle: Callable[[object], object] | None = None
    oauth_cb: TokenCallback | None = None

    def callbacks(self) -> dict[str, object]:
        """Return the callbacks as a client takes them, without that for errors."""
        named = {"stats_cb": self.on_statistics, "throttle_cb": self.on_throttle, "oauth_cb": self.oauth_cb}
        return {name: callback for name, callback in named.items() if callback is not None}
