"""Configurations as programs for confluent-kafka give them, and the callbacks in them."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from sharegroup.client.consumer_settings import consumer_settings
from sharegroup.client.kafka_exceptions import KafkaError, KafkaException
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.kafka import KafkaConfig
from tests.support.eventually import eventually

KAFKA: dict[str, object] = {"group.id": "g", "bootstrap.servers": "localhost:1"}


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_keys_may_be_arguments_which_replace_those_of_the_dict() -> None:
    assert consumer_settings(None, KAFKA).config.group_id == "g"
    assert consumer_settings(KAFKA, {"group.id": "other"}).config.group_id == "other"


def test_none_is_unset_and_numbers_are_texts() -> None:
    settings = consumer_settings({**KAFKA, "group.id": 7, "client.id": 8, "max.poll.records": None}, {})
    assert (settings.config.group_id, settings.config.client_id) == ("7", "8")
    assert "max_poll_records" not in settings.config.model_fields_set
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        consumer_settings({**KAFKA, "group.id": None}, {})


def test_keys_of_librdkafka_have_their_meaning() -> None:
    settings = consumer_settings(
        {
            "group.id": "g",
            "metadata.broker.list": "PLAINTEXT://a:1,b:2",
            "security.protocol": "plaintext",
            "fetch.wait.max.ms": 250,
            "fetch.message.max.bytes": 1_000,
            "enable.ssl.certificate.verification": False,
            "socket.timeout.ms": 100,
            "client.id": "c",
        },
        {},
    )
    assert settings.connection.log == KafkaConfig(bootstrap_servers="PLAINTEXT://a:1,b:2")
    assert settings.member.fetch.max_wait_ms == 250
    assert settings.config.max_partition_fetch_bytes == 1_000
    expected = {"enable.ssl.certificate.verification": "false", "socket.timeout.ms": "100", "client.id": "c"}
    assert settings.connection.properties == expected


def test_a_log_in_has_librdkafkas_names() -> None:
    config = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert consumer_settings({**KAFKA, **config}, {}).connection.log == KafkaConfig(
        bootstrap_servers="localhost:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="u",
        sasl_password=SecretStr("p"),
    )


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ({"no.such": 1}, KafkaException, r"_INVALID_ARG.*no\.such"),
        ({1: 2}, KafkaException, "_INVALID_ARG"),
        ({"socket.timeout.ms": "abc"}, KafkaException, r"_INVALID_ARG.*socket\.timeout\.ms"),
        ({"socket.timeout.ms": 0}, KafkaException, "outside allowed range"),
        ({"debug": "nope"}, KafkaException, "_INVALID_ARG.*debug"),
        ({"security.protocol": "bogus"}, KafkaException, r"_INVALID_ARG.*security\.protocol"),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/nonexistent"},
            ValueError,
            r"^Failed to create share consumer: .*ssl\.ca\.location failed",
        ),
        ({"security.protocol": "ssl", "ssl.ca.pem": "x"}, ValueError, r"^Failed to create .*ssl\.ca\.pem"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN"}, ValueError, r"sasl\.username"),
        ({"bootstrap.servers": "SSL://h:1"}, ValueError, r"contradicts security\.protocol PLAINTEXT"),
        ({"fetch.wait.max.ms": 40_000}, ValueError, r"request\.timeout\.ms must be greater than fetch\.max\.wait\.ms"),
        ({"error_cb": 5}, TypeError, "^expected error_cb property as a callable function$"),
        ({"stats_cb": 5}, TypeError, "^expected stats_cb property as a callable function$"),
        ({"oauth_cb": 5}, TypeError, "^expected oauth_cb property as a callable function$"),
        ({"throttle_cb": 5}, ValueError, "^expected throttle_cb property as a callable function$"),
        ({"on_commit": print}, ValueError, "^on_commit is not supported on ShareConsumer$"),
        ({"logger": 5}, AttributeError, "^'int' object has no attribute 'log'$"),
        ({"log_cb": print}, ValueError, "takes? error_cb"),
        ({"queued.min.messages": 1}, ValueError, "`queued.min.messages` is not applicable for share consumer"),
    ],
)
def test_a_configuration_that_cannot_be_raises_as_confluent_kafkas(
    config: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ShareConsumer({**KAFKA, **config})


def test_a_consumer_is_initialized_once() -> None:
    with (
        ShareConsumer(KAFKA) as consumer,
        pytest.raises(RuntimeError, match=r"^ShareConsumer already initialized$"),
    ):
        consumer.__init__(KAFKA)  # type: ignore[misc]


def test_the_embedded_log_has_no_connections(log_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"group.id": "g", "log.path": str(log_path), "socket.timeout.ms": 100, "error_cb": print}
    ShareConsumer(config).close()
    assert caplog.messages == ["socket.timeout.ms, error_cb: no effect, since the embedded log has no connections."]


@pytest.mark.slow
def test_errors_of_connections_reach_the_application_in_its_own_thread(unused_address: str) -> None:
    errors: list[KafkaError] = []
    threads: set[int] = set()

    def error_cb(error: KafkaError) -> None:
        errors.append(error)
        threads.add(threading.get_ident())

    with ShareConsumer({"group.id": "g", "bootstrap.servers": unused_address}, error_cb=error_cb) as consumer:
        consumer.subscribe(["cl-1"])
        eventually(lambda: consumer._events.are_waiting, "an error waits")
        assert errors == []
        assert consumer.commit_sync(0) == {}
        assert errors[0].code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
        assert threads == {threading.get_ident()}


@pytest.mark.slow
@pytest.mark.parametrize("call", ["poll", "commit_sync", "commit_async"])
def test_an_exception_of_error_cb_is_the_calls(unused_address: str, call: str) -> None:
    raising = threading.Event()
    raising.set()

    def error_cb(error: KafkaError) -> None:
        if raising.is_set():
            raise RuntimeError("thrown by the callback")

    with ShareConsumer(**{"group.id": "g", "bootstrap.servers": unused_address, "error_cb": error_cb}) as consumer:
        consumer.subscribe(["cl-1"])
        eventually(lambda: consumer._events.are_waiting, "an error waits")
        with pytest.raises(RuntimeError, match="thrown by the callback"):
            getattr(consumer, call)()
        raising.clear()


@pytest.mark.slow
def test_an_endless_poll_passes_statistics_on(unused_address: str) -> None:
    client_ids: list[str] = []

    def stats_cb(text: str) -> None:
        client_ids.append(json.loads(text)["client_id"])
        if len(client_ids) == 2:
            raise RuntimeError("thrown by the callback")

    config: dict[str, object] = {"client.id": "mine", "statistics.interval.ms": 50, "stats_cb": stats_cb}
    with ShareConsumer({"group.id": "g", "bootstrap.servers": unused_address, **config}) as consumer:
        consumer.subscribe(["cl-1"])
        with pytest.raises(RuntimeError, match="thrown by the callback"):
            consumer.poll()
    assert set(client_ids) == {"mine"}


@pytest.mark.slow
def test_lines_of_librdkafka_go_to_the_applications_logger(
    unused_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("of-the-application")
    logger.setLevel(logging.DEBUG)
    with ShareConsumer(
        {"group.id": "g", "bootstrap.servers": unused_address, "debug": "msg"}, logger=logger
    ) as consumer:
        consumer.subscribe(["cl-1"])

        def is_logged() -> bool:
            return any("INIT" in record.getMessage() for record in caplog.records if record.name == logger.name)

        eventually(is_logged, "a line for debugging")


@pytest.mark.slow
def test_a_token_is_the_applications(unused_address: str) -> None:
    configs: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        configs.append(config)
        return "token", time.time() + 300

    config: dict[str, Any] = {
        "group.id": "g",
        "bootstrap.servers": unused_address,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.config": "of the application",
        "oauth_cb": oauth_cb,
    }
    with ShareConsumer(config) as consumer:
        assert configs[0] == "of the application"
        consumer.subscribe(["cl-1"])
        assert consumer.poll(0.1).is_empty()
