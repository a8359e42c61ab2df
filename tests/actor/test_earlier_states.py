"""A group whose state began with an older copy: it acquires nothing before the lost writes are taken over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_description import ShareGroupDescribeRequest
from sharegroup.protocol.row_payloads import EarlierState
from tests.actor.group_harness import Group, group_with
from tests.actor.sink_group import LOCK_MS, ORDERS, acquire, new_group, response, unresolved, writer

KEY = "share_exactly_once_accepted_state_id"
FIRST = EarlierState(state_id="first", ended_ms=7, followed_by="second", end_offsets={0: 4})
SECOND = EarlierState(state_id="second", ended_ms=9, followed_by="present")


def restart_after(group: Group, *earlier: EarlierState) -> None:
    group.context = replace(group.context, state_id="present", earlier_states=earlier)
    group.restart()
    group.settle()


def awaited(group: Group) -> list[dict[str, Any]]:
    described = group.response_to(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest())
    states: list[dict[str, Any]] = described.get("awaited_states", [])
    return states


@pytest.fixture
def group() -> Group:
    return new_group()


def test_nothing_is_acquired_until_the_writes_are_taken_over(group: Group) -> None:
    restart_after(group, FIRST)
    anna = writer(group)
    refused = anna.fetch((ORDERS,)).response
    assert refused is not None
    assert refused.error_code == InvalidRequestError.code
    assert f"sharegroup groups resolve --group {group.group_id} --older-state" in refused.error_message
    assert awaited(group) == [{"state_id": "first", "ended_ms": 7, "end_offset": 4}]
    group.alter_config(**{KEY: "present"})
    assert awaited(group) == []
    anna.session_epoch = 0
    assert "/present/" in acquire(anna, max_records=2).app_id


def test_open_writes_are_handed_out_meanwhile(group: Group) -> None:
    anna = writer(group)
    write = acquire(anna, max_records=2)
    group.advance(LOCK_MS)
    restart_after(group, FIRST)
    bob = writer(group, "bob")
    fetched = bob.fetch((ORDERS,))
    assert unresolved(fetched) == [write.version]
    assert not response(fetched).responses


def test_a_group_that_was_taken_over_before_awaits_later_states_only(group: Group) -> None:
    group.alter_config(**{KEY: "second"})
    restart_after(group, FIRST, SECOND)
    assert awaited(group) == [{"state_id": "second", "ended_ms": 9, "end_offset": 0}]


def test_states_that_were_lost_together_are_awaited_together(group: Group) -> None:
    # The message with the key was sent in a state that is lost, and is applied again.
    group.alter_config(**{KEY: "second"})
    restart_after(group, FIRST.model_copy(update={"followed_by": "present"}), SECOND)
    assert [state["state_id"] for state in awaited(group)] == ["first", "second"]


def test_groups_without_the_switch_go_on() -> None:
    group = group_with(10)
    restart_after(group, FIRST)
    anna = writer(group, sink=None)
    assert response(anna.fetch((ORDERS,))).responses
    assert awaited(group) == []
