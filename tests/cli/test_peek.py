"""`sharegroup topics peek`: what a group has not finished, without a delivery."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.cli.conftest import CommandLine
from tests.support.eventually import DEADLINE_S, eventually

PEEK = ("topics", "peek", "--topic", "orders", "--group", "packers")


@pytest.fixture
def member(cli: CommandLine, log: LocalLog, admin: AdminClient) -> Iterator[ShareConsumer]:
    """Holds 5..11 of twelve records; 0..2 are accepted, 3 and 4 released with a delay of an hour."""
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(b"k%d" % n, b"v%d" % n) for n in range(10)])
    log.append("orders", 0, [NewRecord(None, bytes([0xFF, 0x61])), NewRecord(None, None)])
    settings = {"share.auto.offset.reset": "earliest", "share.redelivery.backoff.ms": "3600000"}
    admin.alter_group_config("packers", {**settings, "share.redelivery.backoff.max.ms": "3600000"})
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": "packers",
        "client.id": "anna",
        "max.poll.records": 12,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as consumer:
        consumer.subscribe(["orders"])
        messages = list(consumer.poll(DEADLINE_S))
        assert len(messages) == 12
        for message in messages[:3]:
            consumer.acknowledge(message)
        for message in messages[3:5]:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
        consumer.commit_sync()
        eventually(lambda: len(cli.json(*PEEK, "--max-messages", "99")) == 9, "it shows what was committed")
        yield consumer


def offsets(cli: CommandLine, *flags: str) -> list[int]:
    return [entry["offset"] for entry in cli.json(*PEEK, "--max-messages", "99", *flags)]


@pytest.mark.parametrize("source", [(), ("--state-table", "nowhere")], ids=["table", "processor"])
def test_states_and_filters(cli: CommandLine, member: ShareConsumer, source: tuple[str, ...]) -> None:
    assert offsets(cli, "--state", "locked", *source) == [*range(5, 12)]
    assert offsets(cli, "--state", "delayed", *source) == [3, 4]
    assert offsets(cli, "--state", "available", *source) == []
    assert offsets(cli, "--state", "delayed", "--state", "locked", "--from-offset", "4", *source) == [*range(4, 12)]
    assert [entry["offset"] for entry in cli.json(*PEEK, "--max-messages", "2", *source)] == [3, 4]
    held = cli.json(*PEEK, "--state", "locked", *source)[0]
    assert (held["client_id"], held["delivery_count"], held["key"], held["value"]) == ("anna", 1, "k5", "v5")
    assert held["until_ms"] > held["timestamp_ms"]


def test_undelivered_records_are_available_and_stay_so(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    log.create_topic("orders", 2)
    admin.alter_share_group_offsets("packers", {("orders", 0): 1, ("orders", 1): 0})
    log.append("orders", 0, [NewRecord(None, b"v%d" % n) for n in range(3)])
    for _ in range(2):
        lines = [line.split() for line in cli.out(*PEEK).splitlines()]
        assert lines == [
            ["PARTITION", "OFFSET", "STATE", "DELIVERY", "CLIENT-ID", "UNTIL", "KEY", "VALUE"],
            ["0", "1", "available", "0", "-", "-", "-", "v1"],
            ["0", "2", "available", "0", "-", "-", "-", "v2"],
        ]
    assert "has no unfinished records" in cli.out(*PEEK, "--partition", "1")
    assert "has no start offset in orders-7" in cli.error(*PEEK, "--partition", "7")
    assert "Group nobody not found" in cli.error("topics", "peek", "--topic", "orders", "--group", "nobody")


def test_bytes_that_are_no_text(cli: CommandLine, member: ShareConsumer) -> None:
    assert "\\xffa" in cli.out(*PEEK, "--from-offset", "10")
    document = json.loads(cli.out(*PEEK, "--from-offset", "10", "--output", "json"))
    assert [entry["value"] for entry in document] == [{"base64": "/2E="}, None]
