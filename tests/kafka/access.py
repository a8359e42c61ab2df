"""Users of a broker: who logs in, and what they are granted."""

from __future__ import annotations

from typing import Literal

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from sharegroup.config.kafka import KafkaConfig
from tests.support.kafka_broker import KafkaBroker, ScramMechanism

Mechanism = Literal["PLAIN"] | ScramMechanism


def logged_in(broker: KafkaBroker, user: str, password: str, mechanism: Mechanism = "PLAIN") -> KafkaConfig:
    """The configuration of a client that logs in."""
    return KafkaConfig(
        bootstrap_servers=broker.sasl_bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=SecretStr(password),
    )


def grant(broker: KafkaBroker, topic: str, *operations: AclOperation, is_prefix: bool = False) -> None:
    """Let alice do this with a topic, or with all whose name begins so."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for future in admin.create_acls(bindings).values():
        future.result()
