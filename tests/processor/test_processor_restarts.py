"""The end of a processor and the next one: what members notice, and what is the same as before."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import FencedProcessorError, ForeignCommitError, OlderStateError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.takeover.takeover import DeltaStateTable, take_over
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_records import ShareGroupMetadata
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.row_payloads import GroupStatus
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.protocol.share_fetch import INITIAL_EPOCH, ShareFetchRequest
from sharegroup.state.writer import StateTableWriter
from tests.support.processor_thread import ProcessorThread
from tests.support.site import REQUESTS, RESPONSES, Site

pytestmark = pytest.mark.slow

NewSite = Callable[..., Site]


def sessions_opened(site: Site, group_id: str) -> int:
    """How often a member of the group opened a share session."""
    fetches = site.requests(group_id, ApiKey.SHARE_FETCH)
    return sum(parsed(ShareFetchRequest, f.body).share_session_epoch == INITIAL_EPOCH for f in fetches)


def transitions(site: Site, group_id: str, cause: Cause) -> list[TransitionEntry]:
    return [entry for row in site.rows(group_id) for entry in row.transitions if entry.cause is cause]


@contextmanager
def abandoned(consumer: ShareConsumer) -> Iterator[ShareConsumer]:
    """A consumer that gets no responses any more at the end."""
    try:
        yield consumer
    finally:
        consumer.close(timeout=0)


def await_offsets(site: Site, consumer: ShareConsumer, offsets: Iterable[int]) -> None:
    """Poll and acknowledge until all of these offsets were delivered."""
    missing = set(offsets)
    while missing:
        missing -= {message.offset() for message in site.poll(consumer, 1)}
    consumer.commit_sync()


def test_members_keep_their_locks_over_a_restart_and_reopen_their_sessions(new_site: NewSite) -> None:
    site = new_site(groups={"configured": {"share.delivery.count.limit": "3"}})
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group(share_record_lock_duration_ms="60000")
        consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit")
        held = site.poll(consumer, 10)
        members = site.folded(group_id).metadata.members
    site.produce(topic, 0, 10)
    for message in held:
        consumer.acknowledge(message)
    with site.running(), consumer:
        assert set(consumer.commit_sync().values()) == {None}
        assert [(m.offset(), m.delivery_count()) for m in site.poll(consumer, 10)] == [(o, 1) for o in range(10, 20)]
        assert sessions_opened(site, group_id) == 2
        assert site.folded(group_id).metadata.members == members
    assert len(site.rows("configured", RecordType.GROUP_METADATA)) == 1
    assert [row.leader_epoch for row in site.rows(None, RecordType.FENCE)] == [1, 2]
    assert {entry.delivery_count for entry in transitions(site, group_id, Cause.ACQUIRE)} == {1}


def test_a_clean_end_leaves_nothing_to_apply_again(new_site: NewSite) -> None:
    site = new_site()
    with site.running() as processor:
        topic = site.new_topic(record_count=5)
        with site.consumer(site.new_group(), topic) as consumer:
            site.poll(consumer, 5)
        published_ends = dict(processor.processor.published_ends)
    marker = site.reader.last_marker()
    assert marker is not None
    # A message of the processor itself may come after the last take.
    assert all(marker.end_offsets[partition] >= end for partition, end in published_ends.items())
    assert sum(published_ends.values()) > 5


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
            processor.raise_failure()
    finally:
        over.set()
        producer.join()


def test_locks_end_at_their_deadline_after_the_requests_were_lost(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group(share_record_lock_duration_ms="3000")
        consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit")
        for message in site.poll(consumer, 10)[:4]:
            consumer.acknowledge(message)
        consumer.commit_sync()
        partition = site.share_partition(group_id)
        assert partition is not None
        deadlines = {run.deadline_ms for run in partition.share_partition.runs if run.state is RecordState.ACQUIRED}
    consumer.close(timeout=0)
    site.log.delete_topic(REQUESTS)
    applied = site.rows(None, RecordType.COMMIT_MARKER)[-1].payload["end_offsets"]
    with site.running():
        ends = {str(partition): offsets.end_offset for partition, offsets in site.log.offsets(REQUESTS).items()}
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
    old, new = new_site(), new_site()
    older = old.start()
    topic = old.new_topic(record_count=5)
    group_id = old.new_group()
    with abandoned(old.consumer(group_id, topic)) as consumer:
        old.poll(consumer, 5)
        with new.running():
            with pytest.raises(FencedProcessorError, match="epoch 2"):
                older.await_failure()
            consumer.commit_sync()
            new.produce(topic, 0, 5)
            assert len(new.poll(consumer, 5)) == 5
            consumer.commit_sync()
            assert new.is_drained(group_id, topic)


def test_a_processor_without_its_request_topic_stops(new_site: NewSite) -> None:
    site = new_site()
    processor = site.start()
    site.log.delete_topic(REQUESTS)
    with pytest.raises(UnknownTopicError, match="was deleted"):
        processor.await_failure()
    with pytest.raises(UnknownTopicError):
        processor.raise_failure()


class EndedError(Exception):
    """The end of a processor."""


def end(_: int) -> None:
    raise EndedError


def test_only_processors_that_came_to_apply_messages_make_the_next_ones_careful(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        site.new_group()
    config = site.settings.processor
    for _ in range(3):
        with pytest.raises(EndedError):
            take_over(site.log, DeltaStateTable(site.table_path), config, fenced=end)
    careful = [take_over(site.log, DeltaStateTable(site.table_path), config).applies_one_by_one for _ in range(4)]
    assert careful == [False, False, True, True]
    with site.running():
        site.new_group()
    assert not take_over(site.log, DeltaStateTable(site.table_path), config).applies_one_by_one


def test_an_older_copy_of_the_state_table_is_refused(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group()
        with site.consumer(group_id, topic, max_poll_records=5) as consumer:
            site.poll(consumer, 5)
            consumer.commit_sync()
    shutil.copytree(site.state_path, tmp_path / "older")
    with site.running(), site.consumer(group_id, topic, max_poll_records=5) as consumer:
        site.poll(consumer, 5)
        consumer.commit_sync()
    shutil.rmtree(site.state_path)
    (tmp_path / "older").rename(site.state_path)
    with pytest.raises(OlderStateError, match="--accept-older-state"):
        site.start()
    assert len(site.rows(None, RecordType.FENCE)) == 1
    site.stop()
    accepted = ProcessorThread(site.settings, accepts_older_state=True)
    accepted.start()
    with site.consumer(group_id, topic) as consumer:
        assert [message.offset() for message in site.poll(consumer, 5)] == list(range(5, 10))
    accepted.stop()


def test_a_member_outlives_an_older_copy_of_the_state_table(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    topic = site.new_topic(record_count=10)
    with site.running():
        group_id = site.new_group()
    shutil.copytree(site.state_path, tmp_path / "older")
    for _ in range(2):
        with site.running():
            site.new_group()
    with site.running():
        consumer = site.consumer(group_id, topic)
        assert len(site.poll(consumer, 10)) == 10
        consumer.commit_sync()
    shutil.rmtree(site.state_path)
    (tmp_path / "older").rename(site.state_path)
    # The copy gives leader epochs again that the member and the request log have seen.
    accepted = ProcessorThread(site.settings, accepts_older_state=True)
    accepted.start()
    with consumer:
        site.produce(topic, 0, 5)
        # What was finished after the copy may be delivered again, before or between.
        await_offsets(site, consumer, range(10, 15))
        accepted.stop()
        # From now on the copy is the state, and needs no permission any more.
        site.start()
        site.produce(topic, 0, 5)
        await_offsets(site, consumer, range(15, 20))
    site.stop()
    fences = site.rows(None, RecordType.FENCE)
    assert [row.leader_epoch for row in fences] == [1, 2, 3]
    assert [bool(row.payload["state_id"]) for row in fences] == [False, True, True]
    assert fences[1].payload["state_id"] == fences[2].payload["state_id"]


def test_a_restore_beside_a_processor_stops_it_and_refuses_the_next_start_until_its_loss_is_accepted(
    new_site: NewSite,
) -> None:
    site = new_site()
    processor = site.start()
    topic = site.new_topic(record_count=10)
    group_id = site.new_group()
    table = DeltaTable(site.table_path)
    with abandoned(site.consumer(group_id, topic)) as consumer:
        site.poll(consumer, 10)
        consumer.commit_sync()
        DeltaTable(site.table_path).restore(table.version())
        # The next change of the state is to be committed.
        site.produce(topic, 0, 5)
        with pytest.raises(ForeignCommitError, match="was made by RESTORE of another program"):
            processor.await_failure()
    site.stop()
    fences = site.rows(None, RecordType.FENCE)
    # Nothing in the logs shows the loss.
    site.log.delete_topic(RESPONSES)
    with pytest.raises(OlderStateError, match=r"it lacks commits \d+ to \d+.*--accept-older-state"):
        site.start()
    site.stop()
    assert site.rows(None, RecordType.FENCE) == fences
    accepted = ProcessorThread(site.settings, accepts_older_state=True)
    accepted.start()
    with site.consumer(group_id, topic) as consumer:
        await_offsets(site, consumer, range(15))
    accepted.stop()
    with site.running(), site.consumer(group_id, topic) as consumer:
        site.produce(topic, 0, 1)
        await_offsets(site, consumer, [15])


def test_a_start_ignores_records_that_no_processor_wrote(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        group_id = site.new_group()
    site.log.append(REQUESTS, 0, [NewRecord(None, b"{"), NewRecord(None, None)])
    with site.running():
        topic = site.new_topic(record_count=5)
        with site.consumer(group_id, topic) as consumer:
            assert len(site.poll(consumer, 5)) == 5


def test_a_member_outlives_a_state_table_that_is_deleted_and_created_again(new_site: NewSite) -> None:
    site = new_site()
    topic = site.new_topic(record_count=10)
    for _ in range(2):
        with site.running():
            pass
    with site.running():
        group_id = site.new_group()
        consumer = site.consumer(group_id, topic)
        assert len(site.poll(consumer, 10)) == 10
        consumer.commit_sync()
    shutil.rmtree(site.state_path)
    renewed = ProcessorThread(site.settings, accepts_older_state=True)
    renewed.start()
    with consumer:
        site.new_group(group_id)
        site.produce(topic, 0, 5)
        # What was finished is delivered again: nothing of the former state is known.
        assert {message.offset() for message in site.poll(consumer, 15)} == set(range(15))
        consumer.commit_sync()
    assert {row.leader_epoch for row in site.rows(None, RecordType.FENCE)} == {1}
    renewed.stop()


def test_offsets_that_a_shorter_copy_of_the_log_has_lost_are_not_given_out_again(
    new_site: NewSite, tmp_path: Path
) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=3)
        group_id = site.new_group()
    site.log.close()
    shutil.copy(site.log_path, tmp_path / "older.db")
    site.log = LocalLog(site.log_path)
    with site.running():
        site.produce(topic, 0, 7)
        with site.consumer(group_id, topic) as consumer:
            site.poll(consumer, 10)
            consumer.commit_sync()
    site.log.close()
    for path in site.log_path.parent.glob(f"{site.log_path.name}*"):
        if path.is_file():
            path.unlink()
    shutil.copy(tmp_path / "older.db", site.log_path)
    site.log = LocalLog(site.log_path)
    with site.running():
        assert site.log.offsets(topic)[0].end_offset == 10
        site.produce(topic, 0, 2)
        with site.consumer(group_id, topic) as consumer:
            assert [message.offset() for message in site.poll(consumer, 2)] == [10, 11]


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
    marker = site.reader.last_marker()
    assert marker is not None
    payload = CommitMarkerPayload(row_count=2, end_offsets=dict(marker.end_offsets)).model_dump(mode="json")
    row = StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=last.time_ms, payload=payload)
    StateTableWriter.open(str(site.state_path), {}).append([row, forged], marker.commit_id + 1)
    with site.running(), abandoned(site.consumer(bad, topic)), site.consumer(good, topic) as consumer:
        assert len(site.poll(consumer, 5)) == 5
        (status,) = site.until(lambda: site.rows(bad, RecordType.GROUP_STATUS), "the group is quarantined")
        assert status.payload["status"] == GroupStatus.FAILED
        assert "coordinator failed on message" in status.payload["reason"]
        site.produce(topic, 0, 5)
        assert len(site.poll(consumer, 5)) == 5
    assert site.folded(good).failures == {}
