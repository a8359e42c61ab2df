"""Assignors: the share-partitions that each member may fetch from (KIP-932, `group.share.assignors`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from sortedcontainers import SortedSet

from sharegroup.coordinator.group_state import Assignment, Member
from sharegroup.core.records import PartitionKey

Topics = Mapping[str, tuple[str, Collection[int]]]
"""Topic name → (topic id, partitions that have their state)."""

Assignor = Callable[[Iterable[Member], Topics], dict[str, Assignment]]
"""(members with their current assignment, topics) → member id → assignment."""


def simple_assignment(members: Iterable[Member], topics: Topics) -> dict[str, Assignment]:
    """Assign as Kafka's simple assignor: no member and no partition is left out, and loads differ by little.

    Each partition goes to ceil(subscribers / partitions) members. A member keeps its partitions as far as the balance
    allows: a partition moves only from a member that has at least two more than the one that gets it.
    """
    balance = _Balance(sorted(members, key=lambda member: member.member_id), topics)
    balance.keep()
    balance.fill()
    balance.level()
    balance.give_everyone_one()
    return balance.assignments()


def all_assignment(members: Iterable[Member], topics: Topics) -> dict[str, Assignment]:
    """Assign all partitions of its topics to every member: for few partitions, or partitions of unequal size."""
    return {
        member.member_id: _grouped(
            (topics[topic][0], partition)
            for topic in member.subscribed_topic_names
            if topic in topics
            for partition in topics[topic][1]
        )
        for member in members
    }


ASSIGNORS: dict[str, Assignor] = {"simple": simple_assignment, "all": all_assignment}
"""Values of `group.share.assignors`."""


class _Balance:
    """An assignment in progress; the members that subscribe to a topic are kept in the order of their load."""

    def __init__(self, members: Iterable[Member], topics: Topics) -> None:
        self._members = {member.member_id: member for member in members}
        self._assigned: dict[str, set[PartitionKey]] = {member_id: set() for member_id in self._members}
        self._queues: dict[tuple[str, ...], SortedSet[tuple[int, str]]] = {}
        self._queues_of: dict[str, list[SortedSet[tuple[int, str]]]] = {member_id: [] for member_id in self._members}
        self._queue: dict[PartitionKey, SortedSet[tuple[int, str]]] = {}
        self._holders: dict[PartitionKey, dict[str, None]] = {}
        subscribers: dict[str, list[str]] = {topic: [] for topic in topics}
        for member in self._members.values():
            for topic in subscribers.keys() & member.subscribed_topic_names:
                subscribers[topic].append(member.member_id)
        for topic, (topic_id, partitions) in sorted(topics.items()):
            if not subscribers[topic]:
                continue
            queue = self._queue_of(tuple(subscribers[topic]))
            for partition in sorted(partitions):
                self._queue[topic_id, partition] = queue
                self._holders[topic_id, partition] = {}

    def keep(self) -> None:
        """Keep the current partitions of members that are still allowed."""
        for member in self._members.values():
            for topic_id, partitions in member.assignment.items():
                for partition in partitions:
                    target = (topic_id, partition)
                    queue = self._queue.get(target)
                    may_have = queue is not None and (len(self._assigned[member.member_id]), member.member_id) in queue
                    if may_have and len(self._holders[target]) < self._sharing(target):
                        self._give(target, member.member_id)

    def fill(self) -> None:
        """Assign each partition to as many members as it needs, those with the lowest load first."""
        for target, holders in self._holders.items():
            while len(holders) < self._sharing(target):
                _, member_id = self._least_loaded(target)
                self._give(target, member_id)

    def level(self) -> None:
        """Move partitions to members that have at least two fewer, until there is no such move."""
        has_moved = True
        while has_moved:
            has_moved = False
            for target, holders in self._holders.items():
                queue = self._queue[target]
                for holder in list(holders):
                    highest_load = len(self._assigned[holder]) - 2
                    if queue[0][0] > highest_load or len(holders) == len(queue):
                        continue
                    load, member_id = self._least_loaded(target)
                    if load <= highest_load:
                        self._take(target, holder)
                        self._give(target, member_id)
                        has_moved = True

    def give_everyone_one(self) -> None:
        """Share partitions more widely where subscriptions differ so much that a member would have none."""
        for member_id, targets in self._assigned.items():
            if targets:
                continue
            allowed = [target for target, queue in self._queue.items() if (0, member_id) in queue]
            if allowed:
                self._give(min(allowed, key=lambda target: (len(self._holders[target]), target)), member_id)

    def assignments(self) -> dict[str, Assignment]:
        """Return member id → assignment."""
        return {member_id: _grouped(targets) for member_id, targets in self._assigned.items()}

    def _queue_of(self, subscribers: tuple[str, ...]) -> SortedSet[tuple[int, str]]:
        queue = self._queues.get(subscribers)
        if queue is None:
            queue = self._queues[subscribers] = SortedSet((0, member_id) for member_id in subscribers)
            for member_id in subscribers:
                self._queues_of[member_id].append(queue)
        return queue

    def _sharing(self, target: PartitionKey) -> int:
        return -(-len(self._queue[target]) // len(self._queue))

    def _least_loaded(self, target: PartitionKey) -> tuple[int, str]:
        holders = self._holders[target]
        return next(entry for entry in self._queue[target] if entry[1] not in holders)

    def _give(self, target: PartitionKey, member_id: str) -> None:
        self._holders[target][member_id] = None
        self._assigned[member_id].add(target)
        self._requeue(member_id, len(self._assigned[member_id]) - 1)

    def _take(self, target: PartitionKey, member_id: str) -> None:
        del self._holders[target][member_id]
        self._assigned[member_id].remove(target)
        self._requeue(member_id, len(self._assigned[member_id]) + 1)

    def _requeue(self, member_id: str, load_before: int) -> None:
        for queue in self._queues_of[member_id]:
            queue.remove((load_before, member_id))
            queue.add((len(self._assigned[member_id]), member_id))


def _grouped(targets: Iterable[PartitionKey]) -> Assignment:
    grouped: dict[str, list[int]] = {}
    for topic_id, partition in sorted(targets):
        grouped.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in grouped.items()}
