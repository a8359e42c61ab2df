"""Conclusions from lookups of one topic: brokers' metadata lags, so one response proves little."""

from __future__ import annotations

import pytest

from sharegroup.logs.port import TopicIdentity
from sharegroup.processor.watches.topic_view import NO_TOPIC, TopicView

OLD = TopicIdentity("old", 2)
NEW = TopicIdentity("new", 3)
UNKNOWN_TOPIC = ("", -1)


def seen(*identities: TopicIdentity | None) -> TopicView:
    """A view after lookups that are half a second apart."""
    view = TopicView()
    for number, identity in enumerate(identities, 1):
        if identity is None:
            view.take_missing(number, number / 2)
        else:
            view.take(identity, number, number / 2)
    return view


def test_a_topic_that_a_group_knows_nothing_of_counts_at_once() -> None:
    view = seen(OLD)
    assert view.change_for(NO_TOPIC) == ("old", 2)
    assert view.change_for(("old", 2)) is None


@pytest.mark.parametrize("known", [("other", 2), UNKNOWN_TOPIC])
def test_another_id_counts_when_it_was_seen_twice(known: tuple[str, int]) -> None:
    assert seen(NEW).change_for(known) is None
    assert seen(OLD, NEW).change_for(known) is None
    assert seen(NEW, NEW).change_for(known) == ("new", 3)


def test_an_id_that_was_seen_once_is_looked_up_again_soon() -> None:
    assert seen(OLD).next_poll_s == pytest.approx(0.5 + 0.1)
    assert seen(OLD, OLD).next_poll_s == pytest.approx(1.0 + 0.5)


def test_more_partitions_count_at_once_and_fewer_never() -> None:
    assert seen(OLD, TopicIdentity("old", 5)).change_for(("old", 2)) == ("old", 5)
    assert seen(TopicIdentity("old", 5), OLD).change_for(("old", 5)) is None


def test_a_topic_counts_as_deleted_after_lookups_over_some_seconds() -> None:
    for count in range(1, 7):
        assert seen(OLD, OLD, *[None] * count).change_for(("old", 2)) is None
    view = seen(OLD, OLD, *[None] * 7)
    assert view.change_for(("old", 2)) == NO_TOPIC
    assert view.change_for(NO_TOPIC) is None
    assert view.sequence == 9


def test_few_lookups_over_a_long_time_do_not_delete_a_topic() -> None:
    view = seen(OLD, OLD)
    view.take_missing(3, 100.0)
    view.take_missing(4, 200.0)
    assert view.change_for(("old", 2)) is None
    view.take_missing(5, 300.0)
    assert view.change_for(("old", 2)) == NO_TOPIC


def test_a_lookup_that_sees_the_topic_again_starts_the_count_again() -> None:
    missing = [None] * 6
    assert seen(OLD, *missing, OLD, *missing).change_for(("old", 2)) is None


def test_nothing_is_concluded_while_the_topic_is_missing() -> None:
    view = seen(OLD, None)
    assert view.published is None
    assert view.change_for(NO_TOPIC) is None


def test_a_failure_says_nothing_of_the_topic_and_is_repeated_ever_later() -> None:
    view = seen(OLD, OLD)
    now_s, pauses = 10.0, []
    for _ in range(7):
        is_new = view.fail("denied", now_s)
        assert is_new == (now_s == 10.0)
        pauses.append(view.next_poll_s - now_s)
        now_s = view.next_poll_s
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert view.published is None
    view.take(OLD, 3, now_s)
    assert view.published == (OLD, 3)


def test_a_failure_soon_after_a_good_lookup_goes_on_with_the_longer_pause() -> None:
    view = seen(OLD)
    view.fail("denied", 10.0)
    view.take(OLD, 2, 11.0)
    assert not view.fail("denied", 11.0)
    assert view.next_poll_s == 13.0
    view.take(OLD, 3, 13.0)
    assert view.fail("denied", 60.0)
    assert view.next_poll_s == 61.0


def test_partitions_without_a_leader_and_silent_ones_are_not_available() -> None:
    view = seen(TopicIdentity("old", 4, leaderless=frozenset({1})))
    view.fail("no response", 1.0, [2])
    published = view.published
    assert published is not None
    assert published[0].leaderless == {1, 2}
    view.respond([2])
    assert view.unavailable == {1}
