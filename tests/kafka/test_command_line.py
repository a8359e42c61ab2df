"""The command line on a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.config.kafka import KafkaConfig
from tests.cli.conftest import CommandLine
from tests.cli.pictures.page import parsed
from tests.cli.test_metrics import shown
from tests.kafka.site import KafkaSite
from tests.support.kafka_broker import KafkaBroker
from tests.support.scraping import scraped
from tests.support.server_process import free_port


def test_topics(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli, topic = CommandLine(tmp_path), f"orders-{uuid4().hex[:8]}"
    kafka = ("--set", f"kafka.bootstrap.servers={broker.bootstrap_servers}")
    cli.out("topics", "create", "--topic", topic, "--partitions", "2", *kafka)
    cli.out("topics", "produce", "--topic", topic, *kafka, stdin="a\nb\nc\n")
    ((description,),) = [cli.json("topics", "describe", "--topic", topic, *kafka)]
    assert (description["topic"], description["partition_count"]) == (topic, 2)
    assert sorted(partition["end_offset"] for partition in description["partitions"]) == [1, 2]
    assert topic in cli.out("topics", "list", *kafka)


@pytest.fixture
def site(broker: KafkaBroker, tmp_path: Path) -> Iterator[KafkaSite]:
    """A running processor that shows its metrics."""
    kafka = KafkaConfig(bootstrap_servers=broker.bootstrap_servers)
    site = KafkaSite(tmp_path, metrics_port=free_port(), kafka=kafka)
    site.start()
    yield site
    site.close()


@pytest.fixture
def cli(site: KafkaSite, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line in a folder with the settings of that processor."""
    processor = site.settings.processor
    config = site.folder / "sharegroup.yaml"
    config.write_text(
        f"kafka:\n  bootstrap.servers: {site.kafka.bootstrap_servers}\n"
        f"processor:\n  state.table.path: {site.state_path}\n  checkpoint.path: {site.checkpoint_path}\n"
        f"  request.topic.name: {processor.request_topic_name}\n"
        f"  response.topic.name: {processor.response_topic_name}\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(site.folder)
    return CommandLine(site.folder)


@pytest.mark.slow
def test_a_group_from_its_configuration_to_its_metrics(site: KafkaSite, cli: CommandLine) -> None:
    topic, group = site.new_topic(), site.new_name("packers")
    cli.out("topics", "produce", "--topic", topic, stdin="".join(f"v{n}\n" for n in range(20)))
    alter = ("groups", "configure", "--group", group, "--alter")
    cli.out(*alter, "--add-config", "share.auto.offset.reset=earliest,share.delivery.count.limit=7")
    configured = cli.json("groups", "configure", "--group", group, "--describe")
    assert {entry["key"]: entry["value"] for entry in configured} == {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "7",
    }

    consumed = cli.out("consume", "--topic", topic, "--group", group, "--max-messages", "15")
    assert consumed == "".join(f"v{n}\n" for n in range(15))
    (described,) = cli.json("groups", "describe", "--group", group)
    assert (described["group_id"], described["members"]) == (group, [])
    (partition,) = described["partitions"]
    assert (partition["topic"], partition["start_offset"], partition["lag"]) == (topic, 15, 5)
    (listed,) = (entry for entry in cli.json("groups", "list") if entry["group_id"] == group)
    assert (listed["state"], listed["lag"]) == ("Empty", 5)
    assert f"{group}  share  share     Empty" in cli.out("groups", "list", columns=200)

    (figures,) = (entry for entry in cli.json("top") if entry["group_id"] == group)
    assert (figures["lag"], figures["member_count"]) == (5, 0)
    assert group in cli.out("top", "--once")

    written = cli.json("audit", "report", "--group", group, "--file", "report.html")
    assert (written["charted_partitions"], written["notes"]) == ([f"{topic}-0"], [])
    figures_of_page = json.loads(
        parsed((site.folder / "report.html").read_text(encoding="utf-8")).with_id("figures").text
    )
    last = {each["name"]: each["y"][-1] for figure in figures_of_page for each in figure["data"] if each.get("name")}
    assert (last["log end"], last["start offset (SPSO)"], last[f"{topic}-0"]) == (20, 15, 5)

    labels = (group, "0", topic)
    assert shown(cli)["sharegroup_lag"] == {labels: 5}
    exported = scraped(site.metrics_port)
    assert exported["sharegroup_lag"] == {labels: 5}
    assert exported["sharegroup_transitions_total"]["accept", group, topic] == 15
    assert exported["kafka_server_sharegroupmetrics_recordacknowledgements_total"]["Accept",] == 15
    site.until(
        lambda: scraped(site.metrics_port)["kafka_server_share_coordinator_metrics_event_queue_size"] == {(): 0},
        "every message is applied",
    )
