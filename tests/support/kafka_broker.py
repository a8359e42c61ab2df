"""A real Kafka broker for tests: a KRaft node in a folder of its own, at random ports, killed at the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from confluent_kafka.admin import AdminClient, NewTopic

from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.topic_properties import new_topic_id
from tests.support import leash
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.fast_start import JAVA_OPTIONS

ROOT = Path(__file__).resolve().parent.parent.parent

USERS = {"admin": "admin-secret-Zq7", "alice": "alice-secret-Xw4"}
"""Users of the SASL listener, with passwords; `admin` may do everything, `alice` what she is granted."""

DOMAINS = ("alice", "bob", "carol", "dave")
ROLES = ("processor", "member", "operator", "auditor")
DOMAIN_USERS = {f"{domain}-{role}": f"{domain}-{role}-secret-Qm5" for domain in DOMAINS for role in ROLES}
"""Users of two domains, with passwords, who log in by PLAIN; they may do what they are granted."""

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
SCRAM_MECHANISMS: tuple[ScramMechanism, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
CLIENT_KEY_PASSWORD = "client-key-secret-Tb3"

_JVM = ("-Xmx384m", *JAVA_OPTIONS.split())
_STARTS = 3
_SECOND_NODE = 2


class KafkaBroker:
    """A node, broker and controller; its log is `broker.log` in its folder.

    A client of the plain listener may do everything. At the SASL listener the authorizer grants nothing but what
    was allowed.

    Args:
        version: of the jars in build/jars/broker-<version>.
        folder: for configuration, data and log.
        with_tls: whether there are SSL listeners, too, whose authority is `ca.pem` in the folder. One of them wants a
            certificate of clients, which is `client.pem` with the key `client.key`.
        joins: the broker whose cluster it joins, as a second node without a controller; None for a cluster of its own.
    """

    def __init__(self, version: str, folder: Path, with_tls: bool = False, joins: KafkaBroker | None = None) -> None:
        self.version = version
        self.folder = folder
        self._with_tls = with_tls
        self._joins = joins
        self._cluster_id: str = joins._cluster_id if joins else new_topic_id()
        self._jars = _jars_folder(version)
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    @property
    def bootstrap_servers(self) -> str:
        """Address of the plain listener."""
        return f"127.0.0.1:{self._ports['plain']}"

    @property
    def sasl_bootstrap_servers(self) -> str:
        """Address of the SASL listener."""
        return f"127.0.0.1:{self._ports['sasl']}"

    @property
    def tls_bootstrap_servers(self) -> str:
        """Address of the SSL listener."""
        return f"localhost:{self._ports['tls']}"

    @property
    def mutual_tls_bootstrap_servers(self) -> str:
        """Address of the SSL listener for clients with a certificate."""
        return f"localhost:{self._ports['mutual']}"

    def open_log(self) -> KafkaLog:
        """A log on it, by the plain listener."""
        return KafkaLog(KafkaConfig(bootstrap_servers=self.bootstrap_servers))

    def create_topics(self, nodes_of: Mapping[str, Sequence[int]]) -> None:
        """Create topics, each with one partition on each of its nodes, in their order."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        new = [
            NewTopic(name, len(nodes), replica_assignment=[[node] for node in nodes])
            for name, nodes in nodes_of.items()
        ]
        for future in admin.create_topics(new).values():
            future.result()

    def start(self) -> None:
        """Start it, for the first time or again at the same ports, and wait until it accepts connections.

        One that runs goes on.
        """
        if self._process is not None:
            return
        if self._ports:
            self._run()
            return
        if not (self._jars / ".retrieved").exists():
            raise AssertionError(f"{self._jars} is missing: run make setup JAR_SETS='spark broker-{self.version}'")
        # Another program may take a port between its choice and its use.
        for attempt in range(_STARTS):
            self._format()
            try:
                self._run()
                return
            except AssertionError:
                if attempt == _STARTS - 1:
                    raise

    def kill(self) -> None:
        """End it as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def shut_down(self) -> None:
        """Stop it as an operator does: it hands its leaderships over first."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(DEADLINE_S)
            finally:
                self.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._joins is None or self._joins._process is None:
            self.kill()
            return
        # The cluster would notice a kill only after the session timeout.
        self.shut_down()
        admin = AdminClient({"bootstrap.servers": self._joins.bootstrap_servers})
        eventually(
            lambda: _SECOND_NODE not in admin.list_topics(timeout=10).brokers,
            "the cluster puts no new topic on the node",
        )

    def _java(self) -> str:
        home = os.environ.get("JAVA_HOME")
        return f"{home}/bin/java" if home else "java"

    def _format(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._ports = free_ports("plain", "controller", "sasl", "tls", "mutual")
        if self._with_tls:
            self._make_certificates()
        (self.folder / "server.properties").write_text(self._properties())
        (self.folder / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, stdout\n"
            "log4j.appender.stdout=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.stdout.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.stdout.layout.ConversionPattern=%d %p %m (%c)%n\n"
        )
        # One that begins with a hyphen would be taken for an option.
        options = ["format", "--cluster-id", self._cluster_id, "--config", "server.properties"]
        for mechanism in () if self._joins else SCRAM_MECHANISMS:
            for name, password in USERS.items():
                options += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
        with (self.folder / "broker.log").open("ab") as log:
            subprocess.run(
                self._command("kafka.tools.StorageTool", *options), cwd=self.folder, stdout=log, stderr=log, check=True
            )

    def _run(self) -> None:
        self._launch()
        self._await_connections()

    def _launch(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self._process = leash.start(
                self._command("kafka.Kafka", "server.properties"), cwd=self.folder, stdout=log, stderr=log
            )

    def _await_connections(self) -> None:
        try:
            eventually(self._accepts, f"Kafka {self.version} accepts connections")
        except AssertionError as failure:
            self.kill()
            text = (self.folder / "broker.log").read_text(errors="replace")[-3_000:]
            raise AssertionError(f"{failure}; the end of its log:\n{text}") from None

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        log = ("-Dlog4j.configuration=file:log4j.properties", "-Dorg.apache.logging.log4j.level=WARN")
        return [self._java(), *_JVM, *self._archive_options(), *log, "-cp", f"{self._jars}/*", main_class, *arguments]

    def _archive_options(self) -> list[str]:
        archive = class_archive(self.version)
        return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Kafka {self.version} ended with code {self._process.returncode}"
        try:
            with socket.create_connection(("127.0.0.1", self._ports["plain"]), 1):
                return True
        except OSError:
            return False

    def _make_certificates(self) -> None:
        keytool = self._java().removesuffix("java") + "keytool"
        store = ("-keystore", "broker.p12", "-storepass", "changeit", "-alias", "broker")
        name = ("-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1")
        for arguments in (
            ("-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-validity", "2", "-storetype", "PKCS12", *name),
            ("-exportcert", "-rfc", "-file", "ca.pem"),
        ):
            subprocess.run([keytool, *arguments, *store], cwd=self.folder, check=True, capture_output=True)
        subject = ("-days", "2", "-subj", "/CN=client")
        # Java 17 reads no other encryption of keys.
        encrypted = ("-v1", "PBE-SHA1-3DES", "-passout", f"pass:{CLIENT_KEY_PASSWORD}")
        for command in (
            (
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-keyout",
                "key",
                "-out",
                "client.pem",
                *subject,
            ),
            ("openssl", "pkcs8", "-topk8", "-in", "key", "-out", "client.key", *encrypted),
            (keytool, "-importcert", "-noprompt", "-file", "client.pem", "-keystore", "clients.p12", *store[2:4]),
        ):
            subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def _properties(self) -> str:
        users = " ".join(f'user_{name}="{password}"' for name, password in {**USERS, **DOMAIN_USERS}.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        secured = {"TLS": "tls", "MUTUAL": "mutual"} if self._with_tls else {}
        listeners = {"PLAIN": "plain", "SASL": "sasl", **secured}
        addresses = ",".join(f"{name}://localhost:{self._ports[port]}" for name, port in listeners.items())
        controller_port = (self._joins or self)._ports["controller"]
        settings = {
            "process.roles": "broker" if self._joins else "broker,controller",
            "node.id": _SECOND_NODE if self._joins else 1,
            "controller.quorum.voters": f"1@localhost:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": addresses if self._joins else f"{addresses},CONTROLLER://localhost:{controller_port}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": (
                "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,MUTUAL:SSL"
            ),
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM_MECHANISMS)),
            **{
                f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config": f"{scram} required;"
                for mechanism in SCRAM_MECHANISMS
            },
            "listener.name.sasl.plain.sasl.jaas.config": f"{module} required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin;User:CN=client",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "true",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            # A node that starts again is let in once its former life is over.
            "broker.session.timeout.ms": 3_000,
            "broker.heartbeat.interval.ms": 500,
            # Share groups of tests wait for the ends of locks.
            "group.share.min.record.lock.duration.ms": 1_000,
            "group.share.min.heartbeat.interval.ms": 1_000,
            "group.share.heartbeat.interval.ms": 1_000,
            # Retention and compaction happen while a test waits for them, and only where a topic asks for retention:
            # records of contract tests have timestamps of 1970.
            "log.retention.ms": -1,
            "log.initial.task.delay.ms": 100,
            "log.retention.check.interval.ms": 200,
            "log.cleaner.backoff.ms": 100,
            "log.cleaner.dedupe.buffer.size": 2_097_152,
            "log.segment.delete.delay.ms": 0,
        }
        if self._with_tls:
            settings |= {
                "ssl.keystore.location": str(self.folder / "broker.p12"),
                "ssl.keystore.password": "changeit",
                "ssl.keystore.type": "PKCS12",
                "ssl.truststore.location": str(self.folder / "clients.p12"),
                "ssl.truststore.password": "changeit",
                "ssl.truststore.type": "PKCS12",
                "listener.name.mutual.ssl.client.auth": "required",
            }
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def class_archive(version: str) -> Path:
    """The archive of a broker's classes; a JVM that it does not fit loads them from the jars."""
    return _jars_folder(version) / "classes.jsa"


def _jars_folder(version: str) -> Path:
    return ROOT / "build" / "jars" / f"broker-{version}"


def free_ports(*names: str) -> dict[str, int]:
    """Return a port for each name that nobody listens on."""
    sockets = [socket.socket() for _ in names]
    try:
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return {name: opened.getsockname()[1] for name, opened in zip(names, sockets, strict=True)}
    finally:
        for opened in sockets:
            opened.close()
