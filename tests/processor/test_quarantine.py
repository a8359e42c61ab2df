"""A group whose actors fail: it is rebuilt aside and quarantined, and all others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from sharegroup import KafkaException
from sharegroup.actor import acknowledgements, share_requests
from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.audit.verification.verify import verify
from sharegroup.client.described_groups import GroupDescription
from sharegroup.client.group_reader import GroupReader
from sharegroup.client.processor_groups import ProcessorGroups
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.records import PartitionKey, SharePartitionLimits
from sharegroup.errors import GroupQuarantinedError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_description import GroupStateName
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import Message, request
from sharegroup.protocol.rows import RecordType
from sharegroup.protocol.share_fetch import (
    AcknowledgementRange,
    FetchPartition,
    FetchTopic,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from tests.support.eventually import DEADLINE_S
from tests.support.site import BROKER, REQUEST_PARTITIONS, REQUESTS, Site

pytestmark = pytest.mark.slow

QUARANTINED = GroupQuarantinedError.code
NewSite = Callable[..., Site]

MARKER = RecordType.COMMIT_MARKER


class FailingGroup:
    """A group with one member, whose requests fail the leader when its client id is "broken"."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.topic = site.new_topic(record_count=20)
        self.topic_id = site.log.describe_topic(self.topic).topic_id
        self.group_id = site.new_group(share_record_lock_duration_ms="60000")
        with site.consumer(self.group_id, self.topic, max_poll_records=1) as consumer:
            site.poll(consumer, 1)
            consumer.commit_sync()
        self._correlation_id = 0

    def envelope(self, api_key: ApiKey, body: Message, client_id: str = "whole") -> bytes:
        self._correlation_id += 1
        return request(
            api_key,
            self.group_id,
            body,
            member_id="anna",
            client_id=client_id,
            correlation_id=self._correlation_id,
            reply_partition=0,
        ).encoded()

    def open_session(self) -> bytes:
        topic = FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=0)])
        body = ShareFetchRequest(share_session_epoch=0, topics=[topic], max_records=10, batch_size=10, max_wait_ms=0)
        return self.envelope(ApiKey.SHARE_FETCH, body)

    def accept(self, first: int, last: int, epoch: int, client_id: str = "whole") -> bytes:
        acknowledged = AcknowledgementRange(
            first_offset=first, last_offset=last, acknowledge_types=[AcknowledgeType.ACCEPT]
        )
        partition = FetchPartition(partition_index=0, acknowledgement_batches=[acknowledged])
        topic = FetchTopic(topic_id=self.topic_id, partitions=[partition])
        body = ShareAcknowledgeRequest(share_session_epoch=epoch, topics=[topic])
        return self.envelope(ApiKey.SHARE_ACKNOWLEDGE, body, client_id)

    def send(self, *values: bytes) -> list[int]:
        """Append requests together; the error codes of their responses, in order."""
        partition = partition_for(self.group_id, REQUEST_PARTITIONS)
        wanted = range(self._correlation_id - len(values) + 1, self._correlation_id + 1)
        records = [NewRecord(self.group_id.encode(), value) for value in values]
        self.site.log.append(REQUESTS, partition, records)

        def codes() -> dict[int, int]:
            responses = [response for response in self.site.responses(self.group_id) if response.member_id == "anna"]
            return {response.correlation_id: response.body.get("error_code", 0) for response in responses}

        self.site.until(lambda: all(number in codes() for number in wanted), "all have responses")
        return [codes()[number] for number in wanted]

    def states(self) -> dict[RecordState, int]:
        folded = self.site.share_partition(self.group_id)
        assert folded is not None
        counts: dict[RecordState, int] = {}
        for run in folded.share_partition.runs:
            counts[run.state] = counts.get(run.state, 0) + run.size
        return counts


