"""Clients of a Kafka that is not there: a port where nobody listens, and a broker that says nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import LogUnavailableError

pytestmark = pytest.mark.slow


@pytest.fixture(params=["refuses", "silent"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address that refuses connections, or accepts them and never responds."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        if request.param == "silent":
            bound.listen()
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("topics", [["cl-1"], re.compile("cl-.*")], ids=["names", "pattern"])
def test_a_poll_ends_without_records_at_its_timeout(address: str, topics: list[str] | re.Pattern[str]) -> None:
    with ShareConsumer({"group.id": "g", "bootstrap.servers": address}) as consumer:
        consumer.subscribe(topics)
        for timeout in (0, 0.1):
            assert consumer.poll(timeout).is_empty()
        assert consumer.commit_sync(0.1) == {}
        consumer.commit_async()
        consumer.unsubscribe()
        assert consumer.subscription() == []
        consumer.close(0.1)


def test_an_administrators_call_raises_at_its_timeout(address: str) -> None:
    with AdminClient({"bootstrap.servers": address}) as admin:
        for call in (
            lambda: admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"}, timeout=0.3),
            lambda: admin.list_groups(timeout=0.3),
            lambda: admin.list_share_group_offsets({"g": None}, timeout=0.3),
        ):
            with pytest.raises(LogUnavailableError, match="no response within 300 ms"):
                call()
