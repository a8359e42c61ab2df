"""Members that are dead lose their locks: those that say nothing, and those whose process has ended."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import AcknowledgeType, Cause
from sharegroup.errors import InvalidRecordStateError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import JOIN_EPOCH, MemberAlive, ShareGroupHeartbeatRequest
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


def advance(group: Group, duration_ms: int, *alive: Member) -> None:
    """Let time pass second by second, in each of which some members say that they are there."""
    for _ in range(duration_ms // 1_000):
        for member in alive:
            member.send(ApiKey.MEMBER_ALIVE, MemberAlive())
        group.settle()
        group.advance(1_000)


def test_a_member_that_says_nothing_loses_its_locks_after_the_time(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=10)
    advance(group, 4_000)
    assert holders(group) == {"anna"}
    advance(group, 2_000)
    assert holders(group) == set()
    assert causes(group)[-1] is Cause.MEMBER_SILENT
    assert ben.fetch(max_records=10).acquired == {ORDERS_0: [(0, 9, 2)]}
    late = anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
    assert late.acknowledge_errors == {ORDERS_0: InvalidRecordStateError.code}


def test_each_message_of_a_member_restarts_its_time(group: Group) -> None:
    anna, ben, cleo = joined(group, "anna", "ben", "cleo")
    for member in (anna, ben, cleo):
        member.fetch(max_records=2)
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
    advance(group, 3_000)
    group.now_ms += 30_000
    group.append_tick()
    group.settle()
    advance(group, 1_000)
    assert holders(group) == {"anna"}
    advance(group, 2_000)
    assert holders(group) == set()


def test_silence_starts_again_with_a_takeover(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    advance(group, 4_000)
    group.restart()
    advance(group, 4_000)
    assert holders(group) == {"anna"}
    advance(group, 2_000)
    assert holders(group) == set()


def test_members_that_hold_nothing_may_be_silent_and_cause_no_ticks(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=2)
    anna.acknowledge({ORDERS_0: [(0, 1, ACCEPT)]})
    advance(group, 6_000)
    message_count = len(group.log)
    advance(group, 20_000)
    assert len(group.log) - message_count <= 4, "the session's heartbeats and its end"


def test_a_member_that_may_return_keeps_its_locks_until_their_time(group: Group) -> None:
    (source,) = joined(group, "source")
    join = ShareGroupHeartbeatRequest(member_epoch=JOIN_EPOCH, subscribed_topic_names=["orders"], may_return=True)
    source.send(ApiKey.SHARE_GROUP_HEARTBEAT, join)
    group.settle()
    source.fetch(max_records=10)
    advance(group, 20_000)
    assert holders(group) == {"source"}
    group.restart()
    advance(group, 20_000)
    assert holders(group) == {"source"}
    advance(group, 25_000)
    assert causes(group)[-1] is Cause.LOCK_TIMEOUT


def test_a_member_that_left_with_its_locks_keeps_them_after_a_restart(group: Group) -> None:
    (source,) = joined(group, "source")
    join = ShareGroupHeartbeatRequest(member_epoch=JOIN_EPOCH, subscribed_topic_names=["orders"], may_return=True)
    source.send(ApiKey.SHARE_GROUP_HEARTBEAT, join)
    group.settle()
    source.fetch(max_records=10)
    source.leave()
    group.restart()
    advance(group, 20_000)
    assert holders(group) == {"source"}
    advance(group, 45_000)
    assert causes(group)[-1] is Cause.LOCK_TIMEOUT


def test_0_counts_no_silence_and_a_change_counts_at_once(group: Group) -> None:
    group.alter_config(share_member_silence_ms="0")
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    advance(group, 20_000)
    assert holders(group) == {"anna"}
    group.alter_config(share_member_silence_ms="2000")
    advance(group, 4_000)
    assert causes(group)[-1] is Cause.MEMBER_SILENT


def test_the_fetch_that_a_silent_member_left_does_not_take_the_records_again(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=20)
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