@pytest.fixture
def _broken_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: acknowledgements of clients that call themselves "broken" raise what nobody foresaw."""

    def acknowledge(
        message: LoggedRequest, topics: Iterable[FetchTopic], partitions: LedPartitions, limits: SharePartitionLimits
    ) -> tuple[dict[PartitionKey, PartitionResponse], bool]:
        if message.envelope.client_id == "broken":
            raise TypeError("'NoneType' object is not subscriptable")
        return acknowledgements.acknowledge(message, topics, partitions, limits)

    monkeypatch.setattr(share_requests, "acknowledge", acknowledge)


@pytest.mark.usefixtures("_broken_leader")
def test_messages_before_the_bad_one_count_and_those_after_it_are_refused(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        group = FailingGroup(site)
        assert group.send(group.open_session()) == [0]
        held = group.states()[RecordState.ACQUIRED]
        before = group.accept(1, 3, 1)
        bad, after = group.accept(4, 5, 2, "broken"), group.accept(6, 7, 2)
        assert group.send(before, bad, after)[1:] == [QUARANTINED, QUARANTINED]
        assert "TypeError" in site.folded(group.group_id).failures[ActorRole.LEADER]
        assert group.states()[RecordState.ACQUIRED] >= held - 3
        assert group.send(group.accept(6, 7, 2)) == [QUARANTINED]
    assert verify(site.rows(), BROKER).findings == []
    markers = [CommitMarkerPayload.model_validate(row.payload) for row in site.rows() if row.record_type is MARKER]
    rebuilt = [(marker, cut) for marker in markers for cut in marker.group_cuts]
    assert [cut.group_id for _, cut in rebuilt] == [group.group_id], "an audit can cut the log as it was cut"
    assert all(cut.end_offset <= marker.end_offsets[cut.partition] for marker, cut in rebuilt)


@pytest.mark.usefixtures("_broken_leader")
def test_all_others_go_on_until_an_administrator_resumes_the_group(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        group = FailingGroup(site)
        group.send(group.open_session())
        assert group.send(group.accept(1, 3, 1, "broken")) == [QUARANTINED]
        other = site.new_group("beside")
        with site.consumer(other, group.topic) as consumer:
            assert len(site.poll(consumer, 20)) == 20
            consumer.commit_sync()
        assert site.is_drained(other, group.topic)
        site.admin.resume_group(group.group_id, timeout=DEADLINE_S)
        site.until(lambda: not site.folded(group.group_id).failures, "the group is active")
        assert group.send(group.accept(1, 10, 1)) == [0]
        site.until(lambda: RecordState.ACQUIRED not in group.states(), "they are accepted")
    assert verify(site.rows(), BROKER).findings == []


@pytest.mark.usefixtures("_broken_leader")
def test_a_quarantined_group_is_listed_and_described_as_the_state_table_has_it(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        group = FailingGroup(site)
        group.send(group.open_session(), group.accept(1, 3, 1, "broken"))
        listing = next(listed for listed in site.admin.list_groups() if listed.group_id == group.group_id)
        assert listing.state is GroupStateName.QUARANTINED
        from_processor = ProcessorGroups(site.log, BROKER, "test", None, 30).group(group.group_id)
        from_table = GroupReader(site.log, str(site.state_path), BROKER).group(group.group_id)
        assert [failed.role for failed in from_processor.quarantine] == ["leader"]
        assert "TypeError" in from_processor.quarantine[0].reason
        assert without_time(from_processor) == without_time(from_table)


def without_time(group: GroupDescription) -> GroupDescription:
    return replace(group, locks=tuple(replace(lock, remaining_ms=0) for lock in group.locks))


@pytest.mark.usefixtures("_broken_leader")
def test_a_quarantine_lasts_over_a_restart(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        group = FailingGroup(site)
        group.send(group.open_session())
        assert group.send(group.accept(1, 3, 1, "broken")) == [QUARANTINED]
    with site.running():
        assert group.send(group.open_session()) == [QUARANTINED]
    assert verify(site.rows(), BROKER).findings == []


@pytest.mark.usefixtures("_broken_leader")
def test_a_consumer_hears_of_it_once_and_goes_on_when_the_group_is_resumed(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        group = FailingGroup(site)
        with site.consumer(group.group_id, group.topic) as consumer:
            assert site.poll(consumer, 1)
            group.send(group.open_session(), group.accept(1, 3, 1, "broken"))
            with pytest.raises(KafkaException, match="subscriptable") as info:
                site.poll(consumer, 20)
            error = info.value.args[0]
            assert (error.code(), error.fatal(), error.retriable()) == (QUARANTINED, False, False)
            assert consumer.poll(2).is_empty()
            site.admin.resume_group(group.group_id, timeout=DEADLINE_S)
            site.produce(group.topic, 0, 5)
            assert site.poll(consumer, 1)
