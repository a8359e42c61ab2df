"""Fetches: acquire, park, wake up, time out; rotation of partitions and fair division among sessions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sharegroup.config.broker import BrokerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.errors import UnknownTopicIdError, UnknownTopicOrPartitionError
from sharegroup.protocol.api_key import ActorRole
from tests.actor.group_harness import START_MS, Group, LogPartition, Member, PartitionKey, group_with, joined

ACCEPT, RELEASE, REJECT, UNREAD = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.UNREAD,
)
ORDERS_0 = ("orders-id", 0)
LOCK_MS = 30_000
SESSION_TIMEOUT_MS = 45_000


def orders(*partitions: int) -> list[PartitionKey]:
    return [("orders-id", partition) for partition in partitions]


class TestParking:
    @pytest.fixture
    def group(self) -> Group:
        return group_with(0)

    @pytest.fixture
    def anna(self, group: Group) -> Member:
        return joined(group, "anna")[0]

    def test_a_fetch_without_records_is_parked_and_woken_by_growth(self, group: Group, anna: Member) -> None:
        sent = anna.send_fetch(max_wait_ms=10_000)
        assert anna.fetched(sent).is_parked
        group.advance(5_000)
        assert anna.response_to(sent).is_parked
        group.grow("orders", 0, 3)
        assert anna.fetched(sent).acquired == {ORDERS_0: [(0, 2, 1)]}

    def test_a_parked_fetch_is_completed_empty_at_its_deadline(self, group: Group, anna: Member) -> None:
        sent = anna.send_fetch(max_wait_ms=10_000)
        group.settle()
        assert group.wakes[ActorRole.LEADER] == group.now_ms + 10_000
        group.advance(9_999)
        assert anna.response_to(sent).is_parked
        group.advance(1)
        completed = anna.response_to(sent)
        assert completed.acquired == {}
        assert completed.response is not None
        assert completed.response.lock_deadline_ms == 0
        assert group.wakes[ActorRole.LEADER] == group.now_ms + SESSION_TIMEOUT_MS

    def test_a_late_batch_completes_a_fetch_whose_deadline_is_over_by_then(self, group: Group, anna: Member) -> None:
        sent = anna.send_fetch(max_wait_ms=500)
        group.run_batch(cut_ms=group.now_ms + 500)
        assert anna.response_to(sent).acquired == {}

    @pytest.mark.parametrize(("max_wait_ms", "max_records"), [(0, 500), (10_000, 0)])
    def test_some_fetches_never_wait(self, anna: Member, max_wait_ms: int, max_records: int) -> None:
        assert anna.fetch(max_wait_ms=max_wait_ms, max_records=max_records).acquired == {}

    def test_the_next_request_completes_a_parked_fetch(self, group: Group, anna: Member) -> None:
        parked = anna.send_fetch(max_wait_ms=10_000)
        group.settle()
        second = anna.send_fetch(max_wait_ms=10_000)
        group.settle()
        assert anna.response_to(parked).acquired == {}
        assert anna.response_to(second).is_parked
        acknowledged = anna.acknowledge({})
        assert acknowledged.error_code == 0
        assert anna.response_to(second).acquired == {}

    def test_a_request_in_the_same_batch_completes_a_fetch_and_its_acknowledgements(
        self, group: Group, anna: Member
    ) -> None:
        group.grow("orders", 0, 2)
        anna.fetch()
        first = anna.send_fetch(acknowledge={ORDERS_0: [(0, 0, ACCEPT)]})
        second = anna.send_acknowledge({ORDERS_0: [(1, 1, ACCEPT)]})
        group.settle()
        assert anna.response_to(first).acknowledge_errors == {ORDERS_0: 0}
        assert anna.response_to(second).acknowledge_errors == {ORDERS_0: 0}

    def test_a_fetch_with_acknowledgements_is_completed_at_once(self, group: Group, anna: Member) -> None:
        group.grow("orders", 0, 2)
        anna.fetch()
        completed = anna.fetch(acknowledge={ORDERS_0: [(0, 1, ACCEPT)]}, max_wait_ms=10_000)
        assert completed.acknowledge_errors == {ORDERS_0: 0}
        assert completed.acquired == {}

    def test_the_log_is_watched_from_the_first_fetch_that_waits_until_no_session_has_the_partition(
        self, group: Group, anna: Member
    ) -> None:
        anna.fetch(max_wait_ms=0)
        assert group.log_watch == {}
        sent = anna.send_fetch(max_wait_ms=1_000)
        group.settle()
        assert group.log_watch == {("orders", "orders-id", 0): 0}
        group.advance(1_000)
        assert not anna.response_to(sent).is_parked
        anna.close()
        assert group.log_watch == {}

    def test_growth_of_a_partition_that_nobody_waits_for_causes_no_message(self) -> None:
        group = group_with(0, 0)
        anna = Member(group, "anna")
        joined(group, "ben")
        anna.send_fetch([ORDERS_0], max_wait_ms=10_000)
        group.settle()
        group.grow("orders", 1, 5)
        assert group.pending_count == 0


@pytest.mark.parametrize(
    ("freed_by", "delivery_count"), [("release", 2), ("unread", 1), ("close", 2), ("lock timeout", 2)]
)
def test_records_that_another_member_frees_wake_a_parked_fetch(freed_by: str, delivery_count: int) -> None:
    group = group_with(10)
    anna, ben = joined(group, "anna", "ben")
    assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 1)]}
    sent = ben.send_fetch(max_wait_ms=60_000)
    assert ben.fetched(sent).is_parked
    match freed_by:
        case "release":
            anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        case "unread":
            anna.acknowledge({ORDERS_0: [(0, 9, UNREAD)]})
        case "close":
            anna.close()
        case "lock timeout":
            group.advance(LOCK_MS - 1)
            assert ben.response_to(sent).is_parked
            group.advance(1)
    assert ben.response_to(sent).acquired == {ORDERS_0: [(0, 9, delivery_count)]}


class TestLockTimes:
    @pytest.mark.parametrize(("batch_delay_ms", "from_ms"), [(0, 0), (50_000, 50_000), (-7_000, 0)])
    def test_new_locks_run_from_the_later_of_append_and_batch_time(self, batch_delay_ms: int, from_ms: int) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        sent = anna.send_fetch(max_wait_ms=60_000)
        group.run_batch(cut_ms=group.now_ms + batch_delay_ms)
        response = anna.response_to(sent).response
        assert response is not None
        assert response.acquisition_lock_timeout_ms == LOCK_MS
        assert response.lock_deadline_ms == group.now_ms + from_ms + LOCK_MS

    def test_a_fetch_whose_member_let_a_lock_end_gets_no_records(self) -> None:
        group = group_with(3)
        gone, heir = joined(group, "gone", "heir")
        assert gone.fetch().acquired == {ORDERS_0: [(0, 2, 1)]}
        left = gone.send_fetch(max_wait_ms=10 * LOCK_MS)
        waiting = heir.send_fetch(max_wait_ms=10 * LOCK_MS)
        group.advance(LOCK_MS)
        assert not gone.response_to(left).is_parked
        assert gone.response_to(left).acquired == {}
        assert heir.response_to(waiting).acquired == {ORDERS_0: [(0, 2, 2)]}
        # A member that is there after all sends another one.
        group.grow("orders", 0, 5)
        assert gone.fetch().acquired == {ORDERS_0: [(3, 7, 1)]}

    def test_the_leader_asks_to_be_woken_when_the_next_lock_ends(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=1)
        deadline_ms = group.now_ms + LOCK_MS
        group.advance(5_000)
        anna.fetch(max_records=1)
        assert group.wakes[ActorRole.LEADER] == deadline_ms

    def test_changed_lock_duration_applies_from_the_next_acquisition(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=1)
        assert group.alter_config(share_record_lock_duration_ms="15000") == 0
        changed = anna.fetch(max_records=1).response
        assert changed is not None
        assert changed.acquisition_lock_timeout_ms == 15_000
        assert changed.lock_deadline_ms == group.now_ms + 15_000
        group.advance(15_000)
        assert anna.acknowledge({ORDERS_0: [(0, 0, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
        assert anna.acknowledge({ORDERS_0: [(1, 1, ACCEPT)]}).acknowledge_errors != {ORDERS_0: 0}


class TestWhatMayBeAcquired:
    def test_read_committed_stops_at_the_last_stable_offset(self) -> None:
        group = group_with(LogPartition(end=100, stable=40))
        assert group.alter_config(share_isolation_level="read_committed") == 0
        (anna,) = joined(group, "anna")
        assert anna.fetch().acquired == {ORDERS_0: [(0, 39, 1)]}
        sent = anna.send_fetch()
        assert anna.fetched(sent).is_parked
        group.set_offsets("orders", 0, LogPartition(end=101, stable=101))
        assert anna.fetched(sent).acquired == {ORDERS_0: [(40, 100, 1)]}

    def test_read_uncommitted_goes_to_the_log_end(self) -> None:
        group = group_with(LogPartition(end=100, stable=40))
        assert joined(group, "anna")[0].fetch().record_count == 100

    def test_what_the_log_start_passes_is_gone_whichever_member_holds_it(self) -> None:
        group = group_with(20)
        (anna,) = joined(group, "anna")
        assert anna.fetch(max_records=10).acquired == {ORDERS_0: [(0, 9, 1)]}
        group.set_offsets("orders", 0, LogPartition(start=5, end=20))
        group.tell_offsets("orders")
        group.settle()
        (led,) = group.leader.partitions.values()
        assert led.share_partition.start_offset == 5
        assert anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
        assert anna.fetch().acquired == {ORDERS_0: [(10, 19, 1)]}

    def test_a_log_start_past_everything_in_flight_restarts_the_share_partition_there(self) -> None:
        group = group_with(20)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=10)
        group.set_offsets("orders", 0, LogPartition(start=15, end=30))
        group.tell_offsets("orders")
        assert anna.fetch().acquired == {ORDERS_0: [(15, 29, 1)]}

    def test_a_record_that_reached_the_delivery_limit_is_archived(self) -> None:
        group = group_with(3)
        assert group.alter_config(share_delivery_count_limit="2") == 0
        (anna,) = joined(group, "anna")
        for delivery_count in (1, 2):
            assert anna.fetch().acquired == {ORDERS_0: [(0, 2, delivery_count)]}
            anna.acknowledge({ORDERS_0: [(0, 0, RELEASE), (1, 1, RELEASE), (2, 2, RELEASE)]})
        assert anna.fetch(max_wait_ms=0).acquired == {}
        (led,) = group.leader.partitions.values()
        assert led.share_partition.start_offset == 3
        last = group.rows[-1]
        assert [entry.to_state for entry in last.transitions] == [RecordState.ARCHIVED] * 3

    @pytest.mark.parametrize("mode", list(AcquireMode))
    def test_max_records_bounds_fresh_records_in_both_modes(self, mode: AcquireMode) -> None:
        group = group_with(100)
        (anna,) = joined(group, "anna")
        assert anna.fetch(max_records=7, acquire_mode=mode).acquired == {ORDERS_0: [(0, 6, 1)]}

    def test_responses_are_split_at_the_batch_size(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        assert anna.fetch(batch_size=4).acquired == {ORDERS_0: [(0, 3, 1), (4, 7, 1), (8, 9, 1)]}


class TestPartitionsOfASession:
    def test_a_partition_that_is_not_led_has_an_error_of_its_own(self) -> None:
        group = group_with(5)
        (anna,) = joined(group, "anna")
        fetched = anna.fetch([("orders-id", 7), ("nowhere", 0), ORDERS_0])
        assert fetched.acquired == {ORDERS_0: [(0, 4, 1)]}
        errors = {key: partition.error_code for key, partition in fetched.partitions.items()}
        unknown = UnknownTopicOrPartitionError.code
        assert errors == {("orders-id", 7): unknown, ("nowhere", 0): UnknownTopicIdError.code, ORDERS_0: 0}

    def test_partitions_stay_in_the_session_until_they_are_forgotten(self) -> None:
        group = group_with(10, 10)
        (anna,) = joined(group, "anna")
        assert set(anna.fetch(orders(0, 1), max_records=2).acquired) == set(orders(0))
        assert set(anna.fetch([], max_records=2).acquired) == set(orders(1))
        assert set(anna.fetch([], forget=orders(0), max_records=2).acquired) == set(orders(1))
        assert set(anna.fetch([], max_records=20).acquired) == set(orders(1))
        assert anna.fetch([], max_wait_ms=0).acquired == {}

    def test_responses_begin_with_another_partition_each_time(self) -> None:
        group = group_with(100, 100, 100)
        (anna,) = joined(group, "anna")
        first = [next(iter(anna.fetch(max_records=10).acquired)) for _ in range(6)]
        assert first == orders(0, 1, 2, 0, 1, 2)

    def test_one_response_goes_on_with_the_next_partition_until_it_has_enough(self) -> None:
        group = group_with(10, 10, 10)
        (anna,) = joined(group, "anna")
        assert anna.fetch(max_records=25).acquired == {
            ("orders-id", 0): [(0, 9, 1)],
            ("orders-id", 1): [(0, 9, 1)],
            ("orders-id", 2): [(0, 4, 1)],
        }


class TestFairDivision:
    @pytest.mark.parametrize(
        ("member_count", "partition_sizes", "max_records", "expected"),
        [
            (2, [100], 500, [50, 50]),
            (3, [100], 500, [34, 33, 33]),
            (6, [100], 500, [17, 17, 17, 17, 16, 16]),
            (6, [4], 500, [1, 1, 1, 1, 0, 0]),
            (2, [100], 10, [10, 10]),
            (6, [40, 40, 40], 500, [20] * 6),
            (6, [40, 40, 40], 15, [15] * 6),
            (3, [40, 40, 40], 500, [40, 40, 40]),
        ],
    )
    @pytest.mark.parametrize("mode", list(AcquireMode))
    def test_sessions_that_fetch_together_share_what_is_there(
        self,
        member_count: int,
        partition_sizes: Sequence[int],
        max_records: int,
        expected: Sequence[int],
        mode: AcquireMode,
    ) -> None:
        group = group_with(*partition_sizes)
        members = joined(group, *(f"member-{index}" for index in range(member_count)))
        sent = [member.send_fetch(max_records=max_records, acquire_mode=mode) for member in members]
        group.settle()
        responses = [member.response_to(correlation_id) for member, correlation_id in zip(members, sent, strict=True)]
        assert [0 if response.is_parked else response.record_count for response in responses] == expected

    @pytest.mark.parametrize("mode", list(AcquireMode))
    def test_with_every_partition_given_to_all_members_all_get_work(self, mode: AcquireMode) -> None:
        group = group_with(40, 40, 40, broker=BrokerConfig(group_share_assignors="all"))
        members = joined(group, *(f"member-{index}" for index in range(6)))
        sent = [member.send_fetch(max_records=500, acquire_mode=mode) for member in members]
        group.settle()
        counts = [member.response_to(c).record_count for member, c in zip(members, sent, strict=True)]
        assert sum(counts) == 120
        assert max(counts) - min(counts) <= 3

    @pytest.mark.parametrize("mode", list(AcquireMode))
    def test_records_that_come_back_are_shared_as_well(self, mode: AcquireMode) -> None:
        group = group_with(60)
        anna, *others = joined(group, "anna", "ben", "cleo", "dora")
        assert anna.fetch().record_count == 60
        sent = [member.send_fetch(max_records=500, acquire_mode=mode) for member in others]
        group.settle()
        anna.close()
        assert [m.response_to(c).record_count for m, c in zip(others, sent, strict=True)] == [20, 20, 20]

    def test_alone_a_session_gets_the_whole_run_that_came_back(self) -> None:
        group = group_with(60)
        anna, ben = joined(group, "anna", "ben")
        anna.fetch()
        anna.close()
        assert ben.fetch(max_records=10, acquire_mode=AcquireMode.BATCH_OPTIMIZED).record_count == 60

    def test_the_earliest_fetch_is_served_first(self) -> None:
        group = group_with(0)
        anna, ben = joined(group, "anna", "ben")
        bens = ben.send_fetch(max_wait_ms=10_000)
        annas = anna.send_fetch(max_wait_ms=10_000)
        group.settle()
        group.grow("orders", 0, 1)
        group.settle()
        assert ben.response_to(bens).record_count == 1
        assert anna.response_to(annas).is_parked


def test_the_time_of_a_batch_never_makes_time_go_back() -> None:
    group = group_with(10)
    (anna,) = joined(group, "anna")
    group.now_ms += 1_000
    anna.fetch(max_records=1)
    group.now_ms = START_MS
    late = anna.fetch(max_records=1).response
    assert late is not None
    assert late.lock_deadline_ms == START_MS + 3_000 + LOCK_MS
