"""A broker that is not there: at the start, for a while, for too long."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import LogUnavailableError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import LogRecord, PartitionOffsets
from tests.support.eventually import DEADLINE_S, WAIT_MS, eventually
from tests.support.kafka_broker import KafkaBroker
from tests.support.log_sites import values

pytestmark = [pytest.mark.slow, pytest.mark.long("brokers that are killed, each a JVM of its own")]

MOST_REFUSED = 5_000
"""In the 9 s until a cluster misses a node, tests beside this one included: without pauses some ten thousands."""


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_a_broker_that_is_down_at_the_start(unused_address: str) -> None:
    with KafkaLog(KafkaConfig(bootstrap_servers=unused_address), timeout_ms=700) as log:
        operations: tuple[Callable[[], object], ...] = (
            lambda: log.describe_topic("events"),
            lambda: log.append("events", 0, values("a")),
            lambda: log.topics(),
            lambda: log.follow("events", {0: 0}),
        )
        for operation in operations:
            # The first ones may be over before the client knows why it has no connection.
            failure = eventually(partial(refusal, operation), "the refusal is known")
            assert unused_address in str(failure)
            assert "Check bootstrap.servers" in failure.remedy


def refusal(operation: Callable[[], object]) -> LogUnavailableError | None:
    """Return the failure of an operation once it names the cause."""
    with pytest.raises(LogUnavailableError, match="700 ms") as failure:
        operation()
    return failure.value if "refused" in str(failure.value) else None


def test_a_broker_that_goes_down_and_comes_back(kafka_to_kill: KafkaBroker) -> None:
    broker = kafka_to_kill
    with broker.open_log() as log, ThreadPoolExecutor(4) as pool:
        log.create_topic("events", 1)
        assert log.append("events", 0, values("before")) == 0
        follower = log.follow("events", {0: 1})
        taking = pool.submit(follower.take, 10, 1_000, WAIT_MS)

        broker.kill()
        appending = pool.submit(log.append, "events", 0, values("during", "the outage"))
        reading = pool.submit(log.read, "events", 0, 0, 1)
        impatient = KafkaLog(KafkaConfig(bootstrap_servers=broker.bootstrap_servers), timeout_ms=500)
        with impatient, pytest.raises(LogUnavailableError):
            impatient.append("events", 0, values("never"))

        broker.start()
        assert appending.result() == 1
        assert [record.value for record in reading.result()] == [b"before"]
        assert [record.value for record in taking.result()] == [b"during", b"the outage"]
        follower.close()
        assert log.append("events", 0, values("after")) == 3
        assert log.offsets("events")[0] == PartitionOffsets(0, 4, 4)
        assert [record.value for record in log.read("events", 0, 0, 4)] == [
            b"before",
            b"during",
            b"the outage",
            b"after",
        ]


def test_a_follower_that_gave_up_goes_on_when_the_broker_is_back(kafka_to_kill: KafkaBroker) -> None:
    broker = kafka_to_kill
    config = KafkaConfig(bootstrap_servers=broker.bootstrap_servers)
    with KafkaLog(config, timeout_ms=2_000) as impatient, broker.open_log() as log:
        log.create_topic("other-events", 1)
        follower = impatient.follow("other-events", {0: 0})
        broker.kill()
        with pytest.raises(LogUnavailableError, match="2000 ms"):
            follower.take(10, 1_000, WAIT_MS)
        broker.start()
        log.append("other-events", 0, values("after"))

        def taken() -> list[LogRecord]:
            try:
                return follower.take(10, 1_000, WAIT_MS)
            except LogUnavailableError:
                return []

        assert [record.value for record in eventually(taken, "the record is taken")] == [b"after"]
        follower.close()


def test_a_broker_that_is_gone_is_connected_to_with_pauses(kafka_to_kill: KafkaBroker, tmp_path: Path) -> None:
    with KafkaBroker("4.3.1", tmp_path / "second", joins=kafka_to_kill) as second:
        logs = [kafka_to_kill.open_log() for _ in range(3)]
        topic = logs[0].create_topic(f"events-{uuid4().hex[:8]}", 1).name
        for log in logs:
            log.describe_topic(topic)
        second.kill()
        before = refused_connections()
        admin = AdminClient({"bootstrap.servers": kafka_to_kill.bootstrap_servers})
        # Until the cluster has noticed, its metadata names the killed node: often as the one to ask.
        with ThreadPoolExecutor(len(logs)) as pool:
            give_up_s = time.monotonic() + DEADLINE_S
            while len(admin.list_topics(timeout=DEADLINE_S).brokers) > 1:
                assert time.monotonic() < give_up_s, "the cluster has not noticed"
                list(pool.map(lambda log: log.describe_topic(topic), logs))
        assert refused_connections() - before < MOST_REFUSED
        for log in logs:
            log.close()


def refused_connections() -> int:
    """The machine's attempts to connect that were refused, those of tests beside this one included."""
    names, values = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("AttemptFails")])
