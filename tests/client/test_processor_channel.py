"""The way to the processor and back: which partition, whose responses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from sharegroup.client.exchange import Request
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.client.settings import ChannelTopics
from sharegroup.errors import LogUnavailableError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ResumeShareGroupRequest
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import ResponseEnvelope, decoded_request
from tests.support.eventually import WAIT_MS

TOPICS = ChannelTopics(request_topic_name="requests", response_topic_name="responses")


@pytest.fixture
def channel(log: LocalLog) -> Iterator[ProcessorChannel]:
    log.create_topic("requests", 8, {})
    log.create_topic("responses", 4, {})
    with closing(ProcessorChannel(log, "g", "member", "client", TOPICS)) as channel:
        yield channel


def response(correlation_id: int, member_id: str = "member", group_id: str = "g", text: str = "") -> NewRecord:
    envelope = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH,
        correlation_id=correlation_id,
        group_id=group_id,
        member_id=member_id,
        body={"text": text},
    )
    return NewRecord(member_id.encode(), envelope.encoded())


def received(channel: ProcessorChannel) -> list[int]:
    return [envelope.correlation_id for envelope in channel.receive(0)]


def test_requests_go_to_the_partition_of_their_group_with_the_members_own_for_the_response(
    log: LocalLog, channel: ProcessorChannel
) -> None:
    channel.send([Request(1, ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest()), Request(2, ApiKey.TICK, Tick())])
    records = log.read("requests", partition_for("g", 8), 0, 10)
    assert [record.key for record in records] == [b"g", b"g"]
    first, second = (decoded_request(record.value) for record in records)
    assert (first.correlation_id, second.correlation_id) == (1, 2)
    assert (first.group_id, first.member_id, first.client_id) == ("g", "member", "client")
    assert first.reply_partition == partition_for("member", 4)


def test_only_the_members_own_responses_are_received_and_each_once(log: LocalLog, channel: ProcessorChannel) -> None:
    partition = partition_for("member", 4)
    assert received(channel) == []
    log.append(
        "responses",
        partition,
        [response(1), response(9, "another"), NewRecord(b"member", b"not a response"), response(2)],
    )
    assert received(channel) == [1, 2]
    assert received(channel) == []
    log.append("responses", partition, [response(3)])
    assert received(channel) == [3]


def test_a_receive_is_bounded_and_goes_on_where_the_last_one_ended(log: LocalLog, channel: ProcessorChannel) -> None:
    partition = partition_for("member", 4)
    log.append("responses", partition, [response(index) for index in range(2_500)])
    counts = [len(received(channel)) for _ in range(4)]
    assert counts == [1_000, 1_000, 500, 0]
    log.append("responses", partition, [response(0, text="x" * 9_000_000) for _ in range(3)])
    assert [len(received(channel)) for _ in range(4)] == [1, 1, 1, 0]


def test_processors_are_announced_to_every_member(log: LocalLog, channel: ProcessorChannel) -> None:
    announcement = ResponseEnvelope(
        api_key=ApiKey.PROCESSOR_STARTED, correlation_id=-1, group_id="", member_id="", leader_epoch=7
    ).encoded()
    to_nobody = ResponseEnvelope(api_key=ApiKey.SHARE_FETCH, correlation_id=-1, group_id="", member_id="").encoded()
    records = [NewRecord(b"", announcement), NewRecord(None, announcement), NewRecord(None, to_nobody)]
    log.append("responses", partition_for("member", 4), records)
    assert [(envelope.api_key, envelope.leader_epoch) for envelope in channel.receive(0)] == [
        (ApiKey.PROCESSOR_STARTED, 7)
    ] * 2


def test_a_receive_waits_for_a_response_and_ends_when_the_channel_is_closed(
    log: LocalLog, channel: ProcessorChannel
) -> None:
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(channel.receive, WAIT_MS)
        log.append("responses", partition_for("member", 4), [response(1)])
        assert [envelope.correlation_id for envelope in receiving.result()] == [1]
        receiving = pool.submit(channel.receive, WAIT_MS)
        channel.close()
        assert receiving.result() == []
        assert channel.receive(WAIT_MS) == []


def test_a_response_topic_that_was_created_again_is_followed_from_its_beginning(
    log: LocalLog, channel: ProcessorChannel
) -> None:
    partition = partition_for("member", 4)
    log.append("responses", partition, [response(index) for index in range(5)])
    assert received(channel) == [0, 1, 2, 3, 4]
    log.delete_topic("responses")
    assert received(channel) == []
    with pytest.raises(LogUnavailableError, match=r"topic responses is gone.* Start the processor"):
        channel.receive(WAIT_MS)
    log.create_topic("responses", 4)
    log.append("responses", partition, [response(5)])
    assert received(channel) == [5]
    log.delete_topic("responses")
    log.create_topic("responses", 4)
    log.append("responses", partition, [response(6)])
    assert received(channel) == []
    assert received(channel) == [6]


def test_a_response_of_another_group_is_passed_over_though_it_names_this_member(
    log: LocalLog, channel: ProcessorChannel
) -> None:
    log.append(
        "responses", partition_for("member", 4), [response(1, group_id="other"), response(1), response(2, group_id="")]
    )
    assert received(channel) == [1]


def test_responses_from_before_are_not_for_this_member(log: LocalLog, channel: ProcessorChannel) -> None:
    partition = partition_for("member", 4)
    log.append("responses", partition, [response(1)])
    later = ProcessorChannel(log, "g", "member", topics=TOPICS)
    log.append("responses", partition, [response(2)])
    log.delete_records("responses", partition, 2)
    log.append("responses", partition, [response(3)])
    assert received(later) == [3]
    later.close()


def test_a_request_log_that_was_lost_can_be_tried_again(log: LocalLog, channel: ProcessorChannel) -> None:
    log.delete_topic("requests")
    with pytest.raises(LogUnavailableError, match=r"topic requests is gone.* Start the processor"):
        channel.send([Request(1, ApiKey.TICK, Tick())])
    log.create_topic("requests", 8, {})
    channel.send([Request(1, ApiKey.TICK, Tick())])
    assert log.offsets("requests")[partition_for("g", 8)].end_offset == 1


def test_a_log_without_the_topics_is_refused(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError, match="__share_requests"):
        ProcessorChannel(log, "g", "member")
