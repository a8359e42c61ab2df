"""Dead-letter records on a real broker."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.dead_letters.records import NOT_COPIED_HEADER, append_dead_letter_records
from tests.kafka.site import KafkaSite
from tests.support.kafka_broker import KafkaBroker


def test_records_that_are_too_large_for_their_topic_are_appended_without_the_copy(log: KafkaLog) -> None:
    topic = log.create_topic(f"dlq-{uuid4().hex[:8]}", 2, {"max.message.bytes": "2000"}).name
    # The small ones are too large for the topic only together.
    values = [b"x" * 5_000 if number == 11 else b"x" * 300 for number in range(20)]
    records = [NewRecord(b"key", value, (("offset", b"%d" % n),)) for n, value in enumerate(values)]
    assert append_dead_letter_records(log, topic, {0: records, 1: records[:2]}) == 1
    appended = log.read(topic, 0, 0, log.offsets(topic)[0].end_offset)
    assert [dict(record.headers)["offset"] for record in appended] == [b"%d" % n for n in range(20)]
    assert [record.value for record in appended] == [None if n == 11 else value for n, value in enumerate(values)]
    assert [n for n, record in enumerate(appended) if NOT_COPIED_HEADER in dict(record.headers)] == [11]


def reject_record(site: KafkaSite, topic: str, dlq_topic: str) -> None:
    """Let a group with this dead-letter topic reject the topic's one record."""
    group_id = site.new_group(errors_deadletterqueue_topic_name=dlq_topic)
    with site.consumer(group_id, topic, share_acknowledgement_mode="explicit") as consumer:
        (message,) = site.poll(consumer, 1)
        consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync()


@pytest.mark.long("a second broker, and partitions without a leader")
def test_a_dead_letter_topic_without_a_leader_holds_up_no_other(
    kafka_to_kill: KafkaBroker, site_to_kill: KafkaSite, tmp_path: Path
) -> None:
    stuck, other = (f"dlq-{uuid4().hex[:8]}" for _ in range(2))
    # The second broker may lead no topic but the stuck one.
    site_to_kill.start()
    topics = [site_to_kill.new_topic(record_count=1) for _ in range(2)]
    with KafkaBroker("4.3.1", tmp_path / "second", joins=kafka_to_kill) as second:
        kafka_to_kill.create_topics({stuck: [2], other: [1]})
        second.kill()
        writer = site_to_kill.running_processor().processor._started().dead_letters
        reject_record(site_to_kill, topics[0], stuck)
        site_to_kill.until(lambda: writer.metrics.waiting_records, "the record waits for its dead-letter record")
        reject_record(site_to_kill, topics[1], other)
        site_to_kill.until(
            lambda: site_to_kill.log.offsets(other)[0].end_offset, "the other group's dead-letter record"
        )
        second.start()
        site_to_kill.until(lambda: writer.metrics.waiting_records == 0, "the first group's dead-letter record")
        assert site_to_kill.log.offsets(stuck)[0].end_offset >= 1
