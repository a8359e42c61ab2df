"""Effects of a live leader, and the cost of a cut: only for what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.actor.context import CutTime
from sharegroup.actor.effects import Effect, Respond, ShareSessionsCounted, Wake, WatchLog
from sharegroup.actor.led_partition import LedPartition
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import request
from tests.actor.group_harness import Group, Member, group_with, joined

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
ORDERS_0, ORDERS_1 = ("orders-id", 0), ("orders-id", 1)
WATCH_0, WATCH_1 = ("orders", "orders-id", 0), ("orders", "orders-id", 1)


def cut(group: Group) -> list[Effect]:
    """Apply what is pending in one cut; returns the leader's effects, which the harness performs as well."""
    effects: list[Effect] = []
    finish = group.leader.finish

    def finish_and_check(last_offset: int, time: CutTime) -> list[Effect]:
        effects.extend(finish(last_offset, time))
        return effects

    group.leader.finish = finish_and_check  # type: ignore[method-assign]
    try:
        group.run_batch()
    finally:
        del group.leader.finish
    return effects


def watches(effects: list[Effect]) -> list[WatchLog]:
    return [effect for effect in effects if isinstance(effect, WatchLog)]


def wakes(effects: list[Effect]) -> list[int | None]:
    return [effect.at_ms for effect in effects if isinstance(effect, Wake)]


class TestWatches:
    @pytest.fixture
    def group(self) -> Group:
        return group_with(0, 0)

    @pytest.fixture
    def anna(self, group: Group) -> Member:
        """Waits for both partitions."""
        (anna,) = joined(group, "anna")
        anna.send_fetch(max_wait_ms=40_000)
        (watch,) = watches(cut(group))
        assert (watch.above_offset, watch.forgotten) == ({WATCH_0: 0, WATCH_1: 0}, frozenset())
        return anna

    def test_a_second_fetch_that_waits_for_the_same_adds_none(self, group: Group, anna: Member) -> None:
        (ben,) = joined(group, "ben")
        ben.send_fetch([ORDERS_0, ORDERS_1], max_wait_ms=40_000)
        assert watches(cut(group)) == []

    def test_after_its_report_only_what_grew_is_watched_again(self, group: Group, anna: Member) -> None:
        group.grow("orders", 0, 3)
        assert watches(cut(group)) == []
        anna.send_fetch([], max_wait_ms=40_000)
        (watch,) = watches(cut(group))
        assert watch.above_offset == {WATCH_0: 3}

    def test_one_that_others_wait_for_is_watched_again_at_once(self, group: Group, anna: Member) -> None:
        ben, cleo = Member(group, "ben"), Member(group, "cleo")
        for member in (ben, cleo):
            member.send_fetch([ORDERS_0], max_wait_ms=40_000)
        cut(group)
        group.grow("orders", 0, 1)
        (watch,) = watches(cut(group))
        assert watch.above_offset == {WATCH_0: 1}

    def test_what_no_session_has_any_more_is_forgotten(self, group: Group, anna: Member) -> None:
        anna.send_fetch([], forget=[ORDERS_1], max_wait_ms=40_000)
        (watch,) = watches(cut(group))
        assert (watch.above_offset, watch.forgotten) == ({}, frozenset({WATCH_1}))
        anna.send_acknowledge({}, -1)
        (watch,) = watches(cut(group))
        assert (watch.above_offset, watch.forgotten) == ({}, frozenset({WATCH_0}))

    def test_another_isolation_level_sets_all_of_them_again(self, group: Group, anna: Member) -> None:
        assert group.alter_config(share_isolation_level="read_committed") == 0
        assert group.watched_level is IsolationLevel.READ_COMMITTED
        assert group.log_watch == {WATCH_0: 0, WATCH_1: 0}


