"""The dead-letter queue end to end: members give records up, and the topic of the queue has their copies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.processor.dead_letters import writer as dead_letter_writer
from sharegroup.protocol.row_payloads import GroupStatus
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from tests.support.site import BROKER, Site

pytestmark = pytest.mark.slow

NewSite = Callable[..., Site]


def dead_letter_records(site: Site, topic: str) -> list[tuple[int, dict[str, str]]]:
    """(partition, headers without their prefix) of each letter."""
    return [
        (
            record.partition,
            {key.removeprefix("__dlq.errors."): (value or b"").decode() for key, value in record.headers},
        )
        for partition, offsets in site.log.offsets(topic).items()
        for record in site.log.read(topic, partition, offsets.start_offset, offsets.end_offset)
    ]


def dead_letter_causes(site: Site, group_id: str) -> list[tuple[RecordState | None, RecordState]]:
    return [
        (entry.from_state, entry.to_state)
        for row in site.rows(group_id)
        for entry in row.transitions
        if entry.cause is Cause.DEAD_LETTER_WRITTEN
    ]


def test_rejected_and_exceeded_records_have_dead_letter_records(site: Site) -> None:
    dlq = site.new_name("dlq")
    site.log.create_topic(dlq, 1)
    topic = site.new_topic(partition_count=2, record_count=3)
    group_id = site.new_group(
        errors_deadletterqueue_topic_name=dlq,
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="2",
    )
    with site.consumer(group_id, topic, share_acknowledgement_mode="explicit") as consumer:
        handled = 0

        def work() -> bool:
            nonlocal handled
            for message in consumer.poll(timeout=0.2):
                handled += 1
                kind = {0: AcknowledgeType.REJECT, 1: AcknowledgeType.RELEASE}.get(message.offset() or 0)
                consumer.acknowledge(message, kind or AcknowledgeType.ACCEPT)
            return site.is_drained(group_id, topic)

        site.until(work, "all records are finished")
    assert handled == 8
    message = {0: "Offset rejected by client.", 1: "Offset delivery count exceeded the threshold."}
    expected = [
        {
            "topic": topic,
            "partition": str(partition),
            "offset": str(offset),
            "group": group_id,
            "delivery.count": str(offset + 1),
            "message": message[offset],
        }
        for partition in range(2)
        for offset in range(2)
    ]
    written = dead_letter_records(site, dlq)
    assert sorted((headers for _, headers in written), key=lambda h: (h["partition"], h["offset"])) == expected
    assert set(dead_letter_causes(site, group_id)) == {(RecordState.ARCHIVING, RecordState.ARCHIVED)}
    copied = {record.value for record in site.log.read(dlq, 0, 0, 10)}
    assert copied == {record.value for partition in range(2) for record in site.log.read(topic, partition, 0, 2)}
    assert verify(site.rows(), BROKER).findings == []


def test_what_is_archiving_when_a_processor_ends_is_written_by_the_next(
    new_site: NewSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_writer, "_FIRST_BACKOFF_S", 0.05)
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=5)
        group_id = site.new_group(errors_deadletterqueue_topic_name="dlq")
        with site.consumer(group_id, topic, share_acknowledgement_mode="explicit") as consumer:
            for message in site.poll(consumer, 5):
                consumer.acknowledge(message, AcknowledgeType.REJECT)
            consumer.commit_sync()
        site.until(lambda: site.rows(group_id, RecordType.GROUP_STATUS), "the table says that the topic is missing")
    partitions = fold(site.rows()).groups[group_id].partitions.values()
    archiving = [run for led in partitions for run in led.share_partition.runs if run.state is RecordState.ARCHIVING]
    assert sum(run.last_offset - run.first_offset + 1 for run in archiving) == 5
    status = site.rows(group_id, RecordType.GROUP_STATUS)[-1].payload
    assert status["status"] == GroupStatus.DEGRADED
    assert "Dead-letter topic dlq does not exist" in status["reason"]
    assert verify(site.rows(), BROKER).degraded == {group_id: status["reason"]}
    site.log.create_topic("dlq", 1)
    with site.running():
        site.until(lambda: site.is_drained(group_id, topic), "all records are finished")
        site.until(
            lambda: not verify(site.rows(), BROKER).degraded,
            "the table says that the queue works again",
        )
    assert [headers["offset"] for _, headers in dead_letter_records(site, "dlq")] == ["0", "1", "2", "3", "4"]
    assert verify(site.rows(), BROKER).findings == []


def test_a_later_group_of_a_deleted_groups_name_gets_none_of_its_dead_letter_records(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=5)
        site.log.create_topic("dlq", 1)

        def reject(group_id: str, count: int) -> None:
            with site.consumer(
                group_id, topic, share_acknowledgement_mode="explicit", max_poll_records=count
            ) as member:
                for message in site.poll(member, count)[:count]:
                    member.acknowledge(message, AcknowledgeType.REJECT)
                member.commit_sync()

        group_id = site.new_group(errors_deadletterqueue_topic_name="missing")
        reject(group_id, 5)
        assert site.admin.delete_share_groups([group_id]) == {group_id: None}
        site.new_group(group_id, errors_deadletterqueue_topic_name="dlq")
        reject(group_id, 1)
        site.until(lambda: dead_letter_causes(site, group_id), "the later group's record is archived")
        assert [headers["offset"] for _, headers in dead_letter_records(site, "dlq")] == ["0"]
    assert verify(site.rows(), BROKER).findings == []
