"""The durable metadata of a share group; it changes only by applying records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from sharegroup.protocol.group_description import GroupStateName
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupConfig,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupPaused,
    ShareGroupRemoved,
    ShareGroupRequestCompleted,
    ShareGroupRequestWaiting,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignment,
    ShareGroupTopicRemoved,
    group_record,
)
from sharegroup.protocol.imported_batches import ImportedBatch
from sharegroup.protocol.internal_messages import UNINITIALIZED_OFFSET

Assignment = Mapping[str, tuple[int, ...]]
"""Topic id → partitions, ascending."""
RequestKey = tuple[str, int]
"""Member id and correlation id of an administrator's request."""


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
        client_host: host that the client runs on, "" when unknown.
        client_process: host and process id of the client, "" when unknown.
    """

    member_id: str
    client_id: str
    rack_id: str
    subscribed_topic_names: tuple[str, ...]
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assignment: Assignment = field(default_factory=dict)
    client_host: str = ""
    client_process: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Initialization:
    """A pending initialisation of a share-partition.

    Attributes:
        state_epoch: group epoch at which it was decided: the epoch of the new state.
        start_offset: the SPSO; UNINITIALIZED_OFFSET leaves it to `share.auto.offset.reset`.
        state_batches: records above it that another system has delivered.
    """

    state_epoch: int
    start_offset: int
    state_batches: tuple[ImportedBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class StateTopic:
    """The share-partitions of one topic.

    Attributes:
        partition_count: partitions of the topic in its last observation; later ones start at offset 0.
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

    A group is dead before its first record and after its removal. Values derived from the records, such as the number
    of subscribers of a topic, are updated with each record, so that no scan of all members or topics is needed.

    Attributes:
        group_epoch: rises by one with each change; 0 while the group has none.
        assignment_epoch: group epoch of the assignment in force.
        members: member id → member.
        topics: topic id → its share-partitions.
        config_overrides: dynamic configuration, key → value.
        pause: the record of an administrator who has paused the group; None while it acquires.
        waiting_requests: administrators' requests without a response yet, in order; they outlive the group.
        subscriber_counts: topic name → number of members that subscribe to it; without topics that have none.
        changing_topic_ids: topics with share-partitions that are getting or losing a state.
    """

    def __init__(self) -> None:
        self.waiting_requests: dict[RequestKey, ShareGroupRequestWaiting] = {}
        self._clear()

    def _clear(self) -> None:
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, Member] = {}
        self.topics: dict[str, StateTopic] = {}
        self.config_overrides: dict[str, str] = {}
        self.pause: ShareGroupPaused | None = None
        self.subscriber_counts: Counter[str] = Counter()
        self.changing_topic_ids: set[str] = set()
        self._topic_ids_in_use: dict[str, str] = {}

    @property
    def name(self) -> GroupStateName:
        """Kafka's name of the group's state: Dead, Empty or Stable."""
        if self.is_dead:
            return GroupStateName.DEAD
        return GroupStateName.STABLE if self.members else GroupStateName.EMPTY

    @property
    def is_dead(self) -> bool:
        """True if there is no such group: it has neither an epoch nor a configuration."""
        return not (self.group_epoch or self.members or self.config_overrides)

    @property
    def is_gone(self) -> bool:
        """True if no state has to be kept: the group is dead, and no administrator waits for a response."""
        return self.is_dead and not self.waiting_requests

    @property
    def topic_names_in_use(self) -> AbstractSet[str]:
        """Names of the topics that have or get a state."""
        return self._topic_ids_in_use.keys()

    def topic_named(self, topic: str) -> StateTopic | None:
        """Return the topic of that name that is in use, None when there is none."""
        topic_id = self._topic_ids_in_use.get(topic)
        return None if topic_id is None else self.topics[topic_id]

    def apply_json(self, fields: dict[str, Any]) -> None:
        """Apply a record from a row's payload."""
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
                self._unsubscribe(self.members.pop(record.member_id, None))
            case ShareGroupCurrentMemberAssignment():
                self._apply_assignment(record)
            case ShareGroupStatePartitionMetadata():
                self._keep_topic(_state_topic(record))
            case ShareGroupTopicRemoved():
                self._forget_topic(record.topic_id)
            case ShareGroupRemoved():
                self._clear()
            case ShareGroupConfig():
                self.config_overrides = dict(record.overrides)
            case ShareGroupPaused():
                self.pause = record if record.is_paused else None
            case ShareGroupRequestWaiting():
                self.waiting_requests[record.member_id, record.correlation_id] = record
            case ShareGroupRequestCompleted():
                self.waiting_requests.pop((record.member_id, record.correlation_id), None)

    def records(self) -> list[GroupRecord]:
        """Return the records that make this state from nothing."""
        waiting = list(self.waiting_requests.values())
        if self.is_dead:
            return [*waiting]
        records: list[GroupRecord] = [ShareGroupMetadata(epoch=self.group_epoch)]
        if self.config_overrides:
            records.append(ShareGroupConfig(overrides=self.config_overrides))
        if self.pause is not None:
            records.append(self.pause)
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
        return [*records, *waiting]

    def _keep_topic(self, topic: StateTopic) -> None:
        self.topics[topic.topic_id] = topic
        if topic.initializing or topic.deleting:
            self.changing_topic_ids.add(topic.topic_id)
        else:
            self.changing_topic_ids.discard(topic.topic_id)
        if not topic.deleting:
            self._topic_ids_in_use[topic.topic] = topic.topic_id
        elif self._topic_ids_in_use.get(topic.topic) == topic.topic_id:
            del self._topic_ids_in_use[topic.topic]

    def _forget_topic(self, topic_id: str) -> None:
        topic = self.topics.pop(topic_id, None)
        self.changing_topic_ids.discard(topic_id)
        if topic is not None and self._topic_ids_in_use.get(topic.topic) == topic_id:
            del self._topic_ids_in_use[topic.topic]

    def _unsubscribe(self, member: Member | None) -> None:
        if member is not None:
            self.subscriber_counts.subtract(member.subscribed_topic_names)
            for topic in member.subscribed_topic_names:
                if not self.subscriber_counts[topic]:
                    del self.subscriber_counts[topic]

    def _apply_member(self, record: ShareGroupMemberMetadata) -> None:
        known = self.members.get(record.member_id)
        self._unsubscribe(known)
        self.subscriber_counts.update(record.subscribed_topic_names)
        self.members[record.member_id] = Member(
            record.member_id,
            record.client_id,
            record.rack_id,
            tuple(record.subscribed_topic_names),
            known.member_epoch if known else 0,
            known.previous_member_epoch if known else 0,
            known.assignment if known else {},
            record.client_host,
            record.client_process,
        )

    def _apply_assignment(self, record: ShareGroupCurrentMemberAssignment) -> None:
        member = self.members[record.member_id]
        self.members[record.member_id] = replace(
            member,
            member_epoch=record.member_epoch,
            previous_member_epoch=record.previous_member_epoch,
            assignment={topic_id: tuple(partitions) for topic_id, partitions in record.partitions.items()},
        )