class TestWakes:
    def test_nothing_leaves_a_leader_to_which_nothing_happens(self) -> None:
        group = group_with(10)
        anna, ben = joined(group, "anna", "ben")
        anna.fetch()
        ben.send_fetch(max_wait_ms=20_000)
        group.settle()
        group.tell_offsets("orders")
        cut(group)
        group.tell_offsets("orders")
        # A watch that was reported is set again; nothing else is to be done.
        assert [effect for effect in cut(group) if not isinstance(effect, WatchLog)] == []

    def test_a_tick_uses_up_the_wake(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        anna.fetch()
        at_ms = group.wakes[ActorRole.LEADER]
        group.append_tick()
        assert wakes(cut(group)) == [at_ms]
        group.tell_offsets("orders")
        assert wakes(cut(group)) == []

    def test_sessions_are_counted_when_they_change(self) -> None:
        group = group_with(10)
        anna, ben = (Member(group, name) for name in ("anna", "ben"))
        joined(group, "cleo")
        counts = []
        acts: list[Callable[[], int]] = [
            lambda: anna.send_fetch([ORDERS_0], max_records=1),
            lambda: anna.send_fetch([], max_records=1),
            lambda: ben.send_fetch([ORDERS_0], max_records=1),
            lambda: ben.send_acknowledge({}, -1),
        ]
        for act in acts:
            act()
            counted = [effect for effect in cut(group) if isinstance(effect, ShareSessionsCounted)]
            counts.append([(effect.session_count, effect.share_partition_count) for effect in counted])
        assert counts == [[(1, 1)], [], [(2, 2)], [(1, 1)]]


class TestPatience:
    @pytest.mark.parametrize(("late_ms", "record_count"), [(19_999, 10), (20_000, 0)])
    def test_a_fetch_whose_deadline_is_past_acquires_nothing(self, late_ms: int, record_count: int) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        sent = anna.send_fetch(max_wait_ms=20_000)
        group.run_batch(cut_ms=group.now_ms + late_ms)
        assert anna.response_to(sent).record_count == record_count

    def test_it_claims_nothing_either(self) -> None:
        group = group_with(10)
        anna, ben = joined(group, "anna", "ben")
        late = anna.send_fetch([ORDERS_0], max_wait_ms=1_000)
        group.now_ms += 5_000
        sent = ben.send_fetch([ORDERS_0], max_wait_ms=1_000)
        group.run_batch()
        assert (anna.response_to(late).record_count, ben.response_to(sent).record_count) == (0, 10)

    def test_one_that_does_not_wait_acquires_what_is_there_in_its_cut(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        sent = anna.send_fetch(max_wait_ms=0)
        group.run_batch(cut_ms=group.now_ms + 100)
        assert anna.response_to(sent).record_count == 10


class TestCost:
    @pytest.mark.parametrize("partition_count", [10, 1_000])
    def test_a_cut_reads_the_share_partitions_that_it_touches(
        self, partition_count: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        group = group_with(*[0] * partition_count)
        (anna,) = joined(group, "anna")
        anna.send_fetch(max_wait_ms=40_000)
        group.settle()
        calls: Counter[str] = Counter()
        counted = [(LedPartition, "take_row"), (SharePartition, "acquirable_count"), (SharePartition, "expire_locks")]
        for owner, name in counted:
            monkeypatch.setattr(owner, name, _counted(getattr(owner, name), name, calls))
        for _ in range(3):
            group.grow("orders", 7, 5)
            group.settle()
            anna.acknowledge({("orders-id", 7): [(0, 4, ACCEPT)]})
            anna.send_fetch([], max_wait_ms=40_000)
            group.settle()
        assert calls["take_row"] <= 6
        assert calls["acquirable_count"] <= 15
        assert calls["expire_locks"] == 0

    def test_a_fragmented_share_partition_costs_with_the_runs_that_are_touched(self) -> None:
        group = group_with(2_000)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=2_000)
        anna.acknowledge({ORDERS_0: [(offset, offset, RELEASE) for offset in range(1, 2_000, 2)]})
        assert anna.fetch([], max_records=3).acquired == {ORDERS_0: [(1, 1, 2), (3, 3, 2), (5, 5, 2)]}
        (row,) = group.rows[-1:]
        assert len(row.transitions) == 3


def _counted(function: Any, name: str, calls: Counter[str]) -> Any:
    def counted(*arguments: Any, **keywords: Any) -> Any:
        calls[name] += 1
        return function(*arguments, **keywords)

    return counted


def test_a_group_with_nothing_left_is_empty() -> None:
    group = group_with(10, earliest=False)
    assert group.leader.is_empty
    (anna,) = joined(group, "anna")
    assert not group.leader.is_empty
    anna.fetch()
    anna.close()
    anna.leave()
    group.delete_topic("orders")
    group.settle()
    assert group.leader.is_empty
    group.append(request(ApiKey.TICK, group.group_id, Tick(), leader_epoch=1))
    assert not [effect for effect in cut(group) if isinstance(effect, Respond | WatchLog)]
