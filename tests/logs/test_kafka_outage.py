"""Log messages of a program while Kafka does not respond."""

from __future__ import annotations

import logging
import socket

import pytest
from confluent_kafka import KafkaError

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import ConfigurationError, LogAccessDeniedError, LogUnavailableError, ShareGroupError
from sharegroup.logs.kafka_errors import is_transient, translated
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.kafka_outage import Connection, Outage
from sharegroup.logs.port import ENDLESS_MS, NewRecord
from tests.support.server_process import free_port


def test_one_line_a_minute_however_many_operations_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    outage = Outage("Kafka at b:9092")
    outage.log_wait("append to partition events-0", 4.9, "refused")
    assert caplog.records == []
    for seconds in (5.2, 5.3, 30.0):
        outage.log_wait("describe topic events", seconds, "Connection refused")
    (line,) = [str(record.msg) for record in caplog.records]
    assert line == (
        'event=log_unavailable log="Kafka at b:9092" action="describe topic events" seconds=5 '
        'reason="Connection refused"'
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Unable to replicate the partition 1 time(s): All brokers are currently fenced.", LogUnavailableError),
        (
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
            "only 1 broker(s) are registered.",
            ConfigurationError,
        ),
    ],
)
def test_a_new_topic_waits_for_brokers_that_are_fenced(text: str, kind: type[ShareGroupError]) -> None:
    error = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, text)
    assert is_transient(error) == (kind is LogUnavailableError)
    assert type(translated(error, "Kafka at b:9092 cannot create topic 'orders'")) is kind


@pytest.mark.parametrize("code", [KafkaError._SSL, KafkaError._TRANSPORT])
def test_a_certificate_that_is_refused_is_no_outage(code: int) -> None:
    text = "ssl://b:9092/bootstrap: error:0A000086:SSL routines::certificate verify failed (after 54ms)"
    error = KafkaError(code, text)
    assert not is_transient(error)
    assert type(translated(error, "Kafka at b:9092 cannot list the topics")) is LogAccessDeniedError


def test_an_operation_that_gets_no_response_names_its_own_timeout() -> None:
    """That of the log is endless, as a processor has it."""
    with KafkaLog(KafkaConfig(bootstrap_servers=f"127.0.0.1:{free_port()}"), timeout_ms=ENDLESS_MS) as log:
        error = log.identify(["orders"], 300)["orders"]
    assert isinstance(error, LogUnavailableError)
    assert "cannot describe topics: no response within 300 ms; " in error.message
    assert "Connection refused" in error.message


def test_a_broker_that_never_responds_is_reported_with_the_timeout() -> None:
    """The client has a connection, so it reports no error of one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = KafkaConfig(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
        with KafkaLog(config, timeout_ms=300) as log:
            for operation in (log.topics, lambda: log.append("orders", 0, [NewRecord(None, b"a")])):
                with pytest.raises(LogUnavailableError, match="no response within 300 ms; "):
                    operation()


def test_an_earlier_connection_error_explains_no_response_for_a_while() -> None:
    now_s = 0.0
    connection = Connection(lambda: now_s)
    refused, timed_out, fenced = (
        KafkaError(code) for code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.NOT_ENOUGH_REPLICAS)
    )
    connection.failed(refused)
    assert connection.cause_of(timed_out) is connection.cause_of(fenced) is refused
    connection.reset()
    assert connection.cause_of(timed_out) is refused
    assert connection.cause_of(fenced) is fenced
    now_s = 60.0
    assert connection.cause_of(timed_out) is timed_out


def test_lines_of_kafkas_client_are_for_debugging(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The typed error says the same, once; the client says it with each attempt to connect."""
    for level, has_lines in ((logging.INFO, False), (logging.DEBUG, True)):
        caplog.set_level(level, logger="sharegroup")
        log = KafkaLog(KafkaConfig(bootstrap_servers=f"127.0.0.1:{free_port()}"), timeout_ms=300)
        with log, pytest.raises(LogUnavailableError, match="Connection refused"):
            log.topics()
        lines = [record for record in caplog.records if "Connection refused" in record.getMessage()]
        assert bool(lines) == has_lines
        assert {record.levelno for record in lines} <= {logging.DEBUG}
    assert "rdkafka" not in capfd.readouterr().err
