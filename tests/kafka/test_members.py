"""Members whose requests, responses and records are all on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation

from sharegroup import AcknowledgeType, KafkaError, KafkaException, ShareConsumer
from sharegroup.errors import LogAccessDeniedError, UnknownTopicError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from tests.client.processor_peer import REQUESTS, RESPONSES, ProcessorPeer
from tests.kafka.access import grant, logged_in
from tests.kafka.conftest import Begin, new_group
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.kafka_broker import USERS, KafkaBroker
from tests.support.wall_clock import shift_wall_clock


@pytest.fixture
def processor(log: KafkaLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as peer:
        yield peer
    for topic in (REQUESTS, RESPONSES):
        log.delete_topic(topic)


def explicit_consumer(broker: KafkaBroker, group_id: str) -> ShareConsumer:
    return ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "share.acknowledgement.mode": "explicit",
        }
    )


def polled(consumer: ShareConsumer, count: int) -> list[tuple[int | None, int | None]]:
    """Offset and delivery count of the next records."""
    messages: list[tuple[int | None, int | None]] = []

    def has_all() -> bool:
        for message in consumer.poll(1):
            messages.append((message.offset(), message.delivery_count()))
            is_first = message.delivery_count() == 1
            consumer.acknowledge(message, AcknowledgeType.RELEASE if is_first else AcknowledgeType.ACCEPT)
        consumer.commit_sync(DEADLINE_S)
        return len(messages) >= count

    eventually(has_all, f"{count} records are delivered")
    return messages


@pytest.mark.usefixtures("processor")
def test_records_of_a_topic_with_gaps_are_delivered_again(
    broker: KafkaBroker, log: KafkaLog, events: str, begin: Begin
) -> None:
    group = new_group(log)
    begin(events, ["a", "b"]).commit_transaction(30)  # offsets 0 and 1, marker at 2
    eventually(lambda: log.offsets(events)[0].last_stable_offset == 3, "the transaction is over")
    log.append(events, 0, [NewRecord(None, b"c")])
    with explicit_consumer(broker, group) as consumer:
        consumer.subscribe([events])
        messages = polled(consumer, 6)
    assert sorted(messages) == [(0, 1), (0, 2), (1, 1), (1, 2), (3, 1), (3, 2)]
    # A second member gets what is new, and nothing of what the first one has accepted.
    log.append(events, 0, [NewRecord(None, b"d")])
    with explicit_consumer(broker, group) as consumer:
        consumer.subscribe([events])
        assert polled(consumer, 2) == [(4, 1), (4, 2)]


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("ahead_ms", [16_000, -3_600_000])
def test_a_member_whose_clock_is_wrong_gets_its_records(
    broker: KafkaBroker, log: KafkaLog, events: str, ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = new_group(log, share_record_lock_duration_ms="15000")
    log.append(events, 0, [NewRecord(None, b"a")])
    shift_wall_clock(monkeypatch, ahead_ms)
    with explicit_consumer(broker, group) as consumer:
        consumer.subscribe([events])
        assert polled(consumer, 2) == [(0, 1), (0, 2)]


def may_describe(log: KafkaLog, topic: str) -> bool:
    try:
        return bool(log.offsets(topic))
    except (LogAccessDeniedError, UnknownTopicError):
        return False


@pytest.mark.usefixtures("processor")
def test_a_topic_that_may_not_be_read_is_reported_once(broker: KafkaBroker, log: KafkaLog, events: str) -> None:
    group = new_group(log)
    log.append(events, 0, [NewRecord(None, b"a")])
    grant(broker, REQUESTS, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ, AclOperation.WRITE)
    grant(broker, RESPONSES, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ)
    grant(broker, events, AclOperation.DESCRIBE)
    kafka = logged_in(broker, "alice", USERS["alice"])
    config: dict[str, object] = {**kafka.client_properties(), "group.id": group}
    with KafkaLog(kafka) as of_alice:
        eventually(lambda: may_describe(of_alice, events), "the brokers know the last right")
    with ShareConsumer(config) as consumer:
        consumer.subscribe([events])
        with pytest.raises(KafkaException, match=events) as info:
            consumer.poll(DEADLINE_S)
        error = info.value.args[0]
        assert (error.code(), error.fatal()) == (KafkaError.TOPIC_AUTHORIZATION_FAILED, False)
        assert consumer.poll(1).is_empty()
        grant(broker, events, AclOperation.READ)
        assert [message.value() for message in consumer.poll(DEADLINE_S)] == [b"a"]
