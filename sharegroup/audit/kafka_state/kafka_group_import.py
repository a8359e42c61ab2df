"""Kafka's records of share groups (types 10 to 15) as payloads of GroupMetadata rows.

A group's target assignment (type 13) has no counterpart here: a member has what it was assigned. Kafka's topic of these
records is compacted, so a history may begin in the middle, and a record may come before the one that it rests on: it is
kept until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignment,
    ShareGroupTopicRemoved,
)
from sharegroup.protocol.row_payloads import GroupMetadataPayload, StateOrigin
from sharegroup.protocol.share_group_records import (
    CurrentMemberAssignment,
    GroupRecordType,
    MemberKey,
    MemberMetadata,
    Metadata,
    ShareGroupRecord,
    StatePartitionMetadata,
    TargetAssignmentMetadata,
    TopicPartitions,
)

_REMOVED = "removed in Kafka"


@dataclass(slots=True)
class _Group:
    """A group after the records so far.

    Attributes:
        epoch: its group epoch; 0 while no record of it is known.
        topics: topic id → the record of its share-partitions.
        assignments: assignments of members whose own record has not come yet.
        early: records that came before the group epoch.
    """

    epoch: int = 0
    members: set[str] = field(default_factory=set)
    topics: dict[str, ShareGroupStatePartitionMetadata] = field(default_factory=dict)
    assignments: dict[str, ShareGroupCurrentMemberAssignment] = field(default_factory=dict)
    early: list[GroupRecord] = field(default_factory=list)


class ImportedGroups:
    """The groups of a history."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._sources: dict[str, str] = {}

    def payload(self, record: ShareGroupRecord, source: str) -> dict[str, Any] | None:
        """Return the payload of a record's row; None when there is nothing to store, or not yet.

        Args:
            source: its topic, partition and offset.
        """
        group = self._groups.setdefault(record.key.group_id, _Group())
        self._sources[record.key.group_id] = source
        records = list(_records(group, record))
        if record.record_type is GroupRecordType.METADATA and records:
            records, group.early = [*records, *group.early], []
            if isinstance(records[0], ShareGroupRemoved):
                del self._groups[record.key.group_id]
        elif not group.epoch:
            group.early += records
            return None
        return _payload(records, source) if records else None

    def members(self, group_id: str) -> frozenset[str]:
        """Return the members of a group."""
        group = self._groups.get(group_id)
        return frozenset(group.members) if group is not None else frozenset()

    def waiting(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield group and payload of the records whose group epoch never came."""
        for group_id, group in self._groups.items():
            if group.early:
                yield group_id, _payload(group.early, self._sources[group_id])


def _payload(records: list[GroupRecord], source: str) -> dict[str, Any]:
    return GroupMetadataPayload(records=records, origin=StateOrigin(source=source)).model_dump(mode="json")


def _records(group: _Group, record: ShareGroupRecord) -> Iterator[GroupRecord]:
    match record.value:
        case None:
            yield from _deleted(group, record)
        case MemberMetadata() as member:
            yield from _member(group, _member_id(record), member)
        case Metadata():
            group.epoch = record.value.epoch
            yield ShareGroupMetadata(epoch=record.value.epoch)
        case TargetAssignmentMetadata():
            yield ShareGroupTargetAssignment(assignment_epoch=record.value.assignment_epoch)
        case CurrentMemberAssignment() as current:
            assignment = _assignment(_member_id(record), current)
            if assignment.member_id in group.members:
                yield assignment
            else:
                group.assignments[assignment.member_id] = assignment
        case StatePartitionMetadata() as topics:
            yield from _topics(group, topics)


def _deleted(group: _Group, record: ShareGroupRecord) -> Iterator[GroupRecord]:
    match record.record_type:
        case GroupRecordType.MEMBER_METADATA:
            member_id = _member_id(record)
            group.assignments.pop(member_id, None)
            if member_id in group.members:
                group.members.discard(member_id)
                yield ShareGroupMemberRemoved(member_id=member_id, reason=_REMOVED)
        case GroupRecordType.CURRENT_MEMBER_ASSIGNMENT:
            group.assignments.pop(_member_id(record), None)
        case GroupRecordType.METADATA if group.epoch:
            yield ShareGroupRemoved(reason=_REMOVED, epoch=group.epoch)
        case GroupRecordType.STATE_PARTITION_METADATA:
            yield from _topics(group, StatePartitionMetadata())


def _member_id(record: ShareGroupRecord) -> str:
    assert isinstance(record.key, MemberKey)
    return record.key.member_id


def _member(group: _Group, member_id: str, member: MemberMetadata) -> Iterator[GroupRecord]:
    group.members.add(member_id)
    yield ShareGroupMemberMetadata(
        member_id=member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rack_id=member.rack_id or "",
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )
    if member_id in group.assignments:
        yield group.assignments.pop(member_id)


def _assignment(member_id: str, current: CurrentMemberAssignment) -> ShareGroupCurrentMemberAssignment:
    return ShareGroupCurrentMemberAssignment(
        member_id=member_id,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        partitions=_by_topic(current.assigned_partitions),
    )


def _by_topic(topics: Iterable[TopicPartitions]) -> dict[str, list[int]]:
    return {topic.topic_id: sorted(topic.partitions) for topic in sorted(topics)}


def _topics(group: _Group, value: StatePartitionMetadata) -> Iterator[GroupRecord]:
    """Yield what changed of a group's topics: Kafka's record has all of them, a row's has one."""
    names = {topic.topic_id: topic.topic_name for topic in (*value.initializing_topics, *value.initialized_topics)}
    initializing = {topic.topic_id: sorted(topic.partitions) for topic in value.initializing_topics}
    initialized = {topic.topic_id: sorted(topic.partitions) for topic in value.initialized_topics}
    deleting = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}
    for topic_id, name in {**deleting, **names}.items():
        known = group.topics.get(topic_id)
        partitions = [*initializing.get(topic_id, ()), *initialized.get(topic_id, ())]
        count = max([known.partition_count if known else 0, *(partition + 1 for partition in partitions)])
        topic = ShareGroupStatePartitionMetadata(
            topic=name,
            topic_id=topic_id,
            partition_count=count,
            initializing=initializing.get(topic_id, []),
            initialized=initialized.get(topic_id, []),
            deleting=list(range(count)) if topic_id in deleting else [],
        )
        if topic != known:
            group.topics[topic_id] = topic
            yield topic
    for topic_id in group.topics.keys() - names.keys() - deleting.keys():
        del group.topics[topic_id]
        yield ShareGroupTopicRemoved(topic_id=topic_id)
