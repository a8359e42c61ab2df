"""Heartbeats and the coordinator actor's responses: epochs, assignments, pushes, time-outs, configuration."""

from __future__ import annotations

import pytest

from sharegroup.config.broker import BrokerConfig
from sharegroup.errors import (
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidConfigError,
    InvalidRequestError,
    UnknownMemberIdError,
)
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from sharegroup.protocol.messages import ResponseEnvelope, parsed
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from tests.actor.group_harness import ADMIN_REPLY_PARTITION, Group, LogPartition, Member, group_with, joined

SESSION_TIMEOUT_MS = 45_000
ASSIGNMENT_INTERVAL_MS = 1_000


def heartbeat_of(response: ResponseEnvelope) -> ShareGroupHeartbeatResponse:
    return parsed(ShareGroupHeartbeatResponse, response.body)


def member_ids(group: Group) -> set[str]:
    return set(group.coordinator.group.state.members)


class TestHeartbeats:
    def test_a_response_tells_epoch_interval_and_assignment(self) -> None:
        group = group_with(10, 10)
        (anna,) = joined(group, "anna")
        response = anna.heartbeat(member_epoch=JOIN_EPOCH)
        assert response.member_epoch == 3
        assert response.heartbeat_interval_ms == 5_000
        assert response.assignment is not None
        (topic,) = response.assignment
        assert (topic.topic_id, topic.topic, topic.partitions) == ("orders-id", "orders", [0, 1])

    def test_an_assignment_is_sent_only_when_it_changed(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        assert anna.heartbeat().assignment is None
        assert anna.heartbeat(member_epoch=1).assignment is not None
        assert anna.heartbeat().assignment is None

    def test_a_heartbeat_without_news_is_not_recorded(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        rows = len(group.rows)
        anna.heartbeat()
        anna.heartbeat(subscribed_topic_names=["orders"])
        assert len(group.rows) == rows

    @pytest.mark.parametrize(
        ("member_epoch", "error_code"),
        [
            (4, FencedMemberEpochError.code),
            (2, FencedMemberEpochError.code),
            (-2, InvalidRequestError.code),
            (1, 0),
            (3, 0),
            (0, 0),
        ],
    )
    def test_the_epoch_must_be_the_members_or_the_one_before(self, member_epoch: int, error_code: int) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        assert anna.heartbeat(member_epoch=member_epoch).error_code == error_code

    @pytest.mark.parametrize("member_epoch", [1, 7, LEAVE_EPOCH])
    def test_who_is_not_a_member_must_join(self, member_epoch: int) -> None:
        group = group_with(10)
        joined(group, "anna")
        assert Member(group, "ben").heartbeat(member_epoch=member_epoch).error_code == UnknownMemberIdError.code

    @pytest.mark.parametrize("topics", [None, []])
    def test_the_first_heartbeat_must_name_topics(self, topics: list[str] | None) -> None:
        group = group_with(10)
        response = Member(group, "anna").heartbeat(JOIN_EPOCH, topics)
        assert response.error_code == InvalidRequestError.code
        assert "SubscribedTopicNames" in response.error_message
        assert member_ids(group) == set()

    @pytest.mark.parametrize("name", ["", ".", "..", "with blank", "a" * 250, "^orders"])
    def test_a_name_that_no_topic_can_have_is_accepted_but_not_watched(self, name: str) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        assert anna.heartbeat(subscribed_topic_names=["orders", name]).error_code == 0
        assert group.topic_watch is not None
        assert set(group.topic_watch.topics) == {"orders"}

    def test_a_member_without_an_id_is_refused(self) -> None:
        group = group_with(10)
        assert Member(group, "").heartbeat(JOIN_EPOCH, ["orders"]).error_code == InvalidRequestError.code

    def test_a_group_has_a_largest_size_and_members_may_still_rejoin(self) -> None:
        group = group_with(10, broker=BrokerConfig(group_share_max_size=2))
        anna, _ = joined(group, "anna", "ben")
        refused = Member(group, "cleo").join()
        assert refused.error_code == GroupMaxSizeReachedError.code
        assert refused.error_message == "The share group has reached its maximum capacity of 2 members."
        assert anna.join().error_code == 0
        anna.leave()
        assert Member(group, "cleo").join().error_code == 0

    def test_all_heartbeats_of_one_batch_get_responses(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        sent = [anna.send_heartbeat() for _ in range(3)]
        responses = group.run_batch().responses
        assert [response.correlation_id for response in responses] == sent

    def test_a_heartbeat_that_wants_no_response_gets_none_and_no_push(self) -> None:
        group = group_with(10)
        Member(group, "anna", reply_partition=-1).send_heartbeat(JOIN_EPOCH, ["orders"])
        assert group.settle().responses == []
        assert member_ids(group) == {"anna"}


class TestLeaving:
    def test_leave_gets_a_response_and_the_partitions_go_to_the_others(self) -> None:
        group = group_with(10, 10)
        anna, ben = joined(group, "anna", "ben")
        assert len(ben.assigned) == 1
        assert anna.leave().member_epoch == LEAVE_EPOCH
        group.advance(ASSIGNMENT_INTERVAL_MS)
        ben.take_assignments()
        assert len(ben.assigned) == 2
        assert member_ids(group) == {"ben"}

    def test_a_heartbeat_before_a_leave_in_one_batch_gets_a_response_too(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        sent = [anna.send_heartbeat(), anna.send_heartbeat(LEAVE_EPOCH)]
        responses = {r.correlation_id: heartbeat_of(r) for r in group.run_batch().responses}
        assert sorted(responses) == sent
        assert responses[sent[0]].error_code == UnknownMemberIdError.code
        assert responses[sent[1]].member_epoch == LEAVE_EPOCH

    def test_who_left_can_come_back(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.leave()
        assert anna.heartbeat(member_epoch=3).error_code == UnknownMemberIdError.code
        assert anna.join().error_code == 0

    def test_nobody_is_pushed_to_after_leaving(self) -> None:
        group = group_with(10, 10)
        anna, _ = joined(group, "anna", "ben")
        anna.leave()
        group.advance(ASSIGNMENT_INTERVAL_MS)
        assert [r.member_id for r in group.responses if r.correlation_id == -1][-1] == "ben"


class TestSessionTimeout:
    def test_a_silent_member_is_removed_at_the_timeout(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.heartbeat()
        assert group.wakes[ActorRole.COORDINATOR] <= group.now_ms + SESSION_TIMEOUT_MS
        group.advance(SESSION_TIMEOUT_MS - 1)
        assert member_ids(group) == {"anna"}
        assert group.wakes[ActorRole.COORDINATOR] == group.now_ms + 1
        group.advance(1)
        assert member_ids(group) == set()
        removed = group.rows[-1].payload["records"][0]
        assert (removed["type"], removed["reason"]) == ("ShareGroupMemberRemoved", "session timeout")
        assert anna.heartbeat().error_code == UnknownMemberIdError.code
        assert ActorRole.COORDINATOR not in group.wakes

    def test_a_heartbeat_keeps_it_alive(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.heartbeat()
        for _ in range(5):
            group.advance(SESSION_TIMEOUT_MS - 1)
            assert anna.heartbeat().error_code == 0

    def test_a_heartbeat_is_applied_at_its_append_time(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.heartbeat()
        group.now_ms += SESSION_TIMEOUT_MS - 1
        sent = anna.send_heartbeat()
        group.now_ms += 1
        group.append_tick()
        responses = group.run_batch(cut_ms=group.now_ms + SESSION_TIMEOUT_MS).responses
        assert [(r.correlation_id, heartbeat_of(r).error_code) for r in responses] == [(sent, 0)]

    def test_a_heartbeat_whose_member_times_out_later_in_the_batch_gets_a_response(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        sent = anna.send_heartbeat()
        group.now_ms += SESSION_TIMEOUT_MS
        group.append_tick()
        responses = group.run_batch().responses
        assert [(r.correlation_id, heartbeat_of(r).error_code) for r in responses] == [
            (sent, UnknownMemberIdError.code)
        ]

    def test_locks_of_a_removed_member_stay_and_it_can_still_acknowledge(self) -> None:
        group = group_with(10)
        assert group.alter_config(share_record_lock_duration_ms="60000") == 0
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=4)
        group.advance(SESSION_TIMEOUT_MS)
        assert member_ids(group) == set()
        runs = list(group.leader.partitions["orders-id", 0].share_partition.runs)
        assert [run.member_id for run in runs] == ["anna"]

    def test_members_have_a_fresh_session_after_a_restart(self) -> None:
        group = group_with(10)
        joined(group, "anna")
        group.now_ms += 10 * SESSION_TIMEOUT_MS
        group.restart()
        group.settle()
        assert member_ids(group) == {"anna"}
        group.advance(SESSION_TIMEOUT_MS)
        assert member_ids(group) == set()


class TestAssignment:
    def test_a_change_is_pushed_to_members_that_sent_nothing(self) -> None:
        group = group_with(10, 10)
        (anna,) = joined(group, "anna")
        ben = Member(group, "ben")
        ben.join()
        pushed = [r for r in group.responses if r.correlation_id == -1]
        assert pushed[-1].member_id == "anna"
        anna.take_assignments()
        assert len(anna.assigned) == len(ben.assigned) == 1
        assert anna.assigned != ben.assigned
        assert anna.heartbeat().assignment is None

    def test_nothing_is_pushed_to_a_member_whose_assignment_stays(self) -> None:
        group = group_with(10)
        joined(group, "anna")
        pushed = len([r for r in group.responses if r.member_id == "anna"])
        Member(group, "ben").join()
        group.advance(ASSIGNMENT_INTERVAL_MS)
        assert len([r for r in group.responses if r.member_id == "anna"]) == pushed

    def test_its_epoch_follows_with_its_next_heartbeat(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        before = anna.member_epoch
        Member(group, "ben").join()
        group.advance(ASSIGNMENT_INTERVAL_MS)
        target = group.coordinator.group.state.assignment_epoch
        assert before < target
        first = anna.send_heartbeat(member_epoch=before)
        again = anna.send_heartbeat(member_epoch=before)
        group.settle()
        responses = {
            response.correlation_id: response.body for response in group.responses if response.member_id == "anna"
        }
        # The response may be lost: the epoch before is still good.
        assert [responses[sent]["member_epoch"] for sent in (first, again)] == [target, target]
        rows = len(group.rows)
        assert anna.heartbeat(member_epoch=target).member_epoch == target
        assert len(group.rows) == rows
        metadata = fold(group.rows).groups[group.group_id].metadata
        assert metadata.records() == group.coordinator.group.state.records()

    def test_a_new_member_waits_for_a_tenth_of_the_interval(self) -> None:
        group = group_with(10, 10, 10)
        joined(group, "anna")
        ben, cleo = Member(group, "ben"), Member(group, "cleo")
        ben.join()
        assert ben.assigned != set()
        early = cleo.join()
        assert (early.error_code, early.member_epoch, cleo.assigned) == (0, 0, set())
        assert group.wakes[ActorRole.COORDINATOR] == group.now_ms + ASSIGNMENT_INTERVAL_MS // 10
        group.advance(ASSIGNMENT_INTERVAL_MS // 10 - 1)
        cleo.take_assignments()
        assert cleo.assigned == set()
        group.advance(1)
        cleo.take_assignments()
        assert len(cleo.assigned) == 1
        assert cleo.heartbeat().error_code == 0

    def test_members_that_join_in_one_batch_share_one_assignment(self) -> None:
        group = group_with(*[10] * 4)
        members = joined(group, *(f"member-{index}" for index in range(4)))
        assert [len(member.assigned) for member in members] == [1, 1, 1, 1]
        assert len({member.member_epoch for member in members}) == 1

    def test_a_changed_subscription_changes_the_assignment(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        group.create_topic("payments", "payments-id", [LogPartition(end=1)])
        anna.heartbeat(subscribed_topic_names=["payments"])
        group.advance(ASSIGNMENT_INTERVAL_MS)
        anna.take_assignments()
        assert anna.assigned == {("payments-id", 0)}
        anna.heartbeat(subscribed_topic_names=["orders", "payments"])
        group.advance(ASSIGNMENT_INTERVAL_MS)
        anna.take_assignments()
        assert anna.assigned == {("orders-id", 0), ("payments-id", 0)}

    def test_null_means_unchanged(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.heartbeat(subscribed_topic_names=None)
        assert group.coordinator.group.state.members["anna"].subscribed_topic_names == ("orders",)

    def test_the_last_member_leaves_an_empty_group_with_its_share_partitions(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.leave()
        state = group.coordinator.group.state
        assert (state.name, state.members, set(state.topics)) == ("Empty", {}, {"orders-id"})
        assert group.topic_watch is not None
        assert group.topic_watch.topics == {"orders": ("orders-id", 1)}


class TestConfiguration:
    @pytest.mark.parametrize(
        "values",
        [
            {"share.record.lock.duration.ms": "1"},
            {"share.record.lock.duration.ms": "soon"},
            {"share.session.timeout.ms": "99999999"},
            {"no.such.key": "1"},
            {"share.auto.offset.reset": "yesterday"},
            {"errors.deadletterqueue.topic.name": "__given-up"},
        ],
    )
    def test_an_unacceptable_value_is_refused_and_changes_nothing(self, values: dict[str, str]) -> None:
        group = group_with(10)
        rows = len(group.rows)
        changed = {**values, "share.delivery.count.limit": "7"}
        assert group.alter_config(**changed) == InvalidConfigError.code
        assert len(group.rows) == rows
        assert group.coordinator.group.state.config_overrides == {"share.auto.offset.reset": "earliest"}
        assert group.leader.overrides == {"share.auto.offset.reset": "earliest"}

    def test_a_change_is_recorded_and_sent_to_the_leader_and_gets_a_response(self) -> None:
        group = group_with(10)
        assert group.alter_config(share_delivery_count_limit="7") == 0
        (record,) = group.rows_of(RecordType.GROUP_METADATA)[-1].payload["records"]
        assert record["overrides"] == {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "7"}
        assert group.leader.limits.delivery_count_limit == 7
        assert group.responses[-1].member_id == "admin"

    def test_a_deleted_key_goes_back_to_the_default(self) -> None:
        group = group_with(10)
        group.alter_config(share_delivery_count_limit="7")
        assert group.alter_config(delete=["share.delivery.count.limit"]) == 0
        assert group.leader.limits.delivery_count_limit == 5
        assert group.coordinator.group.state.config_overrides == {"share.auto.offset.reset": "earliest"}

    def test_a_change_to_the_same_gets_a_response_but_is_not_recorded(self) -> None:
        group = group_with(10)
        rows = len(group.rows)
        assert group.alter_config(share_auto_offset_reset="earliest") == 0
        assert len(group.rows) == rows

    def test_the_heartbeat_interval_is_sent_with_the_next_heartbeat(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        group.alter_config(share_heartbeat_interval_ms="9000")
        assert anna.heartbeat().heartbeat_interval_ms == 9_000

    def test_the_response_goes_to_the_partition_that_was_asked_for(self) -> None:
        group = group_with(10)
        assert ADMIN_REPLY_PARTITION == 99
        anna = Member(group, "anna", reply_partition=5)
        anna.send(
            ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest(member_epoch=0, subscribed_topic_names=["a"])
        )
        assert [r.member_id for r in group.settle().responses] == ["anna"]
