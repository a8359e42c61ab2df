"""The group coordinator by itself: what each call records, and that nothing else changes the state."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator import state_topics
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.group_state import GroupState
from sharegroup.errors import ApiError, InvalidConfigError, InvalidRequestError
from sharegroup.protocol.group_messages import AlterGroupConfigRequest, ShareGroupHeartbeatRequest
from sharegroup.protocol.group_records import GroupRecord
from sharegroup.protocol.internal_messages import UNINITIALIZED_OFFSET

TIMEOUT_MS = 45_000
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


def new_group(broker: BrokerConfig | None = None) -> GroupCoordinator:
    return GroupCoordinator(GroupState(), broker or BrokerConfig())


def join(group: GroupCoordinator, member_id: str, *topics: str, now_ms: int = 0) -> list[GroupRecord]:
    request = ShareGroupHeartbeatRequest(member_epoch=0, subscribed_topic_names=list(topics or ("orders",)))
    return group.heartbeat(member_id, "client", request, now_ms)


def heartbeat(epoch: int, topics: list[str] | None = None, rack_id: str | None = None) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(member_epoch=epoch, subscribed_topic_names=topics, rack_id=rack_id)


def types(records: list[GroupRecord]) -> list[str]:
    return [record.type for record in records]


def asked_of(group: GroupCoordinator) -> list[tuple[int, str, int, int]]:
    """(State epoch, topic id, partition, start offset) of what the leader is to initialise."""
    return [
        (body.state_epoch, topic.topic_id, partition.partition_index, partition.start_offset)
        for body in state_topics.initializations(group.state)
        for topic in body.topics
        for partition in topic.partitions
    ]


def with_orders(partition_count: int = 2) -> GroupCoordinator:
    """A group with one member and an initialised topic, assigned at 1,000 ms."""
    group = new_group()
    join(group, "anna")
    group.topic_seen("orders", "orders-id", partition_count)
    group.partitions_initialized("orders-id", range(partition_count), group.state.group_epoch)
    group.reassign(1_000)
    return group


class TestMembers:
    def test_a_rack_is_kept_until_another_one_is_sent(self) -> None:
        group = new_group()
        group.heartbeat("anna", "client", heartbeat(0, ["orders"], "rack-1"), 0)
        group.reassign(1_000)
        epoch = group.state.group_epoch
        assert group.heartbeat("anna", "client", heartbeat(epoch), 1_000) == []
        assert group.heartbeat("anna", "client", heartbeat(epoch, None, "rack-1"), 1_000) == []
        assert group.state.members["anna"].rack_id == "rack-1"
        records = group.heartbeat("anna", "client", heartbeat(epoch, None, "rack-2"), 1_000)
        assert types(records) == ["ShareGroupMemberMetadata", "ShareGroupMetadata"]
        assert group.state.members["anna"].rack_id == "rack-2"
        assert group.state.group_epoch == epoch + 1

    def test_a_group_is_dead_stable_empty_and_dead_again(self) -> None:
        group = new_group()
        names = [group.state.name]
        join(group, "anna")
        names.append(group.state.name)
        group.heartbeat("anna", "client", heartbeat(-1), 0)
        names.append(group.state.name)
        group.expire(0)
        group.expire(BrokerConfig().offsets_retention_minutes * 60_000)
        names.append(group.state.name)
        assert names == ["Dead", "Stable", "Empty", "Dead"]


class TestDeadLetterTopic:
    def test_a_topic_that_the_group_reads_is_refused(self) -> None:
        group = with_orders()
        group.heartbeat("anna", "client", heartbeat(group.state.members["anna"].member_epoch, ["returns"]), 2_000)
        before = dict(group.state.config_overrides)
        for topic in ("returns", "orders"):
            with pytest.raises(
                InvalidConfigError, match=f"{DEAD_LETTER_TOPIC}={topic} is a topic that the group reads"
            ):
                group.alter_config(AlterGroupConfigRequest(set={DEAD_LETTER_TOPIC: topic}))
        assert group.state.config_overrides == before
        group.alter_config(AlterGroupConfigRequest(set={DEAD_LETTER_TOPIC: "dead"}))
        assert group.config.errors_deadletterqueue_topic_name == "dead"

    def test_a_member_cannot_subscribe_to_it(self) -> None:
        group = with_orders()
        group.alter_config(AlterGroupConfigRequest(set={DEAD_LETTER_TOPIC: "dead"}))
        epoch = group.state.members["anna"].member_epoch
        for member_id, request in (("berta", heartbeat(0, ["orders", "dead"])), ("anna", heartbeat(epoch, ["dead"]))):
            with pytest.raises(InvalidRequestError, match="dead is the dead-letter topic of the group"):
                group.heartbeat(member_id, "client", request, 2_000)
        assert group.state.members.keys() == {"anna"}
        assert group.state.members["anna"].subscribed_topic_names == ("orders",)


class TestTopics:
    def test_a_topic_that_nobody_subscribes_to_is_passed_over(self) -> None:
        assert new_group().topic_seen("orders", "orders-id", 3) == []

    def test_a_topic_is_initialised_in_two_phases(self) -> None:
        group = new_group()
        join(group, "anna")
        assert types(group.topic_seen("orders", "orders-id", 2)) == [
            "ShareGroupStatePartitionMetadata",
            "ShareGroupMetadata",
        ]
        assert asked_of(group) == [(2, "orders-id", 0, UNINITIALIZED_OFFSET), (2, "orders-id", 1, UNINITIALIZED_OFFSET)]
        assert group.topic_seen("orders", "orders-id", 2) == []
        group.partitions_initialized("orders-id", [0, 1], group.state.group_epoch)
        assert asked_of(group) == []
        assert group.partitions_initialized("orders-id", [0, 1], group.state.group_epoch) == []

    def test_partitions_that_are_added_later_begin_at_0(self) -> None:
        group = with_orders(2)
        group.topic_seen("orders", "orders-id", 4)
        epoch = group.state.group_epoch
        assert asked_of(group) == [(epoch, "orders-id", 2, 0), (epoch, "orders-id", 3, 0)]

    @pytest.mark.parametrize(("topic_id", "partitions"), [("other-id", [0]), ("orders-id", [7]), ("orders-id", [])])
    def test_what_was_not_asked_for_is_passed_over(self, topic_id: str, partitions: list[int]) -> None:
        group = new_group()
        join(group, "anna")
        group.topic_seen("orders", "orders-id", 2)
        assert group.partitions_initialized(topic_id, partitions, group.state.group_epoch) == []

    def test_partitions_never_become_fewer(self) -> None:
        group = with_orders(3)
        assert group.topic_seen("orders", "orders-id", 1) == []
        assert group.state.topics["orders-id"].initialized == {0, 1, 2}

    @pytest.mark.parametrize("topic_id", ["new-id", ""])
    def test_a_topic_of_another_id_replaces_it(self, topic_id: str) -> None:
        group = with_orders()
        group.topic_seen("orders", topic_id, 1)
        assert group.state.topics["orders-id"].deleting == {0, 1}
        assert types(group.topics_deleted(["orders-id"])) == ["ShareGroupTopicRemoved", "ShareGroupMetadata"]
        assert set(group.state.topics) == ({topic_id} if topic_id else set())


class TestReassign:
    def test_it_waits_for_the_interval_and_for_a_new_epoch(self) -> None:
        group = with_orders()
        assert group.reassign(5_000) == []
        group.heartbeat("anna", "client", heartbeat(group.state.members["anna"].member_epoch, ["returns"]), 1_500)
        assert group.reassign(1_999) == []
        assert group.next_deadline_ms == 2_000
        assert types(group.reassign(2_000)) == ["ShareGroupCurrentMemberAssignment", "ShareGroupTargetAssignment"]
        assert group.state.assignment_epoch == group.state.group_epoch

    def test_for_a_new_member_it_waits_for_a_tenth_of_the_interval(self) -> None:
        group = with_orders()
        join(group, "ben", now_ms=1_050)
        assert group.reassign(1_099) == []
        assert group.next_deadline_ms == 1_100
        assert types(group.reassign(1_100)) == [
            "ShareGroupCurrentMemberAssignment",
            "ShareGroupCurrentMemberAssignment",
            "ShareGroupTargetAssignment",
        ]

    def test_an_assignment_of_nothing_does_not_count(self) -> None:
        group = new_group()
        join(group, "anna")
        assert types(group.reassign(1_000)) == ["ShareGroupCurrentMemberAssignment", "ShareGroupTargetAssignment"]
        group.topic_seen("orders", "orders-id", 1)
        group.partitions_initialized("orders-id", [0], group.state.group_epoch)
        assert types(group.reassign(1_001)) == ["ShareGroupCurrentMemberAssignment", "ShareGroupTargetAssignment"]

    def test_only_members_with_another_assignment_get_a_new_epoch(self) -> None:
        group = with_orders(1)
        before = group.state.members["anna"].member_epoch
        join(group, "ben")
        group.reassign(10_000)
        assert group.state.members["anna"].member_epoch == before
        assert group.state.members["ben"].member_epoch == group.state.group_epoch

    def test_the_epoch_before_is_remembered(self) -> None:
        group = with_orders(2)
        before = group.state.members["anna"].member_epoch
        join(group, "ben")
        group.reassign(10_000)
        assert group.state.members["anna"].previous_member_epoch == before
        assert group.heartbeat("anna", "client", ShareGroupHeartbeatRequest(member_epoch=before), 10_000) == []


class TestSessions:
    def test_sessions_end_in_the_order_of_their_deadlines(self) -> None:
        group = new_group()
        join(group, "ben", now_ms=0)
        join(group, "anna", now_ms=10)
        assert group.next_deadline_ms == 0
        group.reassign(20)
        assert group.next_deadline_ms == TIMEOUT_MS
        assert group.expire_sessions(TIMEOUT_MS - 1) == []
        assert len(group.expire_sessions(TIMEOUT_MS)) == 2
        assert set(group.state.members) == {"anna"}
        group.expire_sessions(10 * TIMEOUT_MS)
        assert group.state.members == {}

    def test_members_without_a_session_get_one(self) -> None:
        known = with_orders()
        group = GroupCoordinator(known.state, BrokerConfig())
        group.open_missing_sessions(7_000)
        group.open_missing_sessions(8_000)
        assert group.sessions.earliest_ms == 7_000 + TIMEOUT_MS


_MEMBER_IDS = st.sampled_from(["anna", "ben", "cleo", ""])
_TOPIC_NAMES = st.sampled_from(["orders", "payments"])
_CALLS = st.one_of(
    st.tuples(
        st.just("heartbeat"),
        _MEMBER_IDS,
        st.integers(-2, 6),
        st.none() | st.lists(_TOPIC_NAMES, max_size=3),
        st.none() | st.sampled_from(["", "rack"]),
    ),
    st.tuples(st.just("topic_seen"), _TOPIC_NAMES, st.sampled_from(["", "id-1", "id-2"]), st.integers(0, 4)),
    st.tuples(st.just("initialized"), st.sampled_from(["id-1", "id-2"]), st.lists(st.integers(0, 4), max_size=3)),
    st.tuples(st.just("expire"), st.integers(0, 100_000)),
    st.tuples(st.just("config"), st.sampled_from(["7", "3", "no"])),
    st.tuples(st.just("reassign"), st.integers(0, 20_000)),
    st.tuples(st.just("deleted"), st.sampled_from(["id-1", "id-2"])),
    st.tuples(st.just("remove")),
)


def called(group: GroupCoordinator, call: tuple[object, ...]) -> list[GroupRecord]:
    match call:
        case ("heartbeat", str(member_id), int(epoch), topics, rack_id):
            request = ShareGroupHeartbeatRequest.model_validate(
                {"member_epoch": epoch, "subscribed_topic_names": topics, "rack_id": rack_id}
            )
            return group.heartbeat(member_id, "client", request, 0)
        case ("topic_seen", str(topic), str(topic_id), int(count)):
            return group.topic_seen(topic, topic_id, count)
        case ("initialized", str(topic_id), list(partitions)):
            return group.partitions_initialized(topic_id, partitions, group.state.group_epoch)
        case ("expire", int(now_ms)):
            return group.expire_sessions(now_ms)
        case ("config", str(value)):
            return group.alter_config(AlterGroupConfigRequest(set={"share.delivery.count.limit": value}))
        case ("reassign", int(now_ms)):
            return group.reassign(now_ms)
        case ("deleted", str(topic_id)):
            return group.topics_deleted([topic_id])
        case ("remove",):
            is_in_use = group.state.members or group.state.topics or group.state.is_dead
            return [] if is_in_use else group.remove("deleted")
    raise AssertionError(call)


@given(st.lists(_CALLS, max_size=30))
def test_the_records_are_all_that_happened(calls: list[tuple[object, ...]]) -> None:
    group = new_group(BrokerConfig(group_share_max_size=2))
    folded = GroupState()
    for call in calls:
        before = group.state.records()
        try:
            for record in called(group, call):
                folded.apply_json(record.model_dump(mode="json"))
        except ApiError:
            assert group.state.records() == before
        assert folded.records() == group.state.records()
        assert len(group.sessions) == len(group.state.members)


@given(st.lists(_CALLS, max_size=30))
def test_the_epoch_never_falls_and_never_lags_behind_the_assignment(calls: list[tuple[object, ...]]) -> None:
    group = new_group()
    epoch = 0
    for call in calls:
        try:
            called(group, call)
        except ApiError:
            continue
        assert group.state.assignment_epoch <= group.state.group_epoch
        assert group.state.group_epoch >= epoch or not group.state.group_epoch
        epoch = max(epoch, group.state.group_epoch)


@given(st.lists(_CALLS, max_size=30))
def test_a_state_is_made_again_by_its_own_records(calls: list[tuple[object, ...]]) -> None:
    group = new_group()
    for call in calls:
        try:
            called(group, call)
        except ApiError:
            continue
    again = GroupState()
    for record in group.state.records():
        again.apply(record)
    assert again.records() == group.state.records()
    assert again.members == group.state.members
    check_derived(group.state)
    check_derived(again)


def check_derived(state: GroupState) -> None:
    """The indexes after each record equal those computed from all members and topics."""
    subscriptions = [topic for member in state.members.values() for topic in member.subscribed_topic_names]
    assert state.subscriber_counts == Counter(subscriptions)
    assert state.subscriber_counts.keys() == set(subscriptions)
    in_use = {topic.topic: topic for topic in state.topics.values() if not topic.deleting}
    assert {name: state.topic_named(name) for name in state.topic_names_in_use} == in_use
    changing = {topic_id for topic_id, topic in state.topics.items() if topic.initializing or topic.deleting}
    assert state.changing_topic_ids == changing
