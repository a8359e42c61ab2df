"""Wake-up times by partition of the request log."""

from __future__ import annotations

import pytest

from sharegroup.actor.effects import Wake
from sharegroup.processor.clocks import Timers
from sharegroup.protocol.api_key import ActorRole

PARTITIONS = {"first": 0, "second": 0, "third": 1}


@pytest.fixture
def timers() -> Timers:
    return Timers(PARTITIONS.__getitem__)


def wake(group_id: str, at_ms: int | None, role: ActorRole = ActorRole.LEADER) -> Wake:
    return Wake(group_id, role, at_ms)


def test_a_group_is_due_when_its_time_has_passed_and_only_once(timers: Timers) -> None:
    timers.update([wake("first", 100)])
    assert timers.next_ms(0) == 100
    assert timers.due(0, 99) == []
    assert timers.due(0, 100) == ["first"]
    assert timers.due(0, 1_000) == []
    assert timers.next_ms(0) is None


def test_actors_of_a_group_that_are_due_share_one_tick(timers: Timers) -> None:
    timers.update([wake("second", 100), wake("first", 90), wake("first", 40, ActorRole.COORDINATOR)])
    assert timers.due(0, 100) == ["first", "second"]
    assert timers.next_ms(0) is None


def test_partitions_have_times_of_their_own(timers: Timers) -> None:
    timers.update([wake("first", 100), wake("third", 50)])
    assert (timers.next_ms(0), timers.next_ms(1), timers.next_ms(2)) == (100, 50, None)
    assert timers.due(1, 1_000) == ["third"]
    assert timers.due(0, 1_000) == ["first"]


@pytest.mark.parametrize(("later_ms", "next_ms"), [(None, None), (500, 500), (20, 20)])
def test_a_new_time_replaces_the_old_one(timers: Timers, later_ms: int | None, next_ms: int | None) -> None:
    timers.update([wake("first", 100), wake("first", later_ms)])
    assert timers.next_ms(0) == next_ms
    assert timers.due(0, 499) == (["first"] if later_ms == 20 else [])


def test_an_actor_that_is_due_does_not_take_the_time_of_the_other(timers: Timers) -> None:
    timers.update([wake("first", 10), wake("first", 300, ActorRole.COORDINATOR)])
    assert timers.due(0, 20) == ["first"]
    assert timers.next_ms(0) == 300


def test_times_that_are_replaced_all_the_time_stay_in_order(timers: Timers) -> None:
    for at_ms in range(1_000, 3_000):
        timers.update([wake("first", at_ms), wake("second", 10_000 - at_ms)])
    assert timers.next_ms(0) == 2_999
    assert timers.due(0, 2_999) == ["first"]
    assert timers.due(0, 7_001) == ["second"]
