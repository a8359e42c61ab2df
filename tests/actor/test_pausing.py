"""A paused group acquires nothing; what is held goes its way, and a restart does not end the pause."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.errors import GroupIdNotFoundError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import DeleteGroupsRequest
from sharegroup.protocol.group_description import ShareGroupDescribeRequest
from sharegroup.protocol.group_messages import PauseShareGroupRequest
from sharegroup.protocol.internal_messages import ShareGroupConfigChanged
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from tests.actor.group_harness import Group, Member, group_with, joined

ACCEPT = AcknowledgeType.ACCEPT
ORDERS_0 = ("orders-id", 0)
LOCK_MS = 30_000


def pause(group: Group, reason: str = "") -> int:
    return group.ask(ApiKey.PAUSE_SHARE_GROUP, PauseShareGroupRequest(reason=reason))


@pytest.fixture
def group() -> Group:
    return group_with(20)


@pytest.fixture
def anna(group: Group) -> Member:
    """Holds 0..9."""
    (anna,) = joined(group, "anna")
    assert anna.fetch(max_records=10).record_count == 10
    return anna


def test_nothing_is_acquired_until_it_is_resumed(group: Group, anna: Member) -> None:
    assert pause(group) == 0
    correlation_id = anna.send_fetch(max_records=10, max_wait_ms=10_000)
    group.settle()
    assert anna.fetched(correlation_id).is_parked
    group.grow("orders", 0, 5)
    group.settle()
    assert anna.fetched(correlation_id).is_parked
    assert group.resume() == 0
    assert anna.fetched(correlation_id).record_count == 10


def test_a_fetch_that_waits_long_enough_is_completed_with_nothing(group: Group, anna: Member) -> None:
    pause(group)
    correlation_id = anna.send_fetch(max_records=10, max_wait_ms=1_000)
    group.settle()
    group.advance(1_000)
    assert anna.fetched(correlation_id).record_count == 0


def test_a_fetch_of_the_same_cut_acquires_nothing(group: Group, anna: Member) -> None:
    group.send_as_admin(ApiKey.PAUSE_SHARE_GROUP, PauseShareGroupRequest())
    correlation_id = anna.send_fetch(max_records=10, max_wait_ms=10_000)
    group.settle()
    assert anna.fetched(correlation_id).is_parked


def test_what_is_held_may_be_acknowledged_and_its_locks_run_on(group: Group, anna: Member) -> None:
    pause(group)
    assert anna.acknowledge({ORDERS_0: [(0, 4, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
    group.advance(LOCK_MS)
    led = group.leader.partitions[ORDERS_0]
    assert led.share_partition.start_offset == 5
    assert [(run.first_offset, run.last_offset, run.state) for run in led.share_partition.runs] == [
        (5, 9, RecordState.AVAILABLE)
    ]


def test_a_restart_does_not_end_it(group: Group, anna: Member) -> None:
    pause(group, "the sink is down")
    group.restart()
    (ben,) = joined(group, "ben")
    assert ben.fetch(max_records=10, max_wait_ms=0).record_count == 0
    response = group.response_to(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest())
    assert (response["group_state"], response["is_paused"], response["pause_reason"]) == (
        "Paused",
        True,
        "the sink is down",
    )
    group.resume()
    group.restart()
    assert group.response_to(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest())["group_state"] == "Stable"


def test_pause_and_resume_are_rows_once(group: Group, anna: Member) -> None:
    before = len(group.rows_of(RecordType.GROUP_METADATA))
    for _ in range(2):
        pause(group, "why")
    for _ in range(2):
        group.resume()
    records = [r for row in group.rows_of(RecordType.GROUP_METADATA)[before:] for r in row.payload["records"]]
    assert [(record["type"], record["is_paused"], record["reason"]) for record in records] == [
        ("ShareGroupPaused", True, "why"),
        ("ShareGroupPaused", False, ""),
    ]
    pause(group)
    metadata = fold(group.rows).groups[group.group_id].metadata
    assert metadata.records() == group.coordinator.group.state.records()
    assert metadata.pause is not None


def test_a_deleted_group_leaves_no_pause_to_the_next_one_of_its_name(group: Group, anna: Member) -> None:
    pause(group)
    # Her share session outlives her membership, and keeps the group's leader.
    anna.leave()
    assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
    group.alter_config(share_auto_offset_reset="earliest")
    (ben,) = joined(group, "ben")
    assert ben.fetch(max_records=10).record_count == 10


def test_a_pause_after_the_removal_is_that_of_the_next_group(group: Group) -> None:
    joined(group, "anna")
    pause(group)
    removed = ShareGroupConfigChanged(overrides=dict(group.leader.overrides), removed_at_offset=0)
    for member_id in ("ben", "eve"):
        group.tell(ApiKey.SHARE_GROUP_CONFIG_CHANGED, removed)
        (member,) = joined(group, member_id)
        assert member.fetch(max_records=10, max_wait_ms=0).record_count == 0
        group.restart()


def test_a_group_that_is_not_there_cannot_be_paused() -> None:
    group = group_with(20, earliest=False)
    assert pause(group) == GroupIdNotFoundError.code
    group.alter_config(share_auto_offset_reset="earliest")
    (anna,) = joined(group, "anna")
    assert anna.fetch(max_records=10).record_count == 10
