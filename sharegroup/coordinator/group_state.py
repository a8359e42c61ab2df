"""The durable metadata of a share group; it changes only by applying records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sharegroup.protocol.internal_messages import UNINITIALIZED_OFFSET
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupConfig,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignment,
    ShareGroupTopicRemoved,
    group_record,
)

Assignment = Mapping[str, tuple[int, ...]]
"""Topic id → partitions, ascending."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the group.

    Attributes:
        member_id: chosen by the client.
        client_id: free name of the client.
        rack_id: rack, "" when unknown.
        subscribed_topic_names: topics, sorted.
        member_epoch: epoch of its assignment; 0 until it has one.
        previous_member_epoch: the epoch before, still accepted in heartbeats.
        assignment: what it may fetch.
    """

    member_id: str
    client_id: str
    rack_id: str
    subscribed_topic_names: tuple[str, ...]
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assignment: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class Initialization:
    """The state that a share-partition is getting.

    Attributes:
        state_epoch: group epoch at which it was decided: the epoch of the new state.
        start_offset: the SPSO; UNINITIALIZED_OFFSET leaves it to `share.auto.offset.reset`.
    """

    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class StateTopic:
    """The share-partitions of one topic.

    Attributes:
        topic: topic name.
        topic_id: topic id.
        partition_count: partitions that the topic had when it was last looked at; later ones start at offset 0.
        initializing: those that are getting a state, be it their first.
        initialized: those that have their state.
        deleting: those that are losing it: all of the topic's, or none.
    """

    topic: str
    topic_id: str
    partition_count: int = 0
    initializing: Mapping[int, Initialization] = field(default_factory=dict)
    initialized: frozenset[int] = frozenset()
    deleting: frozenset[int] = frozenset()

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions that have, get or lose a state."""
        return self.initialized | self.initializing.keys() | self.deleting


class GroupState:
    """Members, epochs, share-partitions and configuration of one group (KIP-932 record types 10 to 15).

    A group is dead before its first record and once it was removed.
    """

    def __init__(self) -> None:
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, Member] = {}
        self.topics: dict[str, StateTopic] = {}
        self.config_overrides: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Kafka's name of the group's state: Dead, Empty or Stable."""
        if self.is_dead:
            return "Dead"
        return "Stable" if self.members else "Empty"

    @property
    def is_dead(self) -> bool:
        """Whether there is no such group."""
        return not (self.group_epoch or self.members or self.config_overrides)

    def topic_named(self, topic: str) -> StateTopic | None:
        """The topic of that name that is in use, None when there is none."""
        return next((known for known in self.topics.values() if known.topic == topic and not known.deleting), None)

    def apply_json(self, fields: dict[str, Any]) -> None:
        """Apply a record as a row's payload holds it."""
        self.apply(group_record(fields))

    def apply(self, record: GroupRecord) -> None:
        """Change the state by one record. There is no other way to change it."""
        match record:
            case ShareGroupMetadata():
                self.group_epoch = record.epoch
            case ShareGroupTargetAssignment():
                self.assignment_epoch = record.assignment_epoch
            case ShareGroupMemberMetadata():
                self._apply_member(record)
            case ShareGroupMemberRemoved():
                self.members.pop(record.member_id, None)
            case ShareGroupCurrentMemberAssignment():
                self._apply_assignment(record)
            case ShareGroupStatePartitionMetadata():
                self.topics[record.topic_id] = _state_topic(record)
            case ShareGroupTopicRemoved():
                self.topics.pop(record.topic_id, None)
            case ShareGroupRemoved():
                self.group_epoch = self.assignment_epoch = 0
                self.members, self.topics, self.config_overrides = {}, {}, {}
            case ShareGroupConfig():
                self.config_overrides = dict(record.overrides)

    def records(self) -> list[GroupRecord]:
        """Records that make this state from nothing."""
        if self.is_dead:
            return []
        records: list[GroupRecord] = [ShareGroupMetadata(epoch=self.group_epoch)]
        if self.config_overrides:
            records.append(ShareGroupConfig(overrides=self.config_overrides))
        records += [state_partition_record(topic) for topic in self.topics.values()]
        for member in self.members.values():
            records.append(member_record(member))
            if member.member_epoch:
                records.append(
                    assignment_record(
                        member.member_id, member.member_epoch, member.previous_member_epoch, member.assignment
                    )
                )
        records.append(ShareGroupTargetAssignment(assignment_epoch=self.assignment_epoch))
        return records

    def _apply_member(self, record: ShareGroupMemberMetadata) -> None:
        known = self.members.get(record.member_id)
        self.members[record.member_id] = Member(
            record.member_id,
            record.client_id,
            record.rack_id,
            tuple(record.subscribed_topic_names),
            known.member_epoch if known else 0,
            known.previous_member_epoch if known else 0,
            known.assignment if known else {},
        )

    def _apply_assignment(self, record: ShareGroupCurrentMemberAssignment) -> None:
        member = self.members[record.member_id]
        self.members[record.member_id] = Member(
            member.member_id,
            member.client_id,
            member.rack_id,
            member.subscribed_topic_names,
            record.member_epoch,
            record.previous_member_epoch,
            {topic_id: tuple(partitions) for topic_id, partitions in record.partitions.items()},
        )


def member_record(member: Member) -> ShareGroupMemberMetadata:
    """The record of a member's subscription."""
    return ShareGroupMemberMetadata(
        member_id=member.member_id,
        client_id=member.client_id,
        rack_id=member.rack_id,
        subscribed_topic_names=list(member.subscribed_topic_names),
    )


def assignment_record(
    member_id: str, member_epoch: int, previous_member_epoch: int, assignment: Assignment
) -> ShareGroupCurrentMemberAssignment:
    """The record of a member's assignment."""
    return ShareGroupCurrentMemberAssignment(
        member_id=member_id,
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        partitions={topic_id: list(partitions) for topic_id, partitions in sorted(assignment.items())},
    )


def state_partition_record(topic: StateTopic) -> ShareGroupStatePartitionMetadata:
    """The record of a topic's share-partitions."""
    waiting = sorted(topic.initializing.items())
    return ShareGroupStatePartitionMetadata(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partition_count=topic.partition_count,
        initializing=[partition for partition, _ in waiting],
        initialized=sorted(topic.initialized),
        deleting=sorted(topic.deleting),
        state_epochs={partition: found.state_epoch for partition, found in waiting},
        start_offsets={
            partition: found.start_offset for partition, found in waiting if found.start_offset != UNINITIALIZED_OFFSET
        },
    )


def _state_topic(record: ShareGroupStatePartitionMetadata) -> StateTopic:
    # Records of the first releases tell neither the epochs nor the partition count.
    listed = [*record.initializing, *record.initialized, *record.deleting]
    return StateTopic(
        record.topic,
        record.topic_id,
        max([record.partition_count, *(partition + 1 for partition in listed)]),
        {
            partition: Initialization(
                record.state_epochs.get(partition, 0), record.start_offsets.get(partition, UNINITIALIZED_OFFSET)
            )
            for partition in record.initializing
        },
        frozenset(record.initialized),
        frozenset(record.deleting),
    )
