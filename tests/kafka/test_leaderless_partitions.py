"""Share consumers beside partitions without a leader, with real brokers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sharegroup.client.held_records import HeldRange
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.client.settings import ChannelTopics
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord, TopicIdentity
from sharegroup.spark.held_ranges import without_unreadable
from tests.kafka.site import KafkaSite
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker
from tests.support.silent_broker import SilentBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long("a cluster of two brokers")]

RECORDS = 20


def leaderless(log: Log, topic: str) -> frozenset[int]:
    """The partitions of a topic of two that have no leader; both, while a broker does not know it."""
    identity = log.identify([topic])[topic]
    return identity.leaderless if isinstance(identity, TopicIdentity) else frozenset((0, 1))


def create_topic(broker: KafkaBroker, log: Log, topic: str) -> None:
    """Create a topic of two partitions: the first broker has the one, the second broker the other."""
    broker.create_topics({topic: [1, 2]})
    eventually(lambda: not leaderless(log, topic), "the partitions have leaders")


Failure = tuple[Callable[[Path, KafkaBroker], KafkaBroker], Callable[[Any], None], Callable[[Any], None]]
"""Makes the second broker, lets it fail, and brings it back."""
KILLED: Failure = (
    lambda folder, first: KafkaBroker("4.3.1", folder, joins=first),
    KafkaBroker.kill,
    KafkaBroker.start,
)
SILENT: Failure = (
    lambda folder, first: SilentBroker("4.3.1", folder, joins=first),
    SilentBroker.fall_silent,
    SilentBroker.respond_again,
)


@pytest.mark.parametrize("failure", [KILLED, SILENT], ids=["killed", "silent"])
def test_the_other_partitions_are_delivered_and_no_delivery_is_counted_in_vain(
    kafka_to_kill: KafkaBroker, site_to_kill: KafkaSite, tmp_path: Path, failure: Failure
) -> None:
    make, fail, bring_back = failure
    # The second broker may lead no topic but this one.
    site_to_kill.start()
    topic = site_to_kill.new_name("records")
    # Waiting records are returned after half of the lock's duration: no read may wait for so long.
    group_id = site_to_kill.new_group(share_record_lock_duration_ms="60000")
    with make(tmp_path / "second", kafka_to_kill) as second:
        create_topic(kafka_to_kill, site_to_kill.log, topic)
        for partition in range(2):
            site_to_kill.log.append(topic, partition, [NewRecord(None, b"v")] * RECORDS)
        counts: dict[tuple[int | None, int | None], int | None] = {}

        def delivered(consumer: ShareConsumer, partition: int) -> int:
            """The number of records of a partition that were delivered, after one more poll."""
            for message in consumer.poll(0.1):
                counts[message.partition(), message.offset()] = message.delivery_count()
            return sum(number == partition for number, _ in counts)

        with site_to_kill.consumer(group_id, topic, max_poll_records=1) as consumer:
            # From then on the group acquires records of both.
            site_to_kill.until(lambda: all(delivered(consumer, p) for p in range(2)), "both partitions are delivered")
            consumer.commit_sync()
        fail(second)
        with site_to_kill.consumer(group_id, topic) as consumer:
            site_to_kill.until(lambda: delivered(consumer, 0) == RECORDS, "the other partition is delivered")
            bring_back(second)
            site_to_kill.until(
                lambda: delivered(consumer, 1) == RECORDS, "the partition is delivered once its leader responds"
            )
    assert set(counts.values()) == {1}


def test_a_member_joins_beside_a_response_partition_without_a_leader(
    kafka_to_kill: KafkaBroker, tmp_path: Path
) -> None:
    names = ChannelTopics(request_topic_name=f"requests-{uuid4().hex[:8]}", response_topic_name=f"r-{uuid4().hex[:8]}")
    member_id = next(name for name in map(str, range(100)) if partition_for(name, 2) == 0)
    with (
        KafkaLog(KafkaConfig(bootstrap_servers=kafka_to_kill.bootstrap_servers), timeout_ms=10_000) as log,
        KafkaBroker("4.3.1", tmp_path / "second", joins=kafka_to_kill) as second,
    ):
        for topic in (names.request_topic_name, names.response_topic_name):
            create_topic(kafka_to_kill, log, topic)
        second.kill()
        eventually(lambda: leaderless(log, names.response_topic_name) == {1}, "the partition has no leader")
        with closing(ProcessorChannel(log, "g", member_id, topics=names)) as channel:
            assert channel.receive(0) == []


def test_a_spark_member_returns_the_records_of_a_partition_without_a_leader_unread(
    kafka_to_kill: KafkaBroker, tmp_path: Path
) -> None:
    topic = f"records-{uuid4().hex[:8]}"
    with (
        KafkaLog(KafkaConfig(bootstrap_servers=kafka_to_kill.bootstrap_servers)) as log,
        KafkaBroker("4.3.1", tmp_path / "second", joins=kafka_to_kill) as second,
    ):
        create_topic(kafka_to_kill, log, topic)
        for partition in range(2):
            log.append(topic, partition, [NewRecord(None, b"v")] * RECORDS)
        topic_id = log.describe_topic(topic).topic_id
        held = [HeldRange(topic_id, topic, partition, 0, RECORDS - 1, 1) for partition in range(2)]
        assert without_unreadable(log, held) == (held, [])
        second.kill()
        eventually(lambda: leaderless(log, topic) == {1}, "the partition has no leader")
        readable, unreadable = without_unreadable(log, held)
    assert readable == held[:1]
    assert [(ack.partition, ack.offsets, ack.acknowledge_type) for ack in unreadable] == [
        (1, range(RECORDS), AcknowledgeType.UNREAD)
    ]
