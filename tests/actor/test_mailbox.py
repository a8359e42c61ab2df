"""A batch of one actor: who is answered, what a failure leaves behind, and that the same bytes give the same bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sharegroup.actor.undecodable import judged

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import Effect, Persist, Respond, Undecodable
from sharegroup.actor.mailbox import ActorState, run_batch
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.errors import (
    GroupQuarantinedError,
    InvalidRequestError,
    UnsupportedFormatVersionError,
    UnsupportedVersionError,
)
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_messages import ResumeShareGroupRequest, ShareGroupHeartbeatRequest
from sharegroup.protocol.group_status import GroupStatus
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import RequestEnvelope, request
from sharegroup.protocol.rows import RecordType
from sharegroup.protocol.share_fetch import ShareFetchRequest
from tests.actor.group_harness import GROUP_ID, START_MS, Group, Member, group_with, joined

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


def logged(*envelopes: RequestEnvelope) -> list[LoggedRequest]:
    return [LoggedRequest(envelope, offset, START_MS + offset) for offset, envelope in enumerate(envelopes)]


def effects_of(role: ActorRole, *envelopes: RequestEnvelope) -> list[Effect]:
    return run_batch(role, Group().context, ActorState(), logged(*envelopes), START_MS)[1]


def error_codes(effects: list[Effect]) -> list[int]:
    return [effect.response.body.get("error_code", 0) for effect in effects if isinstance(effect, Respond)]


class TestMessagesThatAreNotJudged:
    @pytest.mark.parametrize(
        ("fields", "error_code"),
        [
            ({"api_version": 2}, UnsupportedVersionError.code),
            ({"v": 2}, UnsupportedVersionError.code),
            ({"api_key": 4_711}, UnsupportedVersionError.code),
            ({"body": {"member_epoch": "soon"}}, InvalidRequestError.code),
            ({"body": {}}, InvalidRequestError.code),
        ],
    )
    def test_they_are_answered_where_an_answer_is_wanted(self, fields: dict[str, Any], error_code: int) -> None:
        assert error_codes(effects_of(ActorRole.COORDINATOR, heartbeat(**fields))) == [error_code]
        unanswered = effects_of(ActorRole.COORDINATOR, heartbeat(**fields, reply_partition=-1))
        assert [effect.request_offset for effect in unanswered if isinstance(effect, Undecodable)] == [0]

    def test_the_other_actors_message_is_refused(self) -> None:
        assert error_codes(effects_of(ActorRole.LEADER, heartbeat())) == [InvalidRequestError.code]

    def test_one_for_both_actors_is_refused_once(self) -> None:
        resume = request(ApiKey.RESUME_SHARE_GROUP, GROUP_ID, ResumeShareGroupRequest(), reply_partition=0)
        later = resume.model_copy(update={"api_version": 9})
        codes = [code for role in ActorRole for code in error_codes(effects_of(role, later))]
        assert codes == [UnsupportedVersionError.code]
        silent = later.model_copy(update={"reply_partition": -1})
        assert sum(isinstance(e, Undecodable) for role in ActorRole for e in effects_of(role, silent)) == 1

    def test_they_do_not_disturb_their_neighbours(self) -> None:
        effects = effects_of(ActorRole.COORDINATOR, heartbeat(api_version=2), heartbeat(), heartbeat(body={}))
        assert sorted(error_codes(effects)) == [0, UnsupportedVersionError.code, InvalidRequestError.code]


class TestBytesThatAreNoMessage:
    @pytest.mark.parametrize(
        "value",
        [None, b"", b"\xff\xfe", b"null", b"[]", b'"text"', b"{}", b'{"group_id": "group-1"}', b"[" * 100_000],
        ids=["nothing", "empty", "not UTF-8", "null", "list", "text", "no fields", "no key", "deep"],
    )
    def test_they_are_counted(self, value: bytes | None) -> None:
        assert isinstance(judged(value, 7, GROUP_ID), Undecodable)

    @pytest.mark.parametrize(
        ("fields", "error_code"),
        [
            ({"api_key": 4_711}, UnsupportedVersionError.code),
            ({"group_id": ""}, InvalidRequestError.code),
            ({"group_id": "group-2"}, InvalidRequestError.code),
            ({"v": "one"}, InvalidRequestError.code),
        ],
    )
    def test_who_can_be_answered_is_answered(self, fields: dict[str, Any], error_code: int) -> None:
        value = json.dumps({**heartbeat().model_dump(mode="json"), **fields}).encode()
        effect = judged(value, 7, GROUP_ID)
        assert isinstance(effect, Respond)
        assert (effect.partition, effect.response.member_id, effect.response.correlation_id) == (0, "anna", 1)
        assert effect.response.body["error_code"] == error_code

    def test_a_message_of_a_group_that_was_routed_nowhere(self) -> None:
        assert isinstance(judged(heartbeat().encoded(), 7, None), Respond)


class TestTime:
    def test_it_never_goes_back_within_a_group(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.fetch()
        at_ms = group.now_ms
        group.now_ms += 29_999
        group.append_tick()
        group.settle()
        group.now_ms = at_ms - 1_000_000
        assert anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
        anna.fetch(max_wait_ms=0)
        last = group.state(ActorRole.LEADER).last_time_ms
        assert last == at_ms + 29_999


class TestStateBytes:
    def test_an_unknown_format_is_refused(self) -> None:
        encoded = bytearray(ActorState().encoded())
        encoded[1] = 99
        with pytest.raises(UnsupportedFormatVersionError, match="99"):
            ActorState.decoded(bytes(encoded))

    def test_a_batch_without_messages_changes_nothing(self) -> None:
        state = ActorState([], 7, "")
        assert run_batch(ActorRole.LEADER, Group().context, state, [], START_MS) == (state, [])


def damage(group: Group, partition: int, state: RecordState = RecordState.ACQUIRED) -> None:
    """Take the delivery count away from what is in flight in a partition, so that the next one to need it fails."""
    before = group.state(ActorRole.LEADER)
    assert before.plain is not None
    (led,) = (led for led in before.plain[1] if led[2] == partition)
    runs = led[-1]
    assert runs
    for run in runs:
        run[1:3] = [int(state), None]
        if state is not RecordState.ACQUIRED:
            run[3:] = [-1, 0]
    group.states[ActorRole.LEADER] = before.encoded()


def statuses(group: Group) -> list[tuple[str, str]]:
    return [(row.payload["role"], row.payload["status"]) for row in group.rows_of(RecordType.GROUP_STATUS)]


LEADER_FAILED = ("leader", GroupStatus.FAILED.value)
LEADER_ACTIVE = ("leader", GroupStatus.ACTIVE.value)


class TestQuarantine:
    @pytest.fixture
    def group(self) -> Group:
        return group_with(20, 20)

    @pytest.fixture
    def anna(self, group: Group) -> Member:
        """Holds 0..9 of both partitions; that of partition 1 is damaged."""
        (anna,) = joined(group, "anna")
        for _ in range(2):
            anna.fetch(max_records=10)
        damage(group, 1)
        return anna

    def test_what_came_before_the_failure_is_kept_and_what_comes_after_is_refused(
        self, group: Group, anna: Member
    ) -> None:
        before = anna.send_acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})
        failing = anna.send_acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        after = anna.send_acknowledge({ORDERS_0: [(5, 9, ACCEPT)]})
        outcome = group.run_batch()
        assert [response.correlation_id for response in outcome.responses] == [before, failing, after]
        assert anna.answer_to(before).acknowledge_errors == {ORDERS_0: 0}
        assert anna.answer_to(failing).error_code == QUARANTINED
        assert anna.answer_to(after).error_code == QUARANTINED
        assert [row.record_type for row in outcome.rows] == [RecordType.SHARE_UPDATE, RecordType.GROUP_STATUS]
        assert [entry.last_offset for entry in outcome.rows[0].transitions] == [4]
        assert statuses(group) == [LEADER_FAILED]
        assert "TypeError" in outcome.rows[1].payload["reason"]
        assert outcome.rows[0].request_offset < outcome.rows[1].request_offset

    def test_it_lasts_until_it_is_resumed(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        rows = len(group.rows)
        assert anna.fetch().error_code == QUARANTINED
        group.tell_offsets("orders")
        group.append_tick()
        assert group.settle().undecodable == []
        assert len(group.rows) == rows
        assert anna.heartbeat().error_code == 0
        assert group.resume() == 0
        assert statuses(group) == [LEADER_FAILED, LEADER_ACTIVE]
        anna.session_epoch = 2
        assert anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}

    def test_it_comes_back_when_the_cause_does(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        group.resume()
        anna.session_epoch = 2
        assert anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]}).error_code == QUARANTINED
        assert statuses(group) == [LEADER_FAILED, LEADER_ACTIVE, LEADER_FAILED]

    def test_messages_around_a_resume_in_one_batch(self, group: Group, anna: Member) -> None:
        failing = anna.send_acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        refused = anna.send_fetch()
        group.append(request(ApiKey.RESUME_SHARE_GROUP, GROUP_ID, ResumeShareGroupRequest()))
        anna.session_epoch = 2
        good = anna.send_acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
        outcome = group.run_batch()
        assert [response.correlation_id for response in outcome.responses] == [failing, refused, good]
        assert anna.answer_to(good).acknowledge_errors == {ORDERS_0: 0}
        assert [row.record_type for row in outcome.rows] == [
            RecordType.GROUP_STATUS,
            RecordType.GROUP_STATUS,
            RecordType.SHARE_UPDATE,
        ]
        assert [row.request_offset for row in outcome.rows] == sorted({row.request_offset for row in outcome.rows})

    @pytest.mark.slow
    def test_many_failures_and_resumes_in_one_batch(self, group: Group, anna: Member) -> None:
        for _ in range(1_000):
            anna.session_epoch = 2
            anna.send_acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
            group.append(request(ApiKey.RESUME_SHARE_GROUP, GROUP_ID, ResumeShareGroupRequest()))
        outcome = group.run_batch()
        assert [response.body["error_code"] for response in outcome.responses] == [QUARANTINED] * 1_000
        assert statuses(group) == [LEADER_FAILED, LEADER_ACTIVE] * 1_000

    def test_a_resume_of_an_unknown_version_resumes_nothing(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        resume = request(ApiKey.RESUME_SHARE_GROUP, GROUP_ID, ResumeShareGroupRequest())
        group.append(resume.model_copy(update={"api_version": 9}))
        group.settle()
        assert statuses(group) == [LEADER_FAILED]

    def test_a_failure_at_the_end_of_a_batch_undoes_the_batch(self, group: Group, anna: Member) -> None:
        damage(group, 1, RecordState.AVAILABLE)
        before = group.state(ActorRole.LEADER).plain
        acknowledging = anna.send_acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})
        fetching = anna.send_fetch([ORDERS_1])
        outcome = group.run_batch()
        assert anna.answer_to(acknowledging).error_code == QUARANTINED
        assert anna.answer_to(fetching).error_code == QUARANTINED
        assert [row.record_type for row in outcome.rows] == [RecordType.GROUP_STATUS]
        assert group.state(ActorRole.LEADER).plain == before

    def test_a_state_that_cannot_be_read_is_kept_as_it_is(self, group: Group, anna: Member) -> None:
        before = group.state(ActorRole.LEADER)
        assert before.plain is not None
        before.plain[1][0][-1][0][0] = -5
        group.states[ActorRole.LEADER] = before.encoded()
        assert anna.fetch().error_code == QUARANTINED
        after = group.state(ActorRole.LEADER)
        assert after.plain == before.plain
        assert "StateTableError" in after.failure
        rows = len(group.rows)
        assert group.resume() == 0
        assert [row.payload["status"] for row in group.rows[rows:]] == ["FAILED"]
        assert anna.fetch().error_code == QUARANTINED

    def test_another_group_is_untouched(self, group: Group, anna: Member) -> None:
        other = group_with(10)
        (ben,) = joined(other, "ben")
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        assert ben.fetch().record_count == 10

    def test_the_leaders_configuration_follows_when_it_goes_on(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        assert group.alter_config(share_delivery_count_limit="7") == 0
        group.resume()
        assert group.leader.limits.delivery_count_limit == 7

    def test_a_quarantined_coordinator_refuses_heartbeats_and_the_leader_works_on(
        self, group: Group, anna: Member
    ) -> None:
        state = group.state(ActorRole.COORDINATOR)
        assert state.plain is not None
        group.states[ActorRole.COORDINATOR] = ActorState(["damaged"], state.last_time_ms).encoded()
        assert anna.heartbeat().error_code == QUARANTINED
        assert group.alter_config(share_delivery_count_limit="7") == QUARANTINED
        assert anna.acknowledge({ORDERS_0: [(0, 4, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
        assert statuses(group) == [("coordinator", "FAILED")]
        assert group.leader.limits.delivery_count_limit == 5
        group.states[ActorRole.COORDINATOR] = ActorState(
            state.plain, state.last_time_ms, group.state(ActorRole.COORDINATOR).failure
        ).encoded()
        assert group.resume() == 0
        assert anna.heartbeat().error_code == 0

    def test_it_survives_a_restart(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_1: [(0, 4, ACCEPT)]})
        group.restart()
        anna.session_epoch = 0
        assert anna.fetch().error_code == QUARANTINED
        assert anna.heartbeat().error_code == 0


def test_a_tick_alone_is_a_batch() -> None:
    for role in ActorRole:
        effects = effects_of(role, request(ApiKey.TICK, GROUP_ID, Tick()))
        assert not [effect for effect in effects if isinstance(effect, Persist | Respond | Undecodable)]


def test_a_request_that_wants_no_answer_gets_none() -> None:
    group = group_with(10)
    silent = Member(group, "anna", reply_partition=-1)
    for _ in range(2):
        silent.send_fetch([ORDERS_0])
        assert group.settle().responses == []
    body = ShareFetchRequest(share_session_epoch=7)
    group.append(silent.envelope(ApiKey.SHARE_FETCH, body, 9))
    outcome = group.settle()
    assert (outcome.responses, len(outcome.undecodable)) == ([], 1)
