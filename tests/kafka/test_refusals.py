"""Refusals of a broker: logins, rights that were not granted, records that are too large."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation
from pydantic import SecretStr
from pyspark.sql import SparkSession

from sharegroup.client.held_records import HeldRange
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import LogAccessDeniedError, LogUnavailableError, RecordTooLargeError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import LogRecord, NewRecord
from sharegroup.spark.acquired_records import kafka_records
from tests.kafka.access import Mechanism, grant, logged_in
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.kafka_broker import CLIENT_KEY_PASSWORD, SCRAM_MECHANISMS, USERS, KafkaBroker, ScramMechanism


def written_and_read(spark: SparkSession, kafka: KafkaConfig) -> list[bytes]:
    """The values of a new topic that one client has written and Spark's client has read."""
    with KafkaLog(kafka) as log:
        topic = log.create_topic(f"events-{uuid4().hex[:8]}", 1)
        log.append(topic.name, 0, [NewRecord(None, b"a")])
    held = [HeldRange(topic.topic_id, topic.name, 0, 0, 0, 1)]
    return [bytes(row.value) for row in kafka_records(spark, kafka, held).collect()]


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM_MECHANISMS])
def test_a_wrong_password_is_refused_at_once(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture, mechanism: Mechanism
) -> None:
    caplog.set_level(logging.DEBUG)
    password = "wrong-password-Kp9"
    config = logged_in(broker, "alice", password, mechanism)
    with KafkaLog(config) as log, pytest.raises(LogAccessDeniedError, match=r"(?i)authentication failed") as failure:
        log.describe_topic("events")
    assert "sasl." in failure.value.remedy
    assert password not in f"{failure.value!r} {failure.value} {config!r} {config} {caplog.text}"


def test_a_poll_raises_a_refused_login_and_the_next_one_tries_again(broker: KafkaBroker) -> None:
    config = logged_in(broker, "alice", "wrong-password-Kp9", "PLAIN")
    with ShareConsumer({"group.id": "g", **config.client_properties()}) as consumer:
        consumer.subscribe(["events"])
        for _ in range(2):
            with pytest.raises(KafkaException) as failure:
                consumer.poll(DEADLINE_S)
            assert failure.value.args[0].code() == KafkaError._AUTHENTICATION


def taken(log: KafkaLog, topic: str) -> list[LogRecord]:
    follower = log.follow(topic, {0: 0})
    try:
        return follower.take(1, 1_000, 1_000)
    finally:
        follower.close()


def deleted(log: KafkaLog, topic: str) -> None:
    log.delete_records(topic, 0, 1)
    log.delete_topic(topic)


OPERATIONS: dict[AclOperation, Callable[[KafkaLog, str], object]] = {
    AclOperation.DESCRIBE: lambda log, topic: log.offsets(topic),
    AclOperation.DESCRIBE_CONFIGS: lambda log, topic: log.describe_topic(topic),
    AclOperation.READ: lambda log, topic: (log.read(topic, 0, 0, 1), taken(log, topic)),
    AclOperation.WRITE: lambda log, topic: log.append(topic, 0, [NewRecord(None, b"b")]),
    AclOperation.DELETE: deleted,
}


def is_allowed(operation: Callable[[KafkaLog, str], object], log: KafkaLog, topic: str) -> bool:
    try:
        operation(log, topic)
    except LogAccessDeniedError:
        return False
    return True


def test_each_operation_needs_its_right(broker: KafkaBroker, log: KafkaLog, events: str) -> None:
    log.append(events, 0, [NewRecord(None, b"a")])
    with KafkaLog(logged_in(broker, "alice", USERS["alice"])) as of_alice:
        with pytest.raises(LogAccessDeniedError, match="create topic"):
            of_alice.create_topic(f"new-{uuid4().hex[:8]}", 1)
        for right, operation in OPERATIONS.items():
            with pytest.raises(LogAccessDeniedError, match=events) as failure:
                operation(of_alice, events)
            assert "rights" in failure.value.remedy
            grant(broker, events, right)
            eventually(partial(is_allowed, operation, of_alice, events), f"{right.name} is granted")


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_scram(spark: SparkSession, broker: KafkaBroker, mechanism: ScramMechanism) -> None:
    assert written_and_read(spark, logged_in(broker, "admin", USERS["admin"], mechanism)) == [b"a"]


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker("4.3.1", tmp_path_factory.mktemp("tls") / "broker", with_tls=True) as broker:
        yield broker


@pytest.mark.long("a broker with TLS, a JVM of its own")
@pytest.mark.slow
@pytest.mark.kafka
def test_tls(spark: SparkSession, tls_broker: KafkaBroker) -> None:
    secured = partial(KafkaConfig, bootstrap_servers=tls_broker.tls_bootstrap_servers, security_protocol="SSL")
    assert written_and_read(spark, secured(ssl_ca_location=str(tls_broker.folder / "ca.pem"))) == [b"a"]
    distrustful = KafkaLog(secured(), timeout_ms=4_000)
    with distrustful, pytest.raises(LogAccessDeniedError, match="certificate verify failed"):
        distrustful.topics()
    without_tls = KafkaLog(KafkaConfig(bootstrap_servers=tls_broker.tls_bootstrap_servers), timeout_ms=1_500)
    with without_tls, pytest.raises(LogUnavailableError):
        without_tls.topics()


@pytest.mark.long("a broker with TLS, a JVM of its own")
@pytest.mark.slow
@pytest.mark.kafka
def test_mutual_tls(spark: SparkSession, tls_broker: KafkaBroker) -> None:
    secured = partial(
        KafkaConfig,
        bootstrap_servers=tls_broker.mutual_tls_bootstrap_servers,
        security_protocol="SSL",
        ssl_ca_location=str(tls_broker.folder / "ca.pem"),
    )
    certified = secured(
        ssl_certificate_location=str(tls_broker.folder / "client.pem"),
        ssl_key_location=str(tls_broker.folder / "client.key"),
        ssl_key_password=SecretStr(CLIENT_KEY_PASSWORD),
    )
    assert written_and_read(spark, certified) == [b"a"]
    anonymous = KafkaLog(secured(), timeout_ms=1_500)
    with anonymous, pytest.raises((LogAccessDeniedError, LogUnavailableError)):
        anonymous.topics()


def test_a_record_that_is_too_large(log: KafkaLog, events: str) -> None:
    with pytest.raises(RecordTooLargeError, match=f"{events}-0") as failure:
        log.append(events, 0, [NewRecord(None, bytes(2_000_000))])
    assert "max.message.bytes" in failure.value.remedy
    assert log.append(events, 0, [NewRecord(None, b"small")]) == 0
