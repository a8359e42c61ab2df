"""A share consumer on a topic of which a partition has no leader, with a processor and real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.port import NewRecord, TopicIdentity
from tests.kafka.site import KafkaSite
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 20


@pytest.fixture
def site(kafka_to_kill: KafkaBroker, tmp_path: Path) -> Iterator[KafkaSite]:
    site = KafkaSite(tmp_path, kafka=KafkaConfig(bootstrap_servers=kafka_to_kill.bootstrap_servers))
    yield site
    site.close()


def test_the_other_partitions_are_delivered_and_no_delivery_is_counted_in_vain(
    kafka_to_kill: KafkaBroker, site: KafkaSite, tmp_path: Path
) -> None:
    # The second broker may lead no topic but this one.
    site.start()
    topic = site.new_name("records")
    # Waiting records are returned after half of the lock's duration: no read may wait for so long.
    group_id = site.new_group(share_record_lock_duration_ms="60000")
    with KafkaBroker("4.3.1", tmp_path / "second", joins=kafka_to_kill) as second:
        admin = AdminClient({"bootstrap.servers": kafka_to_kill.bootstrap_servers})
        for future in admin.create_topics([NewTopic(topic, 2, replica_assignment=[[1], [2]])]).values():
            future.result()

        def leaderless() -> frozenset[int]:
            identity = site.log.identify([topic])[topic]
            return identity.leaderless if isinstance(identity, TopicIdentity) else frozenset((0, 1))

        eventually(lambda: not leaderless(), "the partitions have leaders")
        for partition in range(2):
            site.log.append(topic, partition, [NewRecord(None, b"v")] * RECORDS)
        counts: dict[tuple[int | None, int | None], int | None] = {}

        def delivered(consumer: ShareConsumer, partition: int) -> int:
            """The number of records of a partition that were delivered, after one more poll."""
            for message in consumer.poll(0.1):
                counts[message.partition(), message.offset()] = message.delivery_count()
            return sum(number == partition for number, _ in counts)

        with site.consumer(group_id, topic, max_poll_records=1) as consumer:
            # From then on the group acquires records of both.
            site.until(lambda: all(delivered(consumer, p) for p in range(2)), "both partitions are delivered")
            consumer.commit_sync()
        second.kill()
        with site.consumer(group_id, topic) as consumer:
            site.until(lambda: delivered(consumer, 0) == RECORDS, "the other partition is delivered")
            second.start()
            site.until(lambda: delivered(consumer, 1) == RECORDS, "the partition is delivered once it has a leader")
    assert set(counts.values()) == {1}
