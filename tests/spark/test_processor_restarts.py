"""The end of a processor and the next one: what members notice, and what is the same as before."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import FencedProcessorError, ProcessorStoppedError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_records import ShareGroupMetadata
from sharegroup.protocol.group_status import GroupStatus
from sharegroup.protocol.messages import ResponseEnvelope, parsed
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.protocol.share_fetch import INITIAL_EPOCH, ShareFetchRequest
from sharegroup.state.writer import StateTableWriter
from tests.spark.site import REQUESTS, Site, places

NewSite = Callable[..., Site]


def sessions_opened(site: Site, group_id: str) -> int:
    """How often a member of the group opened a share session."""
    fetches = site.requests(group_id, ApiKey.SHARE_FETCH)
    return sum(parsed(ShareFetchRequest, f.body).share_session_epoch == INITIAL_EPOCH for f in fetches)


def transitions(site: Site, group_id: str, cause: Cause) -> list[TransitionEntry]:
    return [entry for row in site.rows(group_id) for entry in row.transitions if entry.cause is cause]


def repeated_answers(responses: list[ResponseEnvelope]) -> list[tuple[str, int]]:
    """(member, correlation id) of what was answered more than once."""
    counts = Counter((answer.member_id, answer.correlation_id) for answer in responses if answer.correlation_id > 0)
    return [key for key, count in counts.items() if count > 1]


@contextmanager
def abandoned(consumer: ShareConsumer) -> Iterator[ShareConsumer]:
    """A consumer that nobody answers any more at the end."""
    try:
        yield consumer
    finally:
        consumer.close(timeout=0)


# With the checkpoint.


def test_a_member_does_not_notice_a_restart(new_site: NewSite) -> None:
    site = new_site(groups={"configured": {"share.delivery.count.limit": "3"}})
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group(share_record_lock_duration_ms="60000")
        consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit")
        held = site.poll(consumer, 10)
    site.produce(topic, 0, 10)
    for message in held:
        consumer.acknowledge(message)
    with site.running(), consumer:
        assert set(consumer.commit_sync().values()) == {None}
        assert places(site.poll(consumer, 10)) == {(0, offset) for offset in range(10, 20)}
        assert sessions_opened(site, group_id) == 1
    assert len(site.rows("configured")) == 1
    assert site.rows(None, RecordType.RECOVERED) == []
    assert [row.leader_epoch for row in site.rows(None, RecordType.FENCE)] == [1, 2]


def test_a_batch_that_is_executed_again_changes_nothing(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=20)
        group_id = site.new_group(share_record_lock_duration_ms="60000")
        consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit", max_poll_records=10)
        held = site.poll(consumer, 10)
    commits = site.checkpoint_path / "query" / "commits"
    last_commit_id = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in (commits / str(last_commit_id), commits / f".{last_commit_id}.crc"):
        path.unlink(missing_ok=True)
    before = site.rows()
    assert repeated_answers(site.responses(group_id)) == []
    with site.running() as processor, consumer:
        site.until(lambda: processor.metrics.batches > 1, "the next batch is committed")
        assert processor.metrics.repeated_batches == 1
        assert [row for row in site.rows() if row.commit_id == last_commit_id] == [
            row for row in before if row.commit_id == last_commit_id
        ]
        for message in held:
            consumer.acknowledge(message)
        assert set(consumer.commit_sync().values()) == {None}
        assert [message.offset() for message in site.poll(consumer, 10)] == list(range(10, 20))


def test_a_processor_that_is_stopped_while_it_works_has_not_failed(new_site: NewSite) -> None:
    site = new_site()
    topic = site.new_topic()
    over = threading.Event()
    with site.running():
        group_id = site.new_group()

    def produce() -> None:
        while not over.is_set():
            site.produce(topic, 0, 1)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for _ in range(3):
            with site.running() as processor:
                consumer = site.consumer(group_id, topic, max_poll_records=1)
                site.poll(consumer, 3)
            consumer.close(timeout=0)
            assert processor.await_termination(60)
    finally:
        over.set()
        producer.join()


# Without the checkpoint.


def test_a_lost_checkpoint_is_rebuilt_and_members_go_on(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=20)
        group_id = site.new_group(share_record_lock_duration_ms="60000")
        consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit", max_poll_records=10)
        held = site.poll(consumer, 10)
        for message in held[:4]:
            consumer.acknowledge(message)
        consumer.commit_sync()
        members = site.folded(group_id).metadata.members
    shutil.rmtree(site.checkpoint_path)
    with site.running(), consumer:
        for message in held[4:]:
            consumer.acknowledge(message)
        assert set(consumer.commit_sync().values()) == {None}
        rest = site.poll(consumer, 10)
        assert [(message.offset(), message.delivery_count()) for message in rest] == [(o, 1) for o in range(10, 20)]
        assert site.folded(group_id).metadata.members == members
    (recovered,) = site.rows(None, RecordType.RECOVERED)
    assert (recovered.leader_epoch, recovered.payload["groups"]) == (2, 1)
    assert {entry.delivery_count for entry in transitions(site, group_id, Cause.ACQUIRE)} == {1}


def test_locks_end_at_their_deadline_after_checkpoint_and_requests_were_lost(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group(share_record_lock_duration_ms="3000")
        consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit")
        for message in site.poll(consumer, 10)[:4]:
            consumer.acknowledge(message)
        consumer.commit_sync()
        found = site.share_partition(group_id)
        assert found is not None
        deadlines = {run.deadline_ms for run in found.share_partition.runs if run.state is RecordState.ACQUIRED}
    consumer.close(timeout=0)
    shutil.rmtree(site.checkpoint_path)
    site.log.delete_topic(REQUESTS)
    applied = site.rows(None, RecordType.COMMIT_MARKER)[-1].payload["end_offsets"]
    with site.running():
        ends = {str(partition): found.end_offset for partition, found in site.log.offsets(REQUESTS).items()}
        assert all(ends[partition] >= offset for partition, offset in applied.items())
        site.until(lambda: transitions(site, group_id, Cause.LOCK_TIMEOUT), "the locks end")
        (ended,) = transitions(site, group_id, Cause.LOCK_TIMEOUT)
        assert (ended.first_offset, ended.last_offset, ended.delivery_count) == (4, 9, 1)
        assert ended.time_ms >= max(deadlines)
        with site.consumer(group_id, topic) as consumer:
            again = site.poll(consumer, 6)
    assert [(message.offset(), message.delivery_count()) for message in again] == [(o, 2) for o in range(4, 10)]


# The end.


def test_an_older_processor_stops_when_another_one_takes_over(new_site: NewSite) -> None:
    old, new = new_site(), new_site(checkpoint="other-checkpoint")
    older = old.start()
    topic = old.new_topic(record_count=5)
    group_id = old.new_group()
    with abandoned(old.consumer(group_id, topic)) as consumer:
        old.poll(consumer, 5)
        with new.running():
            with pytest.raises(FencedProcessorError, match="belongs to leader epoch 2; this processor has 1"):
                older.await_termination(60)
            consumer.commit_sync()
            new.produce(topic, 0, 5)
            assert len(new.poll(consumer, 5)) == 5
            consumer.commit_sync()
            assert new.is_drained(group_id, topic)
            (recovered,) = new.rows(None, RecordType.RECOVERED)
    last_of_old = max(
        (row for row in new.rows(None, RecordType.COMMIT_MARKER) if row.leader_epoch == 1), key=lambda row: row.commit_id
    )
    assert recovered.payload["start_offsets"].items() >= last_of_old.payload["end_offsets"].items()
    assert repeated_answers(new.responses(group_id)) == []


def test_without_its_clock_a_processor_stops(new_site: NewSite) -> None:
    site = new_site()
    processor = site.start()
    topic = site.new_topic(record_count=1)
    with abandoned(site.consumer(site.new_group(), topic)) as consumer:
        site.poll(consumer, 1)
        with sqlite3.connect(site.log_path) as connection:
            connection.execute("UPDATE topics SET config = '{' WHERE name = ?", (topic,))
        connection.close()
        with pytest.raises(ProcessorStoppedError, match="The processor stopped: JSONDecodeError: "):
            processor.await_termination(60)
        with pytest.raises(ProcessorStoppedError):
            processor.raise_failure()


def test_a_query_that_somebody_else_stops_is_a_failure(new_site: NewSite) -> None:
    site = new_site()
    others = {query.id for query in site.spark.streams.active}
    processor = site.start()
    (query,) = (query for query in site.spark.streams.active if query.id not in others)
    query.stop()
    with pytest.raises(ProcessorStoppedError, match="Somebody else stopped"):
        processor.await_termination(60)


def test_one_group_that_fails_leaves_all_others_going(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=5)
        bad, good = site.new_group(), site.new_group()
    # An epoch that cannot rise any more: the next member that joins meets an error that nobody foresaw.
    record = ShareGroupMetadata(epoch=2**31 - 1).model_dump(mode="json")
    last = site.rows(bad)[-1]
    forged = StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id=bad,
        time_ms=last.time_ms,
        request_partition=last.request_partition,
        request_offset=last.request_offset,
        payload={"records": [record]},
    )
    StateTableWriter.open(str(site.state_path), {}).append([forged])
    shutil.rmtree(site.checkpoint_path)
    with site.running(), abandoned(site.consumer(bad, topic)), site.consumer(good, topic) as consumer:
        assert len(site.poll(consumer, 5)) == 5
        (status,) = site.until(lambda: site.rows(bad, RecordType.GROUP_STATUS), "the group is quarantined")
        assert status.payload["status"] == GroupStatus.FAILED
        assert "coordinator failed on message" in status.payload["reason"]
        site.produce(topic, 0, 5)
        assert len(site.poll(consumer, 5)) == 5
    assert site.folded(good).failures == {}
