"""The metrics by HTTP."""

from __future__ import annotations

import urllib.request

import pytest

from sharegroup.errors import ConfigurationError
from sharegroup.metrics.catalogue import WRITE_TOTAL
from sharegroup.metrics.exposition import MetricsServer
from sharegroup.metrics.registry import Increment, MetricsRegistry
from tests.support.eventually import DEADLINE_S


def test_the_server_shows_the_registry_until_it_is_stopped() -> None:
    registry = MetricsRegistry(max_series=10)
    server = MetricsServer(registry, "127.0.0.1", 0)
    registry.add([Increment(WRITE_TOTAL, (), 7)])
    url = f"http://127.0.0.1:{server.port}/metrics"
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        assert "kafka_server_share_coordinator_metrics_write_total 7.0" in response.read().decode()
    server.stop()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=DEADLINE_S)


def test_a_used_port_is_an_error_with_its_number() -> None:
    registry = MetricsRegistry(max_series=10)
    server = MetricsServer(registry, "127.0.0.1", 0)
    with pytest.raises(ConfigurationError, match=rf"metrics\.port {server.port} of metrics\.host 127\.0\.0\.1"):
        MetricsServer(registry, "127.0.0.1", server.port)
    server.stop()


def test_an_invalid_host_is_an_error_with_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.host nowhere\.invalid"):
        MetricsServer(MetricsRegistry(max_series=10), "nowhere.invalid", 0)
