"""The way to the processor and back: which partition, whose answers."""

from __future__ import annotations

import pytest

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

TOPICS = ChannelTopics(request_topic_name="asked", response_topic_name="told")


@pytest.fixture
def link(log: LocalLog) -> ProcessorChannel:
    log.create_topic("asked", 8, {})
    log.create_topic("told", 4, {})
    return ProcessorChannel(log, "g", "member", "client", TOPICS)


def answer(correlation_id: int, member_id: str = "member", group_id: str = "g") -> NewRecord:
    envelope = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH, correlation_id=correlation_id, group_id=group_id, member_id=member_id
    )
    return NewRecord(member_id.encode(), envelope.encoded())


def received(link: ProcessorChannel) -> list[int]:
    return [envelope.correlation_id for envelope in link.receive()]


def test_requests_go_to_the_partition_of_their_group_with_the_members_own_for_the_answer(
    log: LocalLog, link: ProcessorChannel
) -> None:
    link.send([(1, ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest()), (2, ApiKey.TICK, Tick())])
    records = log.read("asked", partition_for("g", 8), 0, 10)
    assert [record.key for record in records] == [b"g", b"g"]
    first, second = (decoded_request(record.value) for record in records)
    assert (first.correlation_id, second.correlation_id) == (1, 2)
    assert (first.group_id, first.member_id, first.client_id) == ("g", "member", "client")
    assert first.reply_partition == partition_for("member", 4)


def test_only_the_members_own_answers_are_received_and_each_once(log: LocalLog, link: ProcessorChannel) -> None:
    partition = partition_for("member", 4)
    assert not link.wait(0)
    others = [answer(index, "another") for index in range(1_500)]
    log.append("told", partition, [answer(1), *others, answer(2), NewRecord(b"member", b"not an answer"), answer(3)])
    assert link.wait(0)
    assert received(link) == [1, 2, 3]
    assert not link.wait(0)
    assert received(link) == []
    log.append("told", partition, [answer(4)])
    assert received(link) == [4]


def test_an_answer_of_another_group_is_passed_over_though_it_names_this_member(
    log: LocalLog, link: ProcessorChannel
) -> None:
    log.append("told", partition_for("member", 4), [answer(1, group_id="other"), answer(1), answer(2, group_id="")])
    assert received(link) == [1]


def test_what_was_answered_before_is_not_for_this_member(log: LocalLog, link: ProcessorChannel) -> None:
    partition = partition_for("member", 4)
    log.append("told", partition, [answer(1)])
    later = ProcessorChannel(log, "g", "member", topics=TOPICS)
    log.append("told", partition, [answer(2)])
    log.delete_records("told", partition, 2)
    log.append("told", partition, [answer(3)])
    assert received(later) == [3]


def test_a_request_log_that_was_lost_can_be_tried_again(log: LocalLog, link: ProcessorChannel) -> None:
    log.delete_topic("asked")
    with pytest.raises(LogUnavailableError, match=r"topic asked is gone.* Start the processor"):
        link.send([(1, ApiKey.TICK, Tick())])
    log.create_topic("asked", 8, {})
    link.send([(1, ApiKey.TICK, Tick())])
    assert log.offsets("asked")[partition_for("g", 8)].end_offset == 1


def test_a_log_without_the_topics_is_refused(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError, match="__share_requests"):
        ProcessorChannel(log, "g", "member")
