"""How share-partitions come to be: found by the driver, initialised by the leader, assigned by the coordinator."""

from __future__ import annotations

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.core.run import Run
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import JOIN_EPOCH
from sharegroup.protocol.internal_messages import UNINITIALIZED_OFFSET, InitializeShareGroupState
from sharegroup.protocol.messages import decoded_request
from sharegroup.protocol.rows import RecordType, StateRow
from tests.actor.group_harness import Group, LogPartition, Member, group_with, joined, metadata, start_offsets

ORDERS_0 = ("orders-id", 0)
ORDERS_1 = ("orders-id", 1)


def group_records(rows: list[StateRow]) -> list[str]:
    return [record["type"] for row in rows for record in row.payload.get("records", [])]


class TestNewGroup:
    def test_a_member_has_no_partitions_until_they_are_initialised(self) -> None:
        group = group_with(10, 10)
        anna = Member(group, "anna")
        anna.send_heartbeat(JOIN_EPOCH, ["orders"])
        first = group.run_batch()
        assert anna.take_assignments(first.responses) == 1
        assert anna.assigned == set()
        assert anna.member_epoch == 1
        batch = group.run_batch()
        assert batch.responses == []
        assert metadata(group).topics["orders-id"].initializing.keys() == {0, 1}
        initialised = group.run_batch()
        assert [row.record_type for row in initialised.rows] == [RecordType.SHARE_SNAPSHOT] * 2
        assigned = group.run_batch()
        assert anna.take_assignments(assigned.responses) == 1
        assert anna.assigned == {ORDERS_0, ORDERS_1}
        assert metadata(group).topics["orders-id"].initialized == {0, 1}
        assert group.pending_count == 0

    def test_what_is_recorded_of_it(self) -> None:
        group = group_with(10, earliest=False)
        joined(group, "anna")
        assert group_records(group.rows) == [
            "ShareGroupMemberMetadata",
            "ShareGroupMetadata",
            "ShareGroupCurrentMemberAssignment",
            "ShareGroupTargetAssignment",
            "ShareGroupStatePartitionMetadata",
            "ShareGroupMetadata",
            "ShareGroupTargetAssignment",
            "ShareGroupStatePartitionMetadata",
            "ShareGroupMetadata",
            "ShareGroupCurrentMemberAssignment",
            "ShareGroupTargetAssignment",
        ]
        (snapshot,) = group.rows_of(RecordType.SHARE_SNAPSHOT)
        assert (snapshot.snapshot_epoch, snapshot.state_epoch, snapshot.start_offset) == (0, 2, 10)

    @pytest.mark.parametrize(
        ("reset", "expected"), [("earliest", 3), ("latest", 50), ("by_duration:PT1H", 20), (None, 50)]
    )
    def test_where_it_begins_to_read(self, reset: str | None, expected: int) -> None:
        group = group_with(LogPartition(start=3, end=50, young=20), earliest=False)
        if reset:
            assert group.alter_config(share_auto_offset_reset=reset) == 0
        joined(group, "anna")
        assert start_offsets(group) == {ORDERS_0: expected}

    def test_a_topic_that_is_created_after_the_subscription(self) -> None:
        group = Group()
        group.alter_config(share_auto_offset_reset="earliest")
        (anna,) = joined(group, "anna")
        assert anna.assigned == set()
        group.create_topic("orders", "orders-id", [LogPartition(end=5)])
        group.settle()
        anna.take_assignments()
        assert anna.fetch().acquired == {ORDERS_0: [(0, 4, 1)]}

    def test_an_unsubscribed_topic_is_not_looked_up(self) -> None:
        group = group_with(10)
        group.tell_offsets("orders")
        group.settle()
        assert start_offsets(group) == {}


