"""The metrics port across a takeover.

A start that is refused leaves no trace, so the port is bound before older processors are fenced. On one machine the
port may belong to the very processor that the takeover ends: then it is bound after the takeover.
"""

from __future__ import annotations

import http.client
import os
import threading
import time

from prometheus_client.parser import text_string_to_metric_families

from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import ConfigurationError
from sharegroup.metrics.catalogue import PROCESSOR_INFO
from sharegroup.metrics.registry import Gauge, MetricsRegistry
from sharegroup.metrics.server import MetricsServer

_ANSWER_TIMEOUT_S = 5.0
"""Longer than a processor takes whose log does not answer."""
_RELEASE_TIMEOUT_S = 10.0
_RETRY_INTERVAL_S = 0.1


def server_before_takeover(config: ProcessorConfig) -> MetricsServer | None:
    """Return a server at `metrics.port` that shows only its state table; None if a processor of that table is there.

    Raises:
        ConfigurationError: somebody else listens at the port, or nobody can.
    """
    try:
        return _server(config)
    except ConfigurationError:
        if _served_table(config.metrics_host, config.metrics_port) != _state_table(config):
            raise
        return None


def server_after_takeover(config: ProcessorConfig, stop: threading.Event) -> MetricsServer:
    """Return the server as soon as the processor that was fenced has given its port back.

    Args:
        config: host and port.
        stop: ends the wait.

    Raises:
        ConfigurationError: the port is in use still, after 10 s or when `stop` is set.
    """
    give_up_at_s = time.monotonic() + _RELEASE_TIMEOUT_S
    while True:
        try:
            return _server(config)
        except ConfigurationError:
            if time.monotonic() >= give_up_at_s or stop.wait(_RETRY_INTERVAL_S):
                raise


def _server(config: ProcessorConfig) -> MetricsServer:
    registry = MetricsRegistry(config.metrics_max_series)
    info = Gauge(PROCESSOR_INFO, (_state_table(config),), 1)
    registry.add_gauges(lambda: [info])
    return MetricsServer(registry, config.metrics_host, config.metrics_port)


def _state_table(config: ProcessorConfig) -> str:
    """Return the state table's address, the same however its path is written."""
    path = config.state_table_path
    return path if "://" in path else os.path.realpath(path)


def _served_table(host: str, port: int) -> str | None:
    """Return the state table of the processor that listens at a port; None when no processor answers there."""
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return next((sample.labels.get("state_table") for sample in samples if sample.name == PROCESSOR_INFO.name), None)
