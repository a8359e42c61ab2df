"""The two actors of a group: who gets a response, what a failure leaves behind, and how a quarantine ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sharegroup.actor import acknowledgements, share_requests
from sharegroup.actor import leader as leader_module
from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.decoding import MAX_MESSAGE_BYTES, decoded_message
from sharegroup.actor.effects import Effect, Persist, Respond, Undecodable
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey, SharePartitionLimits
from sharegroup.errors import GroupQuarantinedError, InvalidGroupIdError, InvalidRequestError, UnsupportedVersionError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ResumeShareGroupRequest, ShareGroupHeartbeatRequest
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import RequestEnvelope, request
from sharegroup.protocol.row_payloads import GroupStatus
from sharegroup.protocol.rows import RecordType
from sharegroup.protocol.share_fetch import FetchTopic, PartitionResponse, ShareFetchRequest
from tests.actor.group_harness import GROUP_ID, START_MS, Group, LogPartition, Member, group_with, joined

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
ORDERS_0 = ("orders-id", 0)
ORDERS_1 = ("orders-id", 1)
QUARANTINED = GroupQuarantinedError.code


def heartbeat(**fields: Any) -> RequestEnvelope:
    body = ShareGroupHeartbeatRequest(member_epoch=0, subscribed_topic_names=["orders"])
    envelope = request(
        ApiKey.SHARE_GROUP_HEARTBEAT, GROUP_ID, body, member_id="anna", correlation_id=1, reply_partition=0
    )
    return envelope.model_copy(update=fields)


def effects_of(*envelopes: RequestEnvelope) -> list[Effect]:
    group = Group()
    for offset, envelope in enumerate(envelopes):
        group.actors.receive(LoggedRequest(envelope, offset, START_MS + offset))
    return group.actors.finish(START_MS)


def error_codes(effects: list[Effect]) -> list[int]:
    return [effect.response.body.get("error_code", 0) for effect in effects if isinstance(effect, Respond)]


class TestMessagesThatAreNotApplied:
    @pytest.mark.parametrize(
        ("fields", "error_code"),
        [
            ({"api_version": 2}, UnsupportedVersionError.code),
            ({"v": 2}, UnsupportedVersionError.code),
            ({"api_key": 4_711}, UnsupportedVersionError.code),
            ({"api_key": int(ApiKey.PROCESSOR_STARTED)}, InvalidRequestError.code),
            ({"body": {"member_epoch": "soon"}}, InvalidRequestError.code),
            ({"body": {}}, InvalidRequestError.code),
        ],
    )
    def test_they_get_a_response_where_one_is_wanted(self, fields: dict[str, Any], error_code: int) -> None:
        assert error_codes(effects_of(heartbeat(**fields))) == [error_code]
        unaddressed = effects_of(heartbeat(**fields, reply_partition=-1))
        assert [effect.request_offset for effect in unaddressed if isinstance(effect, Undecodable)] == [0]

    def test_one_for_both_actors_is_refused_once(self) -> None:
        resume = request(ApiKey.RESUME_SHARE_GROUP, GROUP_ID, ResumeShareGroupRequest(), reply_partition=0)
        later = resume.model_copy(update={"api_version": 9})
        assert error_codes(effects_of(later)) == [UnsupportedVersionError.code]
        silent = later.model_copy(update={"reply_partition": -1})
        assert sum(isinstance(effect, Undecodable) for effect in effects_of(silent)) == 1

    def test_they_do_not_disturb_their_neighbours(self) -> None:
        effects = effects_of(heartbeat(api_version=2), heartbeat(), heartbeat(body={}))
        assert sorted(error_codes(effects)) == [0, UnsupportedVersionError.code, InvalidRequestError.code]

    def test_internal_messages_of_an_older_processor_are_passed_over(self) -> None:
        group = group_with(10)
        joined(group, "anna")
        tick = request(ApiKey.TICK, GROUP_ID, Tick(), leader_epoch=0)
        group.append(tick)
        outcome = group.run_batch()
        assert (outcome.rows, outcome.responses, outcome.undecodable) == ([], [], [])


class TestBytesThatAreNoMessage:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"\xff\xfe",
            b"null",
            b"[]",
            b'"text"',
            b"{}",
            b'{"group_id": "group-1"}',
            b"[" * 100_000,
            b" " * (MAX_MESSAGE_BYTES + 1),
        ],
        ids=["nothing", "empty", "not UTF-8", "null", "list", "text", "no fields", "no key", "deep", "too long"],
    )
    def test_they_are_counted(self, value: bytes | None) -> None:
        assert isinstance(decoded_message(value, 7, 0, 1), Undecodable)

    @pytest.mark.parametrize(
        ("fields", "error_code"),
        [
            ({"api_key": 4_711}, UnsupportedVersionError.code),
            ({"group_id": ""}, InvalidRequestError.code),
            ({"group_id": "", "api_key": ApiKey.SHARE_FETCH}, InvalidRequestError.code),
            ({"group_id": "", "api_key": ApiKey.DELETE_GROUPS}, InvalidGroupIdError.code),
            ({"group_id": "", "api_key": ApiKey.SHARE_GROUP_DESCRIBE}, InvalidGroupIdError.code),
            ({"v": "one"}, InvalidRequestError.code),
        ],
    )
    def test_each_sender_that_has_an_address_gets_a_response(self, fields: dict[str, Any], error_code: int) -> None:
        value = json.dumps({**heartbeat().model_dump(mode="json"), **fields}).encode()
        effect = decoded_message(value, 7, 0, 1)
        assert isinstance(effect, Respond)
        assert (effect.address.partition, effect.response.member_id, effect.response.correlation_id) == (0, "anna", 1)
        assert effect.response.body["error_code"] == error_code


def statuses(group: Group) -> list[tuple[str, str]]:
    return [(row.payload["role"], row.payload["status"]) for row in group.rows_of(RecordType.GROUP_STATUS)]


LEADER_FAILED = ("leader", GroupStatus.FAILED.value)
ACTIVE = [("coordinator", GroupStatus.ACTIVE.value), ("leader", GroupStatus.ACTIVE.value)]


class TestQuarantine:
    @pytest.fixture
    def group(self) -> Group:
        return group_with(20, 20)

    @pytest.fixture
    def anna(self, group: Group, monkeypatch: pytest.MonkeyPatch) -> Member:
        """Holds 0..9 of both partitions; acknowledgements of partition 1 meet a bug."""
        (anna,) = joined(group, "anna")
        for _ in range(2):
            anna.fetch(max_records=10)

        def acknowledge(
            message: LoggedRequest,
            topics: Sequence[FetchTopic],
            partitions: LedPartitions,
            limits: SharePartitionLimits,
        ) -> tuple[dict[PartitionKey, PartitionResponse], bool]:
            if any(partition.partition_index == 1 for topic in topics for partition in topic.partitions):
                raise TypeError("a bug")
            return acknowledgements.acknowledge(message, topics, partitions, limits)

        monkeypatch.setattr(share_requests, "acknowledge", acknowledge)
        return anna

    def test_messages_before_the_bad_one_count_and_those_after_it_are_refused(self, group: Group, anna: Member) -> None:
        before = anna.send_acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})
        failing = anna.send_acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        after = anna.send_acknowledge({ORDERS_0: [(5, 9, ACCEPT)]})
        outcome = group.run_batch()
        assert [response.correlation_id for response in outcome.responses] == [before, failing, after]
        assert anna.response_to(before).acknowledge_errors == {ORDERS_0: 0}
        assert anna.response_to(failing).error_code == QUARANTINED
        assert anna.response_to(after).error_code == QUARANTINED
        assert sorted(row.record_type for row in outcome.rows) == [RecordType.GROUP_STATUS, RecordType.SHARE_UPDATE]
        assert statuses(group) == [LEADER_FAILED]
        (status,) = group.rows_of(RecordType.GROUP_STATUS)
        assert "TypeError" in status.payload["reason"]

    def test_it_lasts_until_it_is_resumed(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        rows = len(group.rows)
        assert anna.fetch().error_code == QUARANTINED
        assert anna.heartbeat().error_code == QUARANTINED
        group.append_tick()
        assert group.settle().undecodable == []
        assert len(group.rows) == rows
        assert group.resume() == 0
        assert statuses(group) == [LEADER_FAILED, *ACTIVE]
        anna.session_epoch = 2
        assert anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
        assert anna.heartbeat().error_code == 0

    def test_a_fetch_that_waits_gets_the_records_that_were_appended_meanwhile(self, group: Group, anna: Member) -> None:
        anna.session_epoch = 0
        anna.fetch([ORDERS_0])
        anna.session_epoch = 0
        waiting = anna.send_fetch([ORDERS_0])
        anna.send_heartbeat()
        anna.send_acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        group.settle()
        group.grow("orders", 0, 5)
        group.settle()
        assert anna.fetched(waiting).is_parked
        group.resume()
        group.settle()
        assert anna.response_to(waiting).acquired == {ORDERS_0: [(20, 24, 1)]}

    def test_partitions_that_were_added_meanwhile_are_assigned(self, group: Group, anna: Member) -> None:
        anna.send_heartbeat()
        anna.send_acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        group.settle()
        topic_id, partitions = group.topics["orders"]
        group.create_topic("orders", topic_id, [*partitions, LogPartition(end=20)])
        group.settle()
        assert group.coordinator.group.state.topics[topic_id].partitions == {0, 1}
        group.resume()
        group.settle()
        assert group.coordinator.group.state.topics[topic_id].initialized == {0, 1, 2}

    def test_it_comes_back_when_the_cause_does(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        group.resume()
        anna.session_epoch = 2
        assert anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]}).error_code == QUARANTINED
        assert statuses(group) == [LEADER_FAILED, *ACTIVE, LEADER_FAILED]

    def test_a_resume_of_an_unknown_version_resumes_nothing(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        resume = request(ApiKey.RESUME_SHARE_GROUP, GROUP_ID, ResumeShareGroupRequest())
        group.append(resume.model_copy(update={"api_version": 9}))
        group.settle()
        assert statuses(group) == [LEADER_FAILED]

    def test_a_failure_at_the_end_of_a_cut_undoes_the_cut(
        self, group: Group, anna: Member, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def finish(*arguments: object) -> None:
            raise TypeError("a bug at the end")

        monkeypatch.setattr(leader_module.Leader, "finish", finish)
        acknowledging = anna.send_acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})
        fetching = anna.send_fetch([ORDERS_1])
        outcome = group.run_batch()
        assert anna.response_to(acknowledging).error_code == QUARANTINED
        assert anna.response_to(fetching).error_code == QUARANTINED
        assert [row.record_type for row in outcome.rows] == [RecordType.GROUP_STATUS]

    def test_the_leaders_configuration_follows_when_it_goes_on(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        assert group.alter_config(share_delivery_count_limit="7") == QUARANTINED
        group.resume()
        assert group.alter_config(share_delivery_count_limit="7") == 0
        group.settle()
        assert group.leader.limits.delivery_count_limit == 7

    def test_it_survives_a_restart(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        group.restart()
        anna.session_epoch = 0
        assert anna.fetch().error_code == QUARANTINED
        assert anna.heartbeat().error_code == QUARANTINED


def test_a_tick_alone_is_a_cut() -> None:
    effects = effects_of(request(ApiKey.TICK, GROUP_ID, Tick(), leader_epoch=1))
    assert not [effect for effect in effects if isinstance(effect, Persist | Respond | Undecodable)]


def test_a_request_that_wants_no_response_gets_none() -> None:
    group = group_with(10)
    silent = Member(group, "anna", reply_partition=-1)
    for _ in range(2):
        silent.send_fetch([ORDERS_0])
        assert group.settle().responses == []
    body = ShareFetchRequest(share_session_epoch=7)
    group.append(silent.envelope(ApiKey.SHARE_FETCH, body, 9))
    outcome = group.settle()
    assert (outcome.responses, len(outcome.undecodable)) == ([], 1)
