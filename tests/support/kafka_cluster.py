"""A real Kafka cluster for tests: three KRaft nodes, each broker and controller, with three replicas of everything."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.topic_properties import new_topic_id
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.kafka_broker import KafkaBroker, free_ports

NODES = (1, 2, 3)
_MEMORY = "-Xmx256m"


class ClusterNode(KafkaBroker):
    """One node; it starts together with others, since a controller alone has no quorum."""

    def __init__(self, version: str, folder: Path, node_id: int, cluster_id: str, ports: Mapping[str, int]) -> None:
        super().__init__(version, folder)
        self.node_id = node_id
        self._cluster_id = cluster_id
        self._ports = {"plain": ports[f"plain-{node_id}"]}
        self._cluster_ports = ports

    def format(self, like: ClusterNode | None = None) -> None:
        """Make its folder; like that of a node of the cluster, if there is one, which costs no JVM."""
        self.folder.mkdir(parents=True)
        (self.folder / "server.properties").write_text(self._properties())
        (self.folder / "log4j.properties").write_text("log4j.rootLogger=WARN\n")
        if like is None:
            options = ("format", "--cluster-id", self._cluster_id, "--config", "server.properties")
            subprocess.run(
                self._command("kafka.tools.StorageTool", *options), cwd=self.folder, check=True, capture_output=True
            )
            return
        shutil.copytree(like.folder / "data", self.folder / "data")
        lines = (like.folder / "data" / "meta.properties").read_text().splitlines()
        own = {"node.id": str(self.node_id), "directory.id": new_topic_id()}
        pairs = {**dict(line.split("=", 1) for line in lines if "=" in line), **own}
        (self.folder / "data" / "meta.properties").write_text("".join(f"{k}={v}\n" for k, v in pairs.items()))

    def launch(self) -> None:
        """Start it without waiting."""
        if self._process is None:
            self._launch()

    def await_connections(self) -> None:
        """Wait until it accepts connections."""
        self._await_connections()

    def run_tool(self, main_class: str, *arguments: str) -> None:
        """Run one of Kafka's own tools against this node."""
        command = self._command(main_class, "--bootstrap-server", self.bootstrap_servers, *arguments)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        command = super()._command(main_class, *arguments)
        return [_MEMORY if word.startswith("-Xmx") else word for word in command]

    def _properties(self) -> str:
        ports = self._cluster_ports
        settings = {
            "process.roles": "broker,controller",
            "node.id": self.node_id,
            "controller.quorum.voters": ",".join(f"{node}@localhost:{ports[f'controller-{node}']}" for node in NODES),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": (
                f"PLAIN://localhost:{ports[f'plain-{self.node_id}']},"
                f"CONTROLLER://localhost:{ports[f'controller-{self.node_id}']}"
            ),
            "advertised.listeners": f"PLAIN://localhost:{ports[f'plain-{self.node_id}']}",
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "broker.session.timeout.ms": 3_000,
            "broker.heartbeat.interval.ms": 500,
            "replica.lag.time.max.ms": 4_000,
            "log.cleaner.enable": "false",
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())


class KafkaCluster:
    """Three nodes in one folder; a context manager that starts and kills them."""

    def __init__(self, version: str, folder: Path) -> None:
        names = [f"{kind}-{node}" for node in NODES for kind in ("plain", "controller")]
        ports, cluster_id = free_ports(*names), new_topic_id()
        while cluster_id.startswith("-"):
            cluster_id = new_topic_id()
        self.nodes = {node: ClusterNode(version, folder / f"node-{node}", node, cluster_id, ports) for node in NODES}

        properties: dict[str, str | int | float | bool] = {**self.config.client_properties()}
        self._admin = AdminClient(properties)

    @property
    def config(self) -> KafkaConfig:
        """The address of all nodes."""
        return KafkaConfig(bootstrap_servers=",".join(node.bootstrap_servers for node in self.nodes.values()))

    def __enter__(self) -> Self:
        first, *others = self.nodes.values()
        first.format()
        for node in others:
            node.format(like=first)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()

    def start(self) -> None:
        """Start the nodes that do not run, and wait until all are in the cluster."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.await_connections()
        eventually(
            lambda: len(self._admin.list_topics(timeout=DEADLINE_S).brokers) == len(NODES), "all nodes are there"
        )

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition."""
        return eventually(lambda: self._replicas(topic)[partition][0], f"{topic}-{partition} has a leader")

    def await_in_sync(self, topics: Sequence[str]) -> None:
        """Wait until all replicas of the topics' partitions are in sync."""

        def are_in_sync() -> bool:
            of_partitions = [each for topic in topics for each in self._replicas(topic).values()]
            return all(leader in in_sync and len(in_sync) == len(NODES) for leader, in_sync in of_partitions)

        eventually(are_in_sync, f"all replicas of {', '.join(topics)} are in sync")

    def reassign(self, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Move partitions to these nodes, the first of which is preferred, and wait until they are there."""
        plan = [
            {"topic": topic, "partition": partition, "replicas": list(nodes)}
            for (topic, partition), nodes in replicas.items()
        ]
        node = self.nodes[NODES[0]]
        path = node.folder / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": plan}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        node.run_tool(tool, "--reassignment-json-file", str(path), "--execute")
        for (topic, partition), nodes in replicas.items():
            eventually(
                lambda t=topic, p=partition, n=nodes: set(self._replicas(t)[p][1]) == set(n),  # type: ignore[misc]
                f"{topic}-{partition} is on {nodes}",
            )

    def _replicas(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Partition → leader, 0 without one, and replicas in sync."""

        def described() -> TopicDescription | None:
            (described,) = self._admin.describe_topics(TopicCollection([topic])).values()
            try:
                result: TopicDescription = described.result(DEADLINE_S)
            except KafkaException:
                # The node that was asked has gone down.
                return None
            return result

        return {
            partition.id: (partition.leader.id if partition.leader else 0, [node.id for node in partition.isr])
            for partition in eventually(described, f"{topic} is described").partitions
        }