class TestChangesOfATopic:
    def test_a_partition_that_is_added_begins_at_offset_0(self) -> None:
        group = group_with(10, earliest=False)
        (anna,) = joined(group, "anna")
        group.create_topic("orders", "orders-id", [LogPartition(end=10), LogPartition(end=7)])
        group.settle()
        group.advance(1_000)
        anna.take_assignments()
        assert start_offsets(group) == {ORDERS_0: 10, ORDERS_1: 0}
        assert anna.assigned == {ORDERS_0, ORDERS_1}
        assert anna.fetch().acquired == {ORDERS_1: [(0, 6, 1)]}

    def test_a_topic_that_seems_to_shrink_is_reported_once(self) -> None:
        group = group_with(10, 10)
        joined(group, "anna")
        group.create_topic("orders", "orders-id", [LogPartition(end=10)])
        message_count = group.pending_count
        group.settle()
        assert message_count == 1
        assert metadata(group).topics["orders-id"].initialized == {0, 1}
        group.append_tick()
        group.settle()
        assert group.topic_watch is not None
        assert group.topic_watch.topics == {"orders": ("orders-id", 1)}

    def test_a_topic_of_another_id_is_another_topic(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=5)
        group.create_topic("orders", "new-id", [LogPartition(end=3)])
        group.settle()
        group.advance(1_000)
        anna.take_assignments()
        assert anna.assigned == {("new-id", 0)}
        assert set(metadata(group).topics) == {"new-id"}
        assert set(start_offsets(group)) == {("new-id", 0)}
        assert [row.topic_id for row in group.rows_of(RecordType.SHARE_TOMBSTONE)] == ["orders-id"]
        assert anna.fetch(forget=[ORDERS_0]).acquired == {("new-id", 0): [(0, 2, 1)]}

    def test_a_deleted_topic_is_taken_from_its_members(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        group.delete_topic("orders")
        group.settle()
        group.advance(1_000)
        anna.take_assignments()
        assert anna.assigned == set()
        assert metadata(group).topics == {}
        group.create_topic("orders", "orders-id", [LogPartition(end=10)])
        group.settle()
        group.advance(1_000)
        anna.take_assignments()
        assert anna.assigned == {ORDERS_0}

    def test_a_deleted_topic_leaves_nothing_behind_even_while_nobody_subscribes_to_it(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=4)
        anna.leave()
        group.delete_topic("orders")
        group.settle()
        assert (metadata(group).topics, start_offsets(group)) == ({}, {})
        assert verify(group.rows, group.context.broker).findings == []

    def test_a_start_offset_that_is_no_more_moves_to_the_log_start(self) -> None:
        group = group_with(LogPartition(end=10))
        (anna,) = joined(group, "anna")
        group.set_offsets("orders", 0, LogPartition(start=6, end=10))
        group.tell_offsets("orders")
        assert anna.fetch().acquired == {ORDERS_0: [(6, 9, 1)]}

    def test_a_topic_stays_initialised_while_nobody_subscribes_to_it(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=4)
        anna.close()
        anna.leave()
        (ben,) = joined(group, "ben")
        assert ben.fetch(max_records=4).acquired == {ORDERS_0: [(0, 3, 2)]}


class TestAnInterruptedInitialisation:
    @pytest.mark.parametrize(("reset", "expected"), [("latest", 50), ("earliest", 3), ("by_duration:PT1H", 3)])
    def test_it_goes_on_after_a_restart_once_the_offsets_are_known(self, reset: str, expected: int) -> None:
        group = group_with(LogPartition(start=3, end=50), earliest=False)
        group.alter_config(share_auto_offset_reset=reset)
        anna = Member(group, "anna")
        anna.send_heartbeat(JOIN_EPOCH, ["orders"])
        group.run_batch()
        group.run_batch()
        assert metadata(group).topics["orders-id"].initializing.keys() == {0}
        group.restart()
        group.settle()
        assert start_offsets(group) == {ORDERS_0: expected}
        assert metadata(group).topics["orders-id"].initialized == {0}

    def test_what_waits_for_offsets_is_watched_until_they_come(self) -> None:
        group = group_with(50)
        _ask(group, UNINITIALIZED_OFFSET)
        group.topics.clear()
        group.run_batch()
        assert start_offsets(group) == {}
        group.append_tick()
        group.run_batch()
        assert group.log_watch == {("orders", "orders-id", 0): -1}
        group.create_topic("orders", "orders-id", [LogPartition(end=50)])
        group.settle()
        assert start_offsets(group) == {ORDERS_0: 0}

    def test_a_given_start_offset_waits_for_nothing(self) -> None:
        group = group_with(50)
        _ask(group, 7)
        group.settle()
        assert start_offsets(group) == {ORDERS_0: 7}

    def test_asking_twice_does_no_harm(self) -> None:
        group = group_with(50)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=10)
        runs = list(group.leader.partitions[ORDERS_0].share_partition.runs)
        _ask(group, UNINITIALIZED_OFFSET)
        _ask(group, 30)
        group.settle()
        assert list(group.leader.partitions[ORDERS_0].share_partition.runs) == runs


def _ask(group: Group, start_offset: int) -> None:
    body = InitializeShareGroupState.model_validate(
        {
            "state_epoch": 1,
            "topics": [
                {
                    "topic_id": "orders-id",
                    "topic": "orders",
                    "partitions": [{"partition_index": 0, "start_offset": start_offset}],
                }
            ],
        }
    )
    group.tell(ApiKey.INITIALIZE_SHARE_GROUP_STATE, body)


def test_locks_and_members_survive_a_restart() -> None:
    group = group_with(10)
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=4)
    before: list[Run] = list(group.leader.partitions[ORDERS_0].share_partition.runs)
    group.restart()
    group.settle()
    assert list(group.leader.partitions[ORDERS_0].share_partition.runs) == before
    assert set(metadata(group).members) == {"anna"}
    anna.session_epoch = 0
    assert anna.fetch([ORDERS_0], max_records=2).acquired == {ORDERS_0: [(4, 5, 1)]}
    assert anna.heartbeat().error_code == 0


def test_the_leader_is_asked_once() -> None:
    group = group_with(10, 10, 10)
    joined(group, "anna", "ben")
    asked = [r for r in group.log if decoded_request(r.value).api_key == ApiKey.INITIALIZE_SHARE_GROUP_STATE]
    assert len(asked) == 1
