"""Two domains on one broker: topics, table, processor and principals of each, with the rights of docs/security.md."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sharegroup.client.admin import AdminClient as GroupAdmin
from sharegroup.client.settings import ChannelTopics
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.messages import ResponseEnvelope, decoded_response
from tests.kafka.access import logged_in
from tests.kafka.site import KafkaSite
from tests.support.kafka_broker import DOMAIN_USERS, ROLES, ROOT, KafkaBroker

DOCUMENT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def commands(role: str, domain: str = "alice") -> list[list[str]]:
    """The arguments of the document's kafka-acls commands for a role, for another domain than alice's, too."""
    (block,) = re.findall(rf"<!-- acls: {role} -->\n```\n(.*?)```", DOCUMENT, re.DOTALL)
    lines = block.replace("alice", domain).splitlines()
    assert all(line.startswith("kafka-acls --bootstrap-server localhost:9092 --add ") for line in lines)
    return [shlex.split(line)[3:] for line in lines]


def bindings(arguments: list[str]) -> list[AclBinding]:
    """The rights that a kafka-acls command adds."""
    flags: dict[str, list[str]] = {"--resource-pattern-type": ["literal"]}
    assert arguments[0] == "--add"
    for flag, value in zip(arguments[1::2], arguments[2::2], strict=True):
        flags[flag] = [value] if flag == "--resource-pattern-type" else [*flags.get(flag, []), value]
    assert flags.keys() == {"--resource-pattern-type", "--allow-principal", "--operation", "--topic"}
    (topic,), (principal,) = flags["--topic"], flags["--allow-principal"]
    pattern = ResourcePatternType[flags["--resource-pattern-type"][0].upper()]
    operations = [AclOperation[re.sub("(?<!^)(?=[A-Z])", "_", name).upper()] for name in flags["--operation"]]
    return [
        AclBinding(ResourceType.TOPIC, topic, pattern, principal, "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]


class Domain:
    """A domain whose processor runs.

    Args:
        name: of the domain.
        broker: of all domains.
        folder: for the state table.
    """

    def __init__(self, name: str, broker: KafkaBroker, folder: Path) -> None:
        self.name = name
        self.requests, self.responses = (f"{name}.sharegroup.{kind}" for kind in ("requests", "responses"))
        self.orders, self.dead_letters = (f"{name}.{kind}" for kind in ("orders", "dead-letters"))
        self.group_id = f"{name}.packers"
        self._broker = broker
        self._logs: dict[str, KafkaLog] = {}
        folder.mkdir()
        config = {
            "request_topic_name": self.requests,
            "response_topic_name": self.responses,
            "processor_group_pattern": rf"{name}\..*",
            "metrics_domain": name,
        }
        self.site = KafkaSite(folder, config=config, kafka=self.login("processor"))

    def login(self, role: str) -> KafkaConfig:
        user = f"{self.name}-{role}"
        return logged_in(self._broker, user, DOMAIN_USERS[user])

    def log(self, role: str) -> KafkaLog:
        """The log as a role sees it, open until `close`."""
        if role not in self._logs:
            self._logs[role] = KafkaLog(self.login(role))
        return self._logs[role]

    def start(self, cluster: KafkaLog) -> None:
        """Grant all roles their rights, create the record topics with something to read, and start the processor."""
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        granted = [b for role in ROLES for arguments in commands(role, self.name) for b in bindings(arguments)]
        for future in admin.create_acls(granted).values():
            future.result()
        cluster.create_topic(self.orders, 2)
        cluster.create_topic(self.dead_letters, 1)
        for partition in range(2):
            cluster.append(self.orders, partition, [NewRecord(None, f"of {self.name}".encode())] * 20)
        cluster.append(self.dead_letters, 0, [NewRecord(None, b"dead before")])
        self.site.start()
        config = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
        self.admin.alter_group_config(self.group_id, config)

    def close(self) -> None:
        self.site.close()
        for log in self._logs.values():
            log.close()

    def write_config(self, path: Path, role: str = "operator") -> None:
        """Write the domain's configuration file, with the log-in of a role."""
        config = self.site.settings.processor
        keys = ("request.topic.name", "response.topic.name", "processor.group.pattern", "metrics.domain")
        paths = {"state.table.path": config.state_table_path, "checkpoint.path": config.checkpoint_path}
        values = {**self.login(role).client_properties(), **{key: config.value(key) for key in keys}, **paths}
        path.write_text(json.dumps(values), encoding="utf-8")

    @property
    def admin(self) -> GroupAdmin:
        """The operators' client."""
        topics = ChannelTopics(request_topic_name=self.requests, response_topic_name=self.responses)
        return GroupAdmin(self.log("operator"), topics=topics)

    def consumer(self, group_id: str = "", role: str = "member", **config: object) -> ShareConsumer:
        """A member's consumer of the orders."""
        own = {name.replace("_", "."): value for name, value in config.items()}
        channel = {"request.topic.name": self.requests, "response.topic.name": self.responses}
        login = self.login(role).client_properties()
        consumer = ShareConsumer({**login, **channel, "group.id": group_id or self.group_id, **own})
        consumer.subscribe([self.orders])
        return consumer

    def send(self, envelope: dict[str, Any], partition: int = 0) -> None:
        """Append an envelope as a member can."""
        value = json.dumps(envelope).encode()
        self.log("member").append(self.requests, partition, [NewRecord(None, value)])

    def all_responses(self) -> list[ResponseEnvelope]:
        """All responses, as a member can read them."""
        log = self.log("member")
        return [
            decoded_response(record.value)
            for partition, offsets in log.offsets(self.responses).items()
            for record in log.read(self.responses, partition, offsets.start_offset, offsets.end_offset)
            if (record.value or b"").startswith(b"{")
        ]
