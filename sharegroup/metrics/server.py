"""The metrics by HTTP, for Prometheus to scrape."""

from __future__ import annotations

from prometheus_client import start_http_server

from sharegroup.errors import ConfigurationError
from sharegroup.metrics.exposition import RegistryCollector
from sharegroup.metrics.registry import MetricsRegistry


class MetricsServer:
    """Answers `GET /metrics` from a thread, from its making until `stop`.

    Args:
        registry: what it shows; it may be filled later.
        host: `metrics.host`.
        port: `metrics.port`; 0 takes a free one.

    Raises:
        ConfigurationError: nobody can listen there.
    """

    def __init__(self, registry: MetricsRegistry, host: str, port: int) -> None:
        self.registry = registry
        try:
            self._server, self._thread = start_http_server(port, host, RegistryCollector(registry))
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
        """Give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
