"""docs/migration.md, command by command: groups move from a broker and to a broker, and no record is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.config.kafka import KafkaConfig
from sharegroup.state.reader import StateTableReader
from tests.cli.conftest import CommandLine
from tests.kafka.side_by_side.broker_side import BrokerSide
from tests.kafka.site import KafkaSite
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.kafka_broker import ROOT, KafkaBroker

pytestmark = pytest.mark.long("groups of a broker are drained, imported and exported for long")

DOCUMENT = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
ACCEPT, RELEASE, REJECT = 1, 2, 3
TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-share-groups.sh": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
}
Deliveries = dict[tuple[int, int], int]
"""(partition, offset) → delivery count."""


def commands(way: str, marker: str = "migration") -> list[str]:
    blocks = re.findall(rf"<!-- {marker}: {way} -->\n```\n(.*?)```", DOCUMENT, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


class Reader:
    """Somebody who follows the document, in a folder with the configuration of a processor and a Kafka home."""

    def __init__(self, site: KafkaSite, broker: KafkaBroker) -> None:
        self.site = site
        self.topic = site.new_topic(2, 60)
        self.group = site.new_name("orders")
        self._server = broker.bootstrap_servers
        processor = site.settings.processor
        (site.folder / "sharegroup.yaml").write_text(
            f"kafka:\n  bootstrap.servers: {self._server}\n"
            f"processor:\n  state.table.path: {site.state_path}\n  checkpoint.path: {site.checkpoint_path}\n"
            f"  request.topic.name: {processor.request_topic_name}\n"
            f"  response.topic.name: {processor.response_topic_name}\n",
            encoding="utf-8",
        )
        tools = site.folder / "kafka" / "bin"
        tools.mkdir(parents=True)
        (site.folder / "kafka" / "libs").symlink_to(ROOT / "build" / "jars" / f"broker-{broker.version}")
        for name, main_class in TOOLS.items():
            (tools / name).write_text(f'#!/bin/sh\nexec java -cp "$KAFKA_HOME/libs/*" {main_class} "$@"\n')
            (tools / name).chmod(0o755)
        (tools / "sharegroup").write_text(
            f"#!{sys.executable}\nfrom sharegroup.programs.main import main\n\nmain()\n", encoding="utf-8"
        )
        (tools / "sharegroup").chmod(0o755)
        self.environment = {
            **os.environ,
            "KAFKA_HOME": str(site.folder / "kafka"),
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "JAVA_TOOL_OPTIONS": "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def adapted(self, command: str) -> str:
        """A command of the document, for this broker and this group."""
        named = re.sub(r"\borders\b(?!-)", self.group, command)
        return named.replace("localhost:9092", self._server)

    def run(self, command: str) -> str:
        """The output of a command of the document, which must succeed."""
        ran = self._ran(command)
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def refused(self, command: str) -> str:
        """The error of a command that must fail."""
        ran = self._ran(command)
        assert ran.returncode == 1, f"{command}\n{ran.stdout}\n{ran.stderr}"
        return ran.stderr

    def _ran(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", self.adapted(command)],
            cwd=self.site.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def of_kafka(self) -> confluent_kafka.ShareConsumer:
        """Kafka's own share consumer."""
        consumer = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": self._server,
                "group.id": self.group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 10,
                "log_level": 3,
            }
        )
        consumer.subscribe([self.topic])
        return consumer

    def of_here(self) -> ShareConsumer:
        return self.site.consumer(
            self.group, self.topic, share_acknowledgement_mode="explicit", max_poll_records=10, client_id="here"
        )


@pytest.fixture
def reader(broker: KafkaBroker, tmp_path: Path) -> Iterator[Reader]:
    site = KafkaSite(tmp_path, kafka=KafkaConfig(bootstrap_servers=broker.bootstrap_servers))
    with site.running():
        yield Reader(site, broker)
    assert verify(site.rows(), site.settings.broker).findings == []
    site.close()


def kind_of(offset: int) -> int:
    """Of five records the first is released each time, the second rejected, and the others accepted."""
    return {0: RELEASE, 1: REJECT}.get(offset % 5, ACCEPT)


def poll(consumer: confluent_kafka.ShareConsumer | ShareConsumer) -> Deliveries:
    deliveries: Deliveries = {}
    for message in consumer.poll(2):
        assert message.error() is None, message.error()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        deliveries[partition, offset] = message.delivery_count() or 0
    return deliveries


def acknowledge(
    consumer: confluent_kafka.ShareConsumer | ShareConsumer, topic: str, key: tuple[int, int], kind: int
) -> None:
    if isinstance(consumer, ShareConsumer):
        consumer.acknowledge_offset(topic, *key, AcknowledgeType(kind))
    else:
        consumer.acknowledge_offset(topic, *key, confluent_kafka.AcknowledgeType(kind))


