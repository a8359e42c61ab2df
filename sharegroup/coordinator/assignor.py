"""Assignors: which member may fetch from which share-partition (KIP-932, `group.share.assignors`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sharegroup.coordinator.group_state import Assignment, Member

TopicPartition = tuple[str, int]
"""Topic id and partition."""

Assignor = Callable[[Iterable[Member], Mapping[str, tuple[str, int]]], dict[str, Assignment]]
"""(members, topic name → (topic id, partition count)) → member id → assignment."""


def simple_assignment(members: Iterable[Member], topics: Mapping[str, tuple[str, int]]) -> dict[str, Assignment]:
    """Kafka's simple assignor: every member gets a partition, every partition a member, loads differ by little.

    Each partition goes to ceil(members / partitions) members (at least one); what a member has, it keeps as far
    as the balance allows.

    Args:
        members: members with their present assignment.
        topics: topic name → (topic id, number of initialised partitions).
    """
    ordered = sorted(members, key=lambda member: member.member_id)
    eligible: dict[TopicPartition, list[Member]] = {}
    for topic, (topic_id, count) in sorted(topics.items()):
        subscribers = [member for member in ordered if topic in member.subscribed_topic_names]
        for partition in range(count) if subscribers else ():
            eligible[topic_id, partition] = subscribers
    given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in ordered}
    sharing = {target: _sharing(len(members_), len(eligible)) for target, members_ in eligible.items()}
    most = -(-sum(sharing.values()) // max(len(ordered), 1))
    taken = _kept(eligible, sharing, given, most)
    for target, candidates in eligible.items():
        while taken[target] < min(sharing[target], len(candidates)):
            member = min(
                (member for member in candidates if target not in given[member.member_id]),
                key=lambda member: (len(given[member.member_id]), member.member_id),
            )
            given[member.member_id].append(target)
            taken[target] += 1
    _give_everyone_one(ordered, eligible, given, taken)
    return {member_id: _grouped(targets) for member_id, targets in given.items()}


def all_assignment(members: Iterable[Member], topics: Mapping[str, tuple[str, int]]) -> dict[str, Assignment]:
    """Every member may fetch from every partition of its topics: for few partitions, or partitions of unlike size."""
    return {
        member.member_id: _grouped(
            (topic_id, partition)
            for topic, (topic_id, count) in topics.items()
            if topic in member.subscribed_topic_names
            for partition in range(count)
        )
        for member in members
    }


ASSIGNORS: dict[str, Assignor] = {"simple": simple_assignment, "all": all_assignment}
"""Values of `group.share.assignors`."""


def _sharing(member_count: int, partition_count: int) -> int:
    return max(1, -(-member_count // partition_count))


def _kept(
    eligible: Mapping[TopicPartition, list[Member]],
    sharing: Mapping[TopicPartition, int],
    given: dict[str, list[TopicPartition]],
    most: int,
) -> dict[TopicPartition, int]:
    taken = dict.fromkeys(eligible, 0)
    for target, candidates in eligible.items():
        topic_id, partition = target
        for member in candidates:
            mine = given[member.member_id]
            has_it = partition in member.assignment.get(topic_id, ())
            if has_it and taken[target] < sharing[target] and len(mine) < most:
                mine.append(target)
                taken[target] += 1
    return taken


def _give_everyone_one(
    members: Iterable[Member],
    eligible: Mapping[TopicPartition, list[Member]],
    given: dict[str, list[TopicPartition]],
    taken: dict[TopicPartition, int],
) -> None:
    for member in members:
        if given[member.member_id]:
            continue
        targets = [target for target, candidates in eligible.items() if member in candidates]
        if targets:
            target = min(targets, key=lambda target: (taken[target], target))
            given[member.member_id].append(target)
            taken[target] += 1


def _grouped(targets: Iterable[TopicPartition]) -> Assignment:
    grouped: dict[str, list[int]] = {}
    for topic_id, partition in sorted(targets):
        grouped.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in grouped.items()}
