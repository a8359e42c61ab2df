"""The state table's group metadata as the records of share groups (types 10 to 15) in Kafka's `__consumer_offsets`.

Kafka has a target and a current assignment; here a member's assignment is both. Kafka's record of a group's
share-partitions holds all of its topics, so it is written again whenever one of them changes. Kafka has no counterpart
of a group's configuration in this topic, of a pause, and of administrators' requests that wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.coordinator.group_state import GroupState
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
    group_record,
)
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_group_records import (
    CurrentMemberAssignment,
    GroupKey,
    GroupRecordType,
    GroupRecordValue,
    MemberKey,
    MemberMetadata,
    Metadata,
    ShareGroupRecord,
    StatePartitionMetadata,
    TargetAssignmentMember,
    TargetAssignmentMetadata,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)


class GroupRecords:
    """Makes Kafka's records of the rows of all groups, which come in fold order."""

    def __init__(self) -> None:
        self._states: dict[str, GroupState] = {}

    def of(self, row: StateRow) -> Iterator[ShareGroupRecord]:
        """Yield Kafka's records of a row; none of a row without group metadata."""
        is_group_snapshot = row.record_type is RecordType.TABLE_SNAPSHOT and row.group_id and row.partition < 0
        if row.record_type is not RecordType.GROUP_METADATA and not is_group_snapshot:
            return
        if is_group_snapshot:
            # It makes the group from nothing.
            self._states[row.group_id] = GroupState()
        state = self._states.setdefault(row.group_id, GroupState())
        group = GroupKey(row.group_id)
        for fields in row.payload["records"]:
            record = group_record(fields)
            state.apply(record)
            yield from _records(group, state, record, row.time_ms)


def _records(group: GroupKey, state: GroupState, record: GroupRecord, time_ms: int) -> Iterator[ShareGroupRecord]:
    match record:
        case ShareGroupMetadata():
            yield _of_group(GroupRecordType.METADATA, group, Metadata(epoch=record.epoch))
        case ShareGroupTargetAssignment():
            value = TargetAssignmentMetadata(assignment_epoch=record.assignment_epoch, assignment_timestamp=time_ms)
            yield _of_group(GroupRecordType.TARGET_ASSIGNMENT_METADATA, group, value)
        case ShareGroupMemberMetadata():
            member = MemberMetadata(
                rack_id=record.rack_id or None,
                client_id=record.client_id,
                client_host=record.client_host,
                subscribed_topic_names=tuple(record.subscribed_topic_names),
            )
            yield ShareGroupRecord(GroupRecordType.MEMBER_METADATA, _member(group, record.member_id), member)
        case ShareGroupCurrentMemberAssignment():
            yield from _assignment(_member(group, record.member_id), record)
        case ShareGroupMemberRemoved():
            for record_type in (
                GroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
                GroupRecordType.TARGET_ASSIGNMENT_MEMBER,
                GroupRecordType.MEMBER_METADATA,
            ):
                yield ShareGroupRecord(record_type, _member(group, record.member_id), None)
        case ShareGroupStatePartitionMetadata() | ShareGroupTopicRemoved():
            yield _of_group(GroupRecordType.STATE_PARTITION_METADATA, group, _topics(state))
        case ShareGroupRemoved():
            for record_type in (
                GroupRecordType.TARGET_ASSIGNMENT_METADATA,
                GroupRecordType.STATE_PARTITION_METADATA,
                GroupRecordType.METADATA,
            ):
                yield _of_group(record_type, group, None)


def _of_group(record_type: GroupRecordType, group: GroupKey, value: GroupRecordValue | None) -> ShareGroupRecord:
    return ShareGroupRecord(record_type, group, value)


def _member(group: GroupKey, member_id: str) -> MemberKey:
    return MemberKey(group.group_id, member_id)


def _assignment(member: MemberKey, record: ShareGroupCurrentMemberAssignment) -> Iterator[ShareGroupRecord]:
    partitions = tuple(
        TopicPartitions(topic_id, tuple(indexes)) for topic_id, indexes in sorted(record.partitions.items())
    )
    yield ShareGroupRecord(GroupRecordType.TARGET_ASSIGNMENT_MEMBER, member, TargetAssignmentMember(partitions))
    current = CurrentMemberAssignment(
        member_epoch=record.member_epoch,
        previous_member_epoch=record.previous_member_epoch,
        assigned_partitions=partitions,
    )
    yield ShareGroupRecord(GroupRecordType.CURRENT_MEMBER_ASSIGNMENT, member, current)


def _topics(state: GroupState) -> StatePartitionMetadata:
    topics = [topic for _, topic in sorted(state.topics.items())]
    return StatePartitionMetadata(
        initializing_topics=tuple(
            TopicPartitionsInfo(topic.topic_id, topic.topic, tuple(sorted(topic.initializing)))
            for topic in topics
            if topic.initializing
        ),
        initialized_topics=tuple(
            TopicPartitionsInfo(topic.topic_id, topic.topic, tuple(sorted(topic.initialized)))
            for topic in topics
            if topic.initialized
        ),
        deleting_topics=tuple(TopicInfo(topic.topic_id, topic.topic) for topic in topics if topic.deleting),
    )