def work(
    consumer: confluent_kafka.ShareConsumer | ShareConsumer, topic: str, count: int, releases: bool = True
) -> tuple[Deliveries, Deliveries]:
    """Let a member finish so many records; return what it finished and what it released, with delivery counts."""
    finished: Deliveries = {}
    released: Deliveries = {}

    def has_finished() -> bool:
        for key, delivery_count in poll(consumer).items():
            kind = kind_of(key[1]) if releases or kind_of(key[1]) != RELEASE else ACCEPT
            acknowledge(consumer, topic, key, kind)
            (released if kind == RELEASE else finished)[key] = delivery_count
        consumer.commit_sync(DEADLINE_S)
        return len(finished) >= count

    eventually(has_finished, f"{count} records are finished")
    return finished, {key: c for key, c in released.items() if key not in finished}


def everything(reader: Reader) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in (0, 1) for offset in range(60)}


@pytest.mark.slow
def test_a_group_of_a_broker_is_audited_and_continues_here(reader: Reader) -> None:
    dry_run, execute, describe, delete = commands("from-kafka")
    BrokerSide(reader.site.kafka.bootstrap_servers, reader.site.log).configure(  # type: ignore[arg-type]
        reader.group, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
    )
    consumer = reader.of_kafka()
    finished, released = work(consumer, reader.topic, 40)
    assert "has 1 member " in reader.refused(dry_run)
    consumer.close()
    for command in commands("audit"):
        out = reader.run(f"{command} --output json")
    (group,) = json.loads(out)["groups"]
    accepted = {key for key in finished if kind_of(key[1]) == ACCEPT}
    assert sum(p["accepted_count"] for p in group["partitions"]) == len(accepted)
    table = StateTableReader(str(reader.site.folder / "history"))
    assert verify(table.rows(), reader.site.settings.broker).findings == []

    shown = json.loads(reader.run(f"{dry_run} --output json"))
    assert shown["config"] == {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
    assert not reader.site.rows(reader.group)
    assert re.search(r"share.delivery.count.limit +10 *$", reader.run(execute), re.MULTILINE)
    assert reader.site.folded(reader.group).metadata.config_overrides == shown["config"]
    reader.run(describe)
    with reader.of_here() as own:
        here, _ = work(own, reader.topic, 120 - len(finished), releases=False)
    assert finished.keys() | here.keys() == everything(reader)
    assert not finished.keys() & here.keys()
    assert {key: here[key] - 1 for key in released} == released
    reader.run(delete)


@pytest.mark.slow
def test_a_group_is_drained_and_continues_on_a_broker(reader: Reader) -> None:
    dry_run, drain, *after = commands("to-kafka")
    reader.site.admin.alter_group_config(
        reader.group, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
    )
    configure, *others = (reader.adapted(command) for command in commands("to-kafka", "printed"))
    with reader.of_here() as own:
        finished, released = work(own, reader.topic, 40)
        assert released
        planned = json.loads(reader.run(f"{dry_run} --output json"))
        assert sum(partition["redelivered_count"] for partition in planned["partitions"]) > 0
        draining = subprocess.Popen(
            ["bash", "-c", reader.adapted(f"{drain} --output json")],
            cwd=reader.site.folder,
            env=reader.environment,
            stdout=subprocess.PIPE,
            text=True,
        )

        def is_draining() -> bool:
            return reader.site.folded(reader.group).metadata.config_overrides.get("share.drain.enable") == "true"

        # What is taken before would not be left for the broker.
        eventually(is_draining, "the group is being drained")

        def has_drained() -> bool:
            for key, count in poll(own).items():
                own.acknowledge_offset(reader.topic, *key, AcknowledgeType.ACCEPT)
                finished[key] = count
            own.commit_sync(DEADLINE_S)
            return draining.poll() is not None

        eventually(has_drained, "the group is drained")
        assert draining.stdout is not None
        plan = json.loads(draining.stdout.read())
        assert draining.returncode == 0
        assert not any(p["redelivered_count"] or p["lost_delivery_counts"] for p in plan["partitions"])
        assert plan["commands"] == [f"{configure},share.delivery.count.limit=10", *others]
        for command in plan["commands"]:
            out = reader.run(command)
        assert reader.topic in out

    kafkas = reader.of_kafka()
    there, _ = work(kafkas, reader.topic, 120 - len(finished), releases=False)
    kafkas.close()
    assert finished.keys() | there.keys() == everything(reader)
    assert not finished.keys() & there.keys()
    for command in after:
        reader.run(command)
    assert (reader.site.folder / "exported" / "consumer_offsets_share_groups.jsonl").stat().st_size


def test_a_cluster_without_share_groups_is_refused(
    kafka_3_9_2: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = ("--bootstrap-server", kafka_3_9_2.bootstrap_servers)
    error = CommandLine(tmp_path).error("audit", "import-kafka", *server, "--state-table", "history")
    assert "has no topic __share_group_state" in error
    assert not (tmp_path / "history").exists()
