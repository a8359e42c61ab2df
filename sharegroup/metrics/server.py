"""The metrics by HTTP, for Prometheus to scrape."""

from __future__ import annotations

import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

from sharegroup.errors import ConfigurationError
from sharegroup.metrics.exposition import RegistryCollector
from sharegroup.metrics.registry import MetricsRegistry


class _SilentHandler(WSGIRequestHandler):
    """A handler that keeps the program's log to the program."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class MetricsServer:
    """Answers `GET /metrics` from a thread, from its making until `stop`.

    Args:
        registry: what it shows.
        host: `metrics.host`.
        port: `metrics.port`; 0 takes a free one.

    Raises:
        ConfigurationError: nobody can listen there.
    """

    def __init__(self, registry: MetricsRegistry, host: str, port: int) -> None:
        application = make_wsgi_app(RegistryCollector(registry))
        try:
            self._server = make_server(host, port, application, ThreadingWSGIServer, _SilentHandler)
        except OSError as error:
            raise ConfigurationError(
                f"metrics.port {port} of metrics.host {host} cannot be listened on: {error.strerror}.",
                "Set metrics.port to a free port, or to 0 for none, and metrics.host to an address of this machine.",
            ) from error
        threading.Thread(target=self._server.serve_forever, name="sharegroup-metrics", daemon=True).start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    def stop(self) -> None:
        """Give the port back."""
        self._server.shutdown()
        self._server.server_close()
