"""Assignors: balances that Kafka 4.3.1 was seen to make, and what holds of every assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.coordinator.assignor import ASSIGNORS, all_assignment, simple_assignment
from sharegroup.coordinator.group_state import Assignment, Member

Topics = Mapping[str, tuple[str, Collection[int]]]


def members_of(count: int, topics: Sequence[str] = ("orders",)) -> list[Member]:
    return [Member(f"member-{index:03}", "", "", tuple(topics)) for index in range(count)]


def orders(partition_count: int) -> Topics:
    return {"orders": ("orders-id", range(partition_count))}


def loads(assignments: Mapping[str, Assignment]) -> list[int]:
    return sorted((sum(map(len, assignment.values())) for assignment in assignments.values()), reverse=True)


def holders(assignments: Mapping[str, Assignment]) -> Counter[tuple[str, int]]:
    return Counter(
        (topic_id, partition)
        for assignment in assignments.values()
        for topic_id, partitions in assignment.items()
        for partition in partitions
    )


def with_assignment(members: Sequence[Member], assignments: Mapping[str, Assignment]) -> list[Member]:
    return [replace(member, assignment=assignments.get(member.member_id, {})) for member in members]


@pytest.mark.parametrize(
    ("partition_count", "member_count", "expected_loads", "members_for_each"),
    [
        (4, 1, [4], 1),
        (4, 2, [2, 2], 1),
        (4, 3, [2, 1, 1], 1),
        (4, 4, [1, 1, 1, 1], 1),
        (4, 5, [2, 2, 2, 1, 1], 2),
        (4, 6, [2, 2, 1, 1, 1, 1], 2),
        (1, 5, [1, 1, 1, 1, 1], 5),
        (3, 6, [1, 1, 1, 1, 1, 1], 2),
    ],
)
def test_balances_recorded_of_kafka(
    partition_count: int, member_count: int, expected_loads: list[int], members_for_each: int
) -> None:
    assignments = simple_assignment(members_of(member_count), orders(partition_count))
    assert loads(assignments) == expected_loads
    assert set(holders(assignments).values()) == {members_for_each}


class TestStickiness:
    def test_a_new_member_gets_what_the_others_have_too_much_of(self) -> None:
        members = members_of(2)
        before = simple_assignment(members, orders(4))
        after = simple_assignment(with_assignment(members_of(3), before), orders(4))
        moved = sum(len(set(before[m]["orders-id"]) - set(after[m]["orders-id"])) for m in before)
        assert loads(after) == [2, 1, 1]
        assert moved == 1

    def test_what_a_leaver_had_goes_to_the_others_who_keep_theirs(self) -> None:
        members = members_of(3)
        before = simple_assignment(members, orders(6))
        after = simple_assignment(with_assignment(members[1:], before), orders(6))
        assert loads(after) == [3, 3]
        for member_id in after:
            assert set(before[member_id]["orders-id"]) <= set(after[member_id]["orders-id"])

    def test_a_new_partition_moves_none_of_the_old(self) -> None:
        members = members_of(2)
        before = simple_assignment(members, orders(4))
        after = simple_assignment(with_assignment(members, before), orders(5))
        assert loads(after) == [3, 2]
        for member_id in before:
            assert set(before[member_id]["orders-id"]) <= set(after[member_id]["orders-id"])

    def test_partitions_of_topics_that_are_gone_or_unsubscribed_are_given_up(self) -> None:
        member = Member("member-000", "", "", ("orders",), assignment={"old-id": (0, 1), "payments-id": (0,)})
        topics = {**orders(1), "payments": ("payments-id", [0])}
        assert simple_assignment([member], topics) == {"member-000": {"orders-id": (0,)}}


class TestDifferentSubscriptions:
    def test_each_member_gets_of_its_own_topics_only(self) -> None:
        members = [*members_of(1, ["orders"]), Member("member-100", "", "", ("payments",))]
        topics = {**orders(2), "payments": ("payments-id", range(3))}
        assert simple_assignment(members, topics) == {
            "member-000": {"orders-id": (0, 1)},
            "member-100": {"payments-id": (0, 1, 2)},
        }

    def test_who_has_a_choice_leaves_the_rest_to_who_has_none(self) -> None:
        members = [*members_of(2, ["orders"]), Member("member-100", "", "", ("orders", "payments"))]
        topics = {**orders(2), "payments": ("payments-id", range(2))}
        assignments = simple_assignment(members, topics)
        assert assignments["member-100"] == {"payments-id": (0, 1)}
        assert loads(assignments) == [2, 1, 1]

    def test_more_members_than_partitions_of_their_only_topic(self) -> None:
        members = [*members_of(5, ["orders"]), Member("member-100", "", "", ("payments",))]
        topics = {**orders(1), "payments": ("payments-id", range(9))}
        assignments = simple_assignment(members, topics)
        assert [assignments[f"member-00{index}"] for index in range(5)] == [{"orders-id": (0,)}] * 5

    def test_a_topic_that_nobody_has_yet_seen_is_left_out(self) -> None:
        assert simple_assignment(members_of(2, ["nowhere"]), orders(2)) == {"member-000": {}, "member-001": {}}

    def test_only_initialised_partitions_are_given(self) -> None:
        topics = {"orders": ("orders-id", frozenset({1, 4}))}
        assert holders(simple_assignment(members_of(1), topics)) == {("orders-id", 1): 1, ("orders-id", 4): 1}


def test_all_gives_every_partition_to_every_subscriber() -> None:
    members = [*members_of(2), Member("member-100", "", "", ("payments",))]
    topics = {**orders(2), "payments": ("payments-id", [0])}
    assert all_assignment(members, topics) == {
        "member-000": {"orders-id": (0, 1)},
        "member-001": {"orders-id": (0, 1)},
        "member-100": {"payments-id": (0,)},
    }


TOPIC_NAMES = ("orders", "payments", "returns")
ALL_TOPICS = st.fixed_dictionaries(
    {},
    optional={
        name: st.tuples(st.just(f"{name}-id"), st.frozensets(st.integers(0, 12), min_size=1)) for name in TOPIC_NAMES
    },
)
ASSIGNMENTS = st.dictionaries(
    st.sampled_from([f"{name}-id" for name in TOPIC_NAMES] + ["gone-id"]),
    st.lists(st.integers(0, 12), unique=True).map(lambda drawn: tuple(sorted(drawn))),
)


@st.composite
def groups(draw: st.DrawFn, homogeneous: bool = False) -> list[Member]:
    subscriptions = st.lists(st.sampled_from(TOPIC_NAMES), unique=True).map(lambda drawn: tuple(sorted(drawn)))
    shared = draw(subscriptions)
    return [
        Member(member_id, "", "", shared if homogeneous else draw(subscriptions), assignment=draw(ASSIGNMENTS))
        for member_id in draw(st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=14))
    ]


@given(groups(), ALL_TOPICS)
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_member_has_work_and_every_partition_a_member(name: str, members: list[Member], topics: Topics) -> None:
    assignments = ASSIGNORS[name](members, topics)
    assert set(assignments) == {member.member_id for member in members}
    for member in members:
        allowed = {
            topics[topic][0]: set(topics[topic][1]) for topic in member.subscribed_topic_names if topic in topics
        }
        assignment = assignments[member.member_id]
        assert bool(assignment) == bool(allowed)
        for topic_id, partitions in assignment.items():
            assert partitions == tuple(sorted(set(partitions)))
            assert set(partitions) <= allowed[topic_id]
    subscribed = {topic for member in members for topic in member.subscribed_topic_names}
    expected = {(i, p) for topic, (i, partitions) in topics.items() if topic in subscribed for p in partitions}
    assert set(holders(assignments)) == expected


@given(groups(homogeneous=True), ALL_TOPICS)
def test_with_equal_subscriptions_loads_differ_by_one_at_most(members: list[Member], topics: Topics) -> None:
    sizes = loads(simple_assignment(members, topics))
    assert not sizes or sizes[0] - sizes[-1] <= 1


@given(groups(homogeneous=True), ALL_TOPICS)
def test_with_equal_subscriptions_each_partition_has_as_many_members(members: list[Member], topics: Topics) -> None:
    assert len(set(holders(simple_assignment(members, topics)).values())) <= 1


@given(groups(homogeneous=True), ALL_TOPICS)
def test_with_equal_subscriptions_an_assignment_made_again_stays_as_it_is(
    members: list[Member], topics: Topics
) -> None:
    once = simple_assignment(members, topics)
    assert simple_assignment(with_assignment(members, once), topics) == once


@given(groups(), ALL_TOPICS, st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_the_order_in_which_members_come_does_not_matter(
    name: str, members: list[Member], topics: Topics, random: Random
) -> None:
    shuffled = sorted(members, key=lambda _: random.random())
    assert ASSIGNORS[name](shuffled, topics) == ASSIGNORS[name](members, topics)
