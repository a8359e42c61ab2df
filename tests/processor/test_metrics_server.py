"""The metrics port before and after a takeover."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ConfigurationError
from sharegroup.metrics.exposition import MetricsServer
from sharegroup.processor.followers.metrics_feed import server_after_takeover, server_before_takeover

pytestmark = pytest.mark.slow

ConfigOf = Callable[..., ProcessorConfig]
NOT_STOPPED = threading.Event()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def config(tmp_path: Path, port: int) -> ConfigOf:
    def make(table: str = "state", metrics_host: str = "127.0.0.1") -> ProcessorConfig:
        return ProcessorConfig(
            log_path=tmp_path / "log.db",
            state_table_path=str(tmp_path / table),
            checkpoint_path=str(tmp_path / "checkpoint"),
            metrics_host=metrics_host,
            metrics_port=port,
        )

    return make


@pytest.fixture
def older(config: ConfigOf) -> Iterator[MetricsServer]:
    server = server_before_takeover(config())
    assert server is not None
    yield server
    server.stop()


@pytest.fixture
def stranger(port: int) -> Iterator[None]:
    """A web server that is no processor."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>a page</html>")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_free_port_is_bound_before_the_takeover(older: MetricsServer, port: int) -> None:
    assert older.port == port


def test_a_processor_of_the_same_table_keeps_the_port_until_it_is_fenced(
    older: MetricsServer, config: ConfigOf, tmp_path: Path
) -> None:
    assert server_before_takeover(config()) is None
    # However its path is written.
    assert server_before_takeover(config("other/../state")) is None
    older.stop()
    server_after_takeover(config(), NOT_STOPPED).stop()


def test_the_port_is_bound_once_the_fenced_processor_gives_it_back(older: MetricsServer, config: ConfigOf) -> None:
    class Ending(threading.Event):
        """Ends the older processor during the wait."""

        def wait(self, timeout: float | None = None) -> bool:
            older.stop()
            return False

    server_after_takeover(config(), Ending()).stop()


def test_a_processor_of_another_table_is_refused(older: MetricsServer, config: ConfigOf) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.port \d+ of metrics\.host 127\.0\.0\.1 cannot be"):
        server_before_takeover(config("other"))


@pytest.mark.usefixtures("stranger")
def test_a_server_that_is_no_processor_is_refused(config: ConfigOf) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.port \d+"):
        server_before_takeover(config())


def test_a_listener_that_does_not_speak_http_is_refused(config: ConfigOf, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:

        def respond() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"220 mail\r\n\r\n")

        thread = threading.Thread(target=respond)
        thread.start()
        with pytest.raises(ConfigurationError, match=r"metrics\.port \d+"):
            server_before_takeover(config())
        thread.join()


def test_a_host_that_is_no_address_is_refused(config: ConfigOf) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.host nowhere\.invalid"):
        server_before_takeover(config(metrics_host="nowhere.invalid"))


def test_a_stop_ends_the_wait_for_the_port(older: MetricsServer, config: ConfigOf) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ConfigurationError, match=r"metrics\.port \d+"):
        server_after_takeover(config(), stop)
