"""Members that are dead lose their locks: those that say nothing, and those whose process has ended."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import AcknowledgeType, Cause
from sharegroup.errors import InvalidRecordStateError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import MemberAlive
from sharegroup.protocol.internal_messages import MemberEnded
from tests.actor.group_harness import Group, Member, group_with, joined

ORDERS_0 = ("orders-id", 0)
ACCEPT = AcknowledgeType.ACCEPT


@pytest.fixture
def group() -> Group:
    group = group_with(20)
    assert group.alter_config(share_member_silence_ms="5000", share_record_lock_duration_ms="60000") == 0
    return group


def holders(group: Group) -> set[str]:
    return {run.member_id for led in group.leader.partitions.values() for run in led.share_partition.runs} - {""}


def causes(group: Group) -> list[Cause]:
    return [entry.cause for row in group.rows for entry in row.transitions]


def give_sign(member: Member) -> None:
    member.send(ApiKey.MEMBER_ALIVE, MemberAlive())


def advance(group: Group, duration_ms: int, *alive: Member) -> None:
    """Let time pass second by second, in each of which the helpers of some members give a sign of life."""
    for _ in range(duration_ms // 1_000):
        for member in alive:
            give_sign(member)
        group.settle()
        group.advance(1_000)


def test_a_member_without_signs_of_life_keeps_its_locks_until_their_time(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    advance(group, 50_000)
    assert holders(group) == {"anna"}
    advance(group, 11_000)
    assert holders(group) == set()
    assert set(causes(group)) == {Cause.ACQUIRE, Cause.LOCK_TIMEOUT}


def test_a_member_whose_signs_of_life_end_loses_its_locks_after_the_time(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=10)
    advance(group, 20_000, anna)
    advance(group, 3_000)
    assert holders(group) == {"anna"}
    advance(group, 2_000)
    assert holders(group) == set()
    assert causes(group)[-1] is Cause.MEMBER_SILENT
    assert ben.fetch(max_records=10).acquired == {ORDERS_0: [(0, 9, 2)]}
    late = anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
    assert late.acknowledge_errors == {ORDERS_0: InvalidRecordStateError.code}


def test_one_sign_of_life_is_enough(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    advance(group, 20_000)
    give_sign(anna)
    advance(group, 6_000)
    assert causes(group)[-1] is Cause.MEMBER_SILENT


def test_a_sign_of_life_counts_for_the_records_that_are_held_then(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=2)
    advance(group, 2_000, anna)
    anna.acknowledge({ORDERS_0: [(0, 1, ACCEPT)]})
    give_sign(anna)
    advance(group, 1_000)
    anna.fetch(max_records=2)
    advance(group, 20_000)
    assert holders(group) == {"anna"}


def test_records_that_a_parked_fetch_brings_need_a_sign_of_life_of_their_own(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=20)
    advance(group, 2_000, anna)
    anna.acknowledge({ORDERS_0: [(0, 19, ACCEPT)]})
    waiting = anna.send_fetch([], max_records=20, max_wait_ms=15_000)
    group.settle()
    advance(group, 2_000)
    group.grow("orders", 0, 5)
    group.settle()
    assert anna.fetched(waiting).acquired == {ORDERS_0: [(20, 24, 1)]}
    advance(group, 20_000)
    assert holders(group) == {"anna"}


def test_each_message_of_a_member_restarts_its_time(group: Group) -> None:
    anna, ben, cleo = joined(group, "anna", "ben", "cleo")
    for member in (anna, ben, cleo):
        member.fetch(max_records=2)
        give_sign(member)
    for _ in range(10):
        ben.heartbeat()
        advance(group, 3_000, anna)
    assert holders(group) == {"anna", "ben"}


def test_locks_end_by_time_however_alive_a_member_is(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=2)
    advance(group, 61_000, anna)
    assert holders(group) == set()
    assert causes(group)[-1] is Cause.LOCK_TIMEOUT


def test_silence_of_a_log_that_was_away_does_not_count(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    give_sign(anna)
    advance(group, 3_000)
    group.now_ms += 30_000
    group.append_tick()
    group.settle()
    advance(group, 1_000)
    assert holders(group) == {"anna"}
    advance(group, 2_000)
    assert holders(group) == set()


def test_silence_starts_again_with_the_first_sign_of_life_after_a_takeover(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    give_sign(anna)
    advance(group, 4_000)
    group.restart()
    advance(group, 10_000)
    give_sign(anna)
    advance(group, 4_000)
    assert holders(group) == {"anna"}
    advance(group, 2_000)
    assert holders(group) == set()


def test_members_that_hold_nothing_may_be_silent_and_cause_no_ticks(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=2)
    give_sign(anna)
    anna.acknowledge({ORDERS_0: [(0, 1, ACCEPT)]})
    give_sign(anna)
    advance(group, 6_000)
    message_count = len(group.log)
    advance(group, 20_000)
    assert len(group.log) - message_count <= 4, "the session's heartbeats and its end"


def test_0_counts_no_silence_and_a_change_counts_from_the_next_sign_of_life(group: Group) -> None:
    group.alter_config(share_member_silence_ms="0")
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    give_sign(anna)
    advance(group, 20_000)
    assert holders(group) == {"anna"}
    group.alter_config(share_member_silence_ms="2000")
    advance(group, 4_000)
    assert holders(group) == {"anna"}
    give_sign(anna)
    advance(group, 4_000)
    assert causes(group)[-1] is Cause.MEMBER_SILENT


def test_a_changed_time_counts_for_a_silence_that_has_begun(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    give_sign(anna)
    advance(group, 3_000)
    group.alter_config(share_member_silence_ms="10000")
    advance(group, 8_000)
    assert holders(group) == {"anna"}
    advance(group, 4_000)
    assert causes(group)[-1] is Cause.MEMBER_SILENT


def test_the_fetch_that_a_silent_member_left_does_not_take_the_records_again(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=20)
    give_sign(anna)
    waiting = anna.send_fetch([], max_records=20)
    group.settle()
    advance(group, 6_000)
    assert holders(group) == set()
    assert anna.response_to(waiting).acquired == {}


def test_what_a_member_held_goes_back_as_soon_as_its_process_has_ended(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=10)
    waiting = ben.send_fetch([ORDERS_0], max_records=20)
    group.settle()
    ben_first = ben.fetched(waiting)
    assert ben_first.acquired == {ORDERS_0: [(10, 19, 1)]}
    group.tell(ApiKey.MEMBER_ENDED, MemberEnded(member_id="anna"))
    group.settle()
    assert causes(group)[-1] is Cause.MEMBER_ENDED
    assert holders(group) == {"ben"}
    assert "anna" not in group.coordinator.group.state.members
    assert [session.member_id for session in group.leader.sessions] == ["ben"]
    assert ben.acknowledge({ORDERS_0: [(10, 19, AcknowledgeType.ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
    assert ben.fetch(max_records=20).acquired == {ORDERS_0: [(0, 9, 2)]}
