"""The metrics as Prometheus' text, as a document for programs, and by HTTP: a processor's, and a Spark worker's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, start_http_server
from prometheus_client.exposition import generate_latest

from sharegroup.errors import ConfigurationError
from sharegroup.metrics.registry import MetricsRegistry

CALLS = "sharegroup_worker_handler_calls_total"
FAILURES = "sharegroup_worker_handler_failures_total"
DELAYED = "sharegroup_worker_delayed_records_total"
CANCELLED = "sharegroup_worker_handlers_cancelled_total"

WORKER_COUNTERS: Mapping[str, str] = {
    CALLS: "Calls of the handler; a batch costs one, or up to 64 when the handler fails.",
    FAILURES: "Batches for which the handler failed at least once.",
    DELAYED: "Records that were returned with a delay, because the handler accepted none after its failure.",
    CANCELLED: "Handlers that were cancelled after `worker.renew.max.ms`; their records were returned.",
}
"""Name → meaning; each has the label `group`."""


def prometheus_text(registry: MetricsRegistry) -> str:
    """Return all metrics in Prometheus' text format."""
    return generate_latest(registry).decode()


def metrics_document(registry: MetricsRegistry) -> list[dict[str, Any]]:
    """Return all metrics as lists and objects for JSON; the value of a series without one is None."""
    return [
        {
            "name": metric.name,
            "kafka_name": metric.kafka_name,
            "kind": metric.kind.value,
            "samples": [
                {
                    "name": sample.name,
                    "labels": sample.labels,
                    "value": None if math.isnan(sample.value) else sample.value,
                }
                for sample in family.samples
            ],
        }
        for metric, family in registry.families()
    ]


class MetricsServer:
    """A server of `GET /metrics` on a thread of its own, until `stop`.

    Args:
        registry: the metrics; they may be added later.
        host: `metrics.host`.
        port: `metrics.port`; 0 takes a free one.

    Raises:
        ConfigurationError: the port cannot be listened on.
    """

    def __init__(self, registry: MetricsRegistry, host: str, port: int) -> None:
        self.registry = registry
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigurationError(
                f"metrics.port {port} of metrics.host {host} cannot be listened on: {error.strerror}.",
                "Set metrics.port to a free port, or to 0 for none, and metrics.host to an address of this machine.",
            ) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    def stop(self) -> None:
        """Free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class WorkerMetrics:
    """Counters of one worker; any thread may use them."""

    def __init__(self, group_id: str) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, text, ["group"], registry=self.registry).labels(group_id)
            for name, text in WORKER_COUNTERS.items()
        }

    def count(self, name: str, amount: int = 1) -> None:
        """Increase one of WORKER_COUNTERS."""
        self._counters[name].inc(amount)

    def serve(self, host: str, port: int) -> None:
        """Serve `GET /metrics` from a thread of its own until the process ends.

        Raises:
            ConfigurationError: nobody can listen there.
        """
        try:
            start_http_server(port, host, self.registry)
        except OSError as error:
            raise ConfigurationError(
                f"worker.metrics.port {port} of worker.metrics.host {host} cannot be listened on: {error.strerror}.",
                "Set worker.metrics.port to a free port, or to 0 for none.",
            ) from error