def member_record(member: Member) -> ShareGroupMemberMetadata:
    """Return the record of a member's subscription."""
    return ShareGroupMemberMetadata(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        client_process=member.client_process,
        rack_id=member.rack_id,
        subscribed_topic_names=list(member.subscribed_topic_names),
    )


def assignment_record(
    member_id: str, member_epoch: int, previous_member_epoch: int, assignment: Assignment
) -> ShareGroupCurrentMemberAssignment:
    """Return the record of a member's assignment."""
    return ShareGroupCurrentMemberAssignment(
        member_id=member_id,
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        partitions={topic_id: list(partitions) for topic_id, partitions in sorted(assignment.items())},
    )


def state_partition_record(topic: StateTopic) -> ShareGroupStatePartitionMetadata:
    """Return the record of a topic's share-partitions."""
    waiting = sorted(topic.initializing.items())
    return ShareGroupStatePartitionMetadata(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partition_count=topic.partition_count,
        initializing=[partition for partition, _ in waiting],
        initialized=sorted(topic.initialized),
        deleting=sorted(topic.deleting),
        state_epochs={partition: initialization.state_epoch for partition, initialization in waiting},
        start_offsets={
            partition: initialization.start_offset
            for partition, initialization in waiting
            if initialization.start_offset != UNINITIALIZED_OFFSET
        },
        state_batches={
            partition: list(initialization.state_batches)
            for partition, initialization in waiting
            if initialization.state_batches
        },
    )


def _state_topic(record: ShareGroupStatePartitionMetadata) -> StateTopic:
    # Records of the first releases hold neither the epochs nor the partition count.
    listed = [*record.initializing, *record.initialized, *record.deleting]
    return StateTopic(
        record.topic,
        record.topic_id,
        max([record.partition_count, *(partition + 1 for partition in listed)]),
        {
            partition: Initialization(
                record.state_epochs.get(partition, 0),
                record.start_offsets.get(partition, UNINITIALIZED_OFFSET),
                tuple(record.state_batches.get(partition, ())),
            )
            for partition in record.initializing
        },
        frozenset(record.initialized),
        frozenset(record.deleting),
    )
