"""The processor as its members see it, with a real log and a real state table; one processor for all tests."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.exchange import Request
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import InvalidRequestError, UnsupportedVersionError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatRequest
from sharegroup.protocol.messages import Message, ResponseEnvelope, parsed, request
from sharegroup.protocol.rows import RecordType
from sharegroup.protocol.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from tests.support.site import BROKER, REQUEST_PARTITIONS, Site, places

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000


def test_a_consumer_drains_a_topic(site: Site) -> None:
    topic = site.new_topic(partition_count=3, record_count=200)
    group_id = site.new_group()
    with site.consumer(group_id, topic, max_poll_records=100) as consumer:
        messages = site.poll(consumer, 600)
        consumer.commit_sync()
        assert site.is_drained(group_id, topic)
    assert places(messages) == {(partition, offset) for partition in range(3) for offset in range(200)}
    assert len(messages) == 600
    assert {message.delivery_count() for message in messages} == {1}


def test_a_response_is_in_the_state_table_before_its_member_has_it(site: Site) -> None:
    topic = site.new_topic()
    group_id = site.new_group()
    with site.consumer(group_id, topic) as consumer:
        for offset in range(5):
            site.produce(topic, 0, 1)
            site.poll(consumer, 1)
            held = site.share_partition(group_id)
            assert held is not None
            runs = held.share_partition.runs
            assert [(run.last_offset, run.state) for run in runs] == [(offset, RecordState.ACQUIRED)]
            consumer.commit_sync()
            finished = site.share_partition(group_id)
            assert finished is not None
            assert finished.share_partition.start_offset == offset + 1


def test_two_groups_do_not_disturb_each_other(site: Site) -> None:
    topic = site.new_topic(partition_count=2, record_count=30)
    one, two = site.new_group(), site.new_group()
    with (
        site.consumer(one, topic) as reader,
        site.consumer(two, topic, share_acknowledgement_mode="explicit") as holder,
    ):
        held = site.poll(holder, 60)
        messages = site.poll(reader, 60)
        reader.commit_sync()
        assert site.is_drained(one, topic)
        assert not site.is_drained(two, topic)
        assert places(messages) == places(held)
        for message in held:
            holder.acknowledge(message)
        assert set(holder.commit_sync().values()) == {None}
    assert site.is_drained(two, topic)


def test_a_group_id_may_hold_anything(site: Site) -> None:
    topic = site.new_topic(record_count=3)
    group_id = site.new_group('grüße/"🙂"\n\\ ' + "x" * 500)
    with site.consumer(group_id, topic) as consumer:
        assert len(site.poll(consumer, 3)) == 3


def test_configured_groups_have_their_configuration_and_a_row_that_says_so(site: Site) -> None:
    rows = site.until(lambda: site.rows("configured", RecordType.GROUP_METADATA), "the group has a row")
    assert [row.payload["records"] for row in rows] == [
        [{"type": "ShareGroupConfig", "overrides": {"share.delivery.count.limit": "3"}}]
    ]


def test_a_reset_by_duration_begins_with_the_first_record_that_is_young_enough(site: Site) -> None:
    topic = site.new_topic()
    now_ms = time.time_ns() // 1_000_000
    for age_days in (4, 3, 2, 1, 0):
        site.log.append(topic, 0, [NewRecord(None, b"value", timestamp_ms=now_ms - age_days * DAY_MS)])
    group_id = site.new_group(share_auto_offset_reset="by_duration:P2DT12H")
    with site.consumer(group_id, topic) as consumer:
        assert places(site.poll(consumer, 3)) == {(0, 2), (0, 3), (0, 4)}


def test_a_topic_that_is_created_after_the_group_can_be_read_from_its_first_record(site: Site) -> None:
    now_ms = time.time_ns() // 1_000_000
    older = site.new_topic()
    site.log.append(older, 0, [NewRecord(None, b"value", timestamp_ms=now_ms - DAY_MS)])
    begin = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    group_id = site.new_group(share_auto_offset_reset=f"by_datetime:{begin}")
    # All records are there before the group's first look at either topic.
    younger = site.new_topic(record_count=3)
    site.produce(older, 0, 1)
    with site.consumer(group_id, older) as consumer:
        consumer.subscribe([older, younger])
        polled = {(message.topic(), message.offset()) for message in site.poll(consumer, 4)}
    assert polled == {(older, 1), (younger, 0), (younger, 1), (younger, 2)}


def test_a_group_starts_at_the_end_by_default(site: Site) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group(share_auto_offset_reset="latest")
    with site.consumer(group_id, topic) as consumer:
        site.until(lambda: consumer.poll(timeout=0.1) or site.folded(group_id).partitions, "the group has its state")
        site.produce(topic, 0, 2)
        assert places(site.poll(consumer, 2)) == {(0, 5), (0, 6)}


def test_a_topic_may_be_created_after_the_group_subscribed(site: Site) -> None:
    topic = site.new_name("late")
    group_id = site.new_group()
    with site.consumer(group_id, topic) as consumer:
        site.until(lambda: site.folded(group_id).metadata.members, "the member is in the group")
        assert list(consumer.poll(timeout=0.1)) == []
        site.log.create_topic(topic, 2)
        site.produce(topic, 0, 3)
        site.produce(topic, 1, 3)
        assert len(site.poll(consumer, 6)) == 6


def test_growth_of_the_log_wakes_a_parked_fetch(site: Site) -> None:
    topic = site.new_topic(record_count=1)
    group_id = site.new_group()
    with site.consumer(group_id, topic, fetch_max_wait_ms=60_000, request_timeout_ms=120_000) as consumer:
        site.poll(consumer, 1)
        consumer.commit_sync()
        consumer.poll(timeout=0.1)
        parked = site.until(lambda: parked_fetches(site, group_id), "a fetch is parked")
        site.produce(topic, 0, 1)
        site.poll(consumer, 1)
        assert [response.correlation_id for response in responses_with_records(site, group_id)][1:] == parked


def parked_fetches(site: Site, group_id: str) -> list[int]:
    """Correlation ids of fetches for records that got no response."""
    completed = {response.correlation_id for response in site.responses(group_id)}
    fetches = site.requests(group_id, ApiKey.SHARE_FETCH)
    wanted = {f.correlation_id for f in fetches if parsed(ShareFetchRequest, f.body).max_records}
    return sorted(wanted - completed)


def responses_with_records(site: Site, group_id: str) -> list[ResponseEnvelope]:
    responses = [response for response in site.responses(group_id) if response.api_key == ApiKey.SHARE_FETCH]
    return [response for response in responses if parsed(ShareFetchResponse, response.body).lock_deadline_ms]


def test_each_publishing_of_a_response_has_its_own_time_and_the_deadline_stays(site: Site) -> None:
    topic = site.new_topic(record_count=1)
    group_id = site.new_group()
    with site.consumer(group_id, topic) as consumer:
        site.poll(consumer, 1)
    site.produce(topic, 0, 1)
    topic_id = site.log.describe_topic(topic).topic_id
    body = ShareFetchRequest(
        share_session_epoch=0, topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)])]
    )
    fetch = request(ApiKey.SHARE_FETCH, group_id, body, member_id="anna", correlation_id=9, reply_partition=0)
    partition = partition_for(group_id, REQUEST_PARTITIONS)

    def responses() -> list[ResponseEnvelope]:
        return [response for response in site.responses(group_id) if response.member_id == "anna"]

    def response(number: int) -> ResponseEnvelope:
        """Send the fetch, the first time or again, and return the response to it."""
        site.append_request(fetch.encoded(), partition)
        return site.until(lambda: responses()[number] if len(responses()) > number else None, "it has a response")

    first = response(0)
    site.until(lambda: site.log.now_ms() > first.published_ms, "a millisecond is over")
    second = response(1)
    assert first.published_ms < second.published_ms
    assert second.body == first.body
    deadline_ms = first.body["lock_deadline_ms"]
    assert deadline_ms - first.published_ms <= first.body["acquisition_lock_timeout_ms"]


def test_the_start_offset_follows_the_start_of_the_log(site: Site) -> None:
    topic = site.new_topic(record_count=10)
    group_id = site.new_group()
    with site.consumer(group_id, topic, share_acknowledgement_mode="explicit") as consumer:
        held = site.poll(consumer, 10)
        site.log.delete_records(topic, 0, 6)
        site.produce(topic, 0, 1)
        site.until(lambda: start_offset(site, group_id) == 6, "the start offset moves")
        for message in held:
            consumer.acknowledge(message)
        assert set(consumer.commit_sync().values()) == {None}
        site.until(lambda: start_offset(site, group_id) == 10, "what is left of the records is finished")
    passed = [entry for row in site.rows(group_id) for entry in row.transitions if entry.cause is Cause.LOG_START]
    assert [(entry.first_offset, entry.last_offset, entry.to_state) for entry in passed] == [
        (0, 5, RecordState.ARCHIVED)
    ]


def start_offset(site: Site, group_id: str) -> int:
    partition = site.share_partition(group_id)
    return -1 if partition is None else partition.share_partition.start_offset


# Messages that are none.


def envelope_bytes(body: Message, api_key: int = ApiKey.SHARE_FETCH, /, **fields: object) -> bytes:
    """A request that is right but for what `fields` say; None leaves a field out."""
    good = request(ApiKey(76), "nobody", body, member_id="member", correlation_id=7, reply_partition=0)
    wanted = {**good.model_dump(mode="json"), "api_key": int(api_key), **fields}
    return json.dumps({name: value for name, value in wanted.items() if value is not None}).encode()


FETCH = ShareFetchRequest(share_session_epoch=0)
HEARTBEAT = ShareGroupHeartbeatRequest(member_epoch=0, subscribed_topic_names=[])

WITHOUT_ADDRESS: list[bytes | None] = [
    None,
    b"",
    b"not JSON",
    b"null",
    b"[]",
    b"5",
    b"\xff\xfe\x00",
    b"x" * 1_000_000,
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"group_id": "g"}',
    b'{"api_key": "abc", "group_id": "g"}',
    b'{"api_key": 99999999999999999999, "group_id": "g"}',
    b'{"api_key": 1e400, "group_id": "g"}',
    b'{"api_key": {}, "group_id": "g"}',
    b'{"api_key": 76, "group_id": "\\ud800"}',
    b'{"api_key": 76, "group_id": 5}',
    b'{"api_key": 76, "group_id": "g", "body": []}',
    b'{"api_key": 76}',
    envelope_bytes(FETCH, 12_345, group_id="g", reply_partition=-1),
    envelope_bytes(FETCH, api_version=99, reply_partition=-1),
]


def test_messages_that_cannot_be_read_are_counted(site: Site) -> None:
    metrics = site.running_processor().processor.figures
    before = metrics.undecodable_messages
    for index, value in enumerate(WITHOUT_ADDRESS):
        site.append_request(value, partition=index % REQUEST_PARTITIONS)
    site.new_group()
    site.until(lambda: metrics.undecodable_messages - before == len(WITHOUT_ADDRESS), "all are counted")


def test_each_member_that_has_an_address_gets_a_response(site: Site) -> None:
    group_id, member_id = site.new_name("group"), site.new_name("member")
    partition = partition_for(group_id, REQUEST_PARTITIONS)
    asked = {"group_id": group_id, "member_id": member_id}
    wrong = {
        1: envelope_bytes(FETCH, 12_345, **asked, correlation_id=1),
        2: envelope_bytes(FETCH, **(asked | {"group_id": None}), correlation_id=2),
        3: envelope_bytes(FETCH, **(asked | {"group_id": ""}), correlation_id=3),
        4: envelope_bytes(FETCH, **asked, correlation_id=4, api_version=99),
        5: envelope_bytes(FETCH, **asked, correlation_id=5, v=99),
        6: envelope_bytes(FETCH, **asked, correlation_id=6, body={"max_records": "many"}),
        7: envelope_bytes(HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, **asked, correlation_id=7, body={}),
    }
    for value in wrong.values():
        site.append_request(value, partition)

    def codes() -> dict[int, int]:
        responses = [response for response in site.all_responses() if response.member_id == member_id]
        return {response.correlation_id: response.body["error_code"] for response in responses}

    site.until(lambda: len(codes()) == len(wrong), "all are completed")
    version, invalid = UnsupportedVersionError.code, InvalidRequestError.code
    assert codes() == {1: version, 2: invalid, 3: invalid, 4: version, 5: version, 6: invalid, 7: invalid}


def test_a_message_in_another_groups_partition_is_refused_and_not_of_its_history(site: Site) -> None:
    group_id = site.new_group()
    value = envelope_bytes(HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, group_id=group_id, correlation_id=77)
    site.append_request(value, 1 - partition_for(group_id, REQUEST_PARTITIONS))
    (response,) = site.until(lambda: [a for a in site.responses(group_id) if a.correlation_id == 77], "it is completed")
    assert response.body["error_code"] == InvalidRequestError.code
    assert "is not in partition" in response.body["error_message"]
    assert site.folded(group_id).metadata.members == {}


def test_a_response_to_a_partition_that_is_not_there_is_counted(site: Site) -> None:
    group_id = site.new_group()
    metrics = site.running_processor().processor.figures
    before = metrics.unaddressed_responses
    value = envelope_bytes(HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, group_id=group_id, reply_partition=999)
    site.append_request(value, partition_for(group_id, REQUEST_PARTITIONS))
    site.until(lambda: metrics.unaddressed_responses > before, "it is counted")


def test_requests_of_one_member_are_completed_in_order(site: Site) -> None:
    group_id = site.new_group()
    channel = ProcessorChannel(site.log, group_id, "member")
    channel.send([Request(number, ApiKey.SHARE_FETCH, FETCH) for number in range(1, 30)])
    completed: list[int] = []

    def all_completed() -> bool:
        completed.extend(response.correlation_id for response in channel.receive(100))
        return len(completed) >= 28

    site.until(all_completed, "all but the last one, which waits for records, are completed")
    assert completed == list(range(1, len(completed) + 1))


# The whole table.


def test_every_commit_has_one_marker_and_its_rows(site: Site) -> None:
    site.new_group()
    # A table snapshot is of all commits before it.
    of_no_commit = (RecordType.FENCE, RecordType.TABLE_SNAPSHOT)
    rows = [row for row in site.rows() if row.record_type not in of_no_commit]
    markers = sorted((r for r in rows if r.record_type is RecordType.COMMIT_MARKER), key=lambda row: row.commit_id)
    assert [marker.commit_id for marker in markers] == list(range(len(markers)))
    before: dict[str, int] = {}
    for marker in markers:
        ends = marker.payload["end_offsets"]
        assert all(ends[partition] >= end for partition, end in before.items())
        for row in rows:
            if row.commit_id == marker.commit_id and row.group_id:
                partition = str(row.request_partition)
                assert before.get(partition, 0) <= row.request_offset < ends[partition]
        before = ends
    assert {row.commit_id for row in rows} == set(range(len(markers)))


def test_the_table_stands_the_audit(site: Site) -> None:
    topic = site.new_topic(record_count=20)
    group_id = site.new_group()
    with site.consumer(group_id, topic) as consumer:
        site.poll(consumer, 20)
    verification = verify(site.rows(), BROKER)
    assert verification.findings == []
    assert verification.transition_count >= 2
