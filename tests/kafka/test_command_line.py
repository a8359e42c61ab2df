"""The command line on a cluster."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import CommandLine
from tests.support.kafka_broker import KafkaBroker


def test_topics(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli, topic = CommandLine(tmp_path), f"orders-{uuid4().hex[:8]}"
    kafka = ("--set", f"kafka.bootstrap.servers={broker.bootstrap_servers}")
    cli.out("topics", "create", "--topic", topic, "--partitions", "2", *kafka)
    cli.out("topics", "produce", "--topic", topic, *kafka, stdin="a\nb\nc\n")
    ((found,),) = [cli.json("topics", "describe", "--topic", topic, *kafka)]
    assert (found["topic"], found["partition_count"]) == (topic, 2)
    assert sorted(partition["end_offset"] for partition in found["partitions"]) == [1, 2]
    assert topic in cli.out("topics", "list", *kafka)
