"""Reads groups for administrators from the processor, through the log only, without the state table."""

from __future__ import annotations

from sharegroup.client.admin_conversation import Administrator, DescribedPartitions, listed_groups, read_partitions
from sharegroup.client.described_groups import GroupDescription, described_groups
from sharegroup.client.settings import ChannelTopics
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.group_state import GroupState
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import GroupIdNotFoundError
from sharegroup.logs.port import Log
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_description import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupConfig,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupPaused,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignment,
)
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.row_payloads import GroupStatus, GroupStatusPayload
from sharegroup.state.fold import FoldedGroup, FoldedPartition


class ProcessorGroups:
    """Describes groups of a running processor.

    Args:
        broker: defaults and limits of all groups, as the processor has them.
    """

    def __init__(
        self, log: Log, broker: BrokerConfig, client_id: str, topics: ChannelTopics | None, timeout_s: float
    ) -> None:
        self._log = log
        self._broker = broker
        self._administrator = Administrator(log, client_id, topics)
        self._timeout_s = timeout_s

    def groups(self) -> list[GroupDescription]:
        """Return all groups, by id.

        Raises:
            RequestTimedOutError: a response did not come in time.
        """
        with self._administrator.conversation("", self._timeout_s) as conversation:
            group_ids = sorted(g.group_id for page in listed_groups(conversation, []) for g in page.groups)
        folded = []
        for group_id in group_ids:
            try:
                folded.append(self.folded(group_id))
            except GroupIdNotFoundError:
                # Deleted meanwhile, or dead, with a waiting request.
                continue
        return described_groups(self._log, folded, self._broker)

    def group(self, group_id: str) -> GroupDescription:
        """Return one group.

        Raises:
            GroupIdNotFoundError: the group does not exist.
            RequestTimedOutError: a response did not come in time.
        """
        return described_groups(self._log, [self.folded(group_id)], self._broker)[0]

    def folded(self, group_id: str) -> FoldedGroup:
        """Return the folded state of one group.

        Raises:
            GroupIdNotFoundError: the group does not exist.
            RequestTimedOutError: a response did not come in time.
        """
        with self._administrator.conversation(group_id, self._timeout_s) as conversation:
            group, config = conversation.ask(
                (ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest()),
                (ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest()),
            )
            partitions = read_partitions(conversation, None, include_runs=True)
        return _folded(
            group_id, parsed(ShareGroupDescribeResponse, group), parsed(DescribeConfigsResponse, config), partitions
        )


def _folded(
    group_id: str,
    group: ShareGroupDescribeResponse,
    config: DescribeConfigsResponse,
    share_partitions: DescribedPartitions,
) -> FoldedGroup:
    """Return the state to which the rows of the group would fold."""
    leader_epoch = max((described.leader_epoch for described in share_partitions.partitions.values()), default=-1)
    folded = FoldedGroup(group_id, leader_epoch=leader_epoch, metadata=_metadata(group, config, share_partitions))
    for (topic_id, partition), described in share_partitions.partitions.items():
        runs = [entry.run for entry in described.runs]
        open_writes = [entry.opened for entry in described.open_writes]
        engine = SharePartition(described.start_offset, runs, described.state_epoch, open_writes)
        folded.partitions[topic_id, partition] = FoldedPartition(
            topic_id, share_partitions.topics[topic_id], partition, engine, SnapshotEpochs(0), -1, 0
        )
    if share_partitions.dead_letter_failure:
        _add_status(folded, ActorRole.LEADER, GroupStatus.DEGRADED, share_partitions.dead_letter_failure)
    if group.quarantine_reason:
        _add_status(folded, ActorRole(group.quarantined_role), GroupStatus.FAILED, group.quarantine_reason)
    return folded


def _add_status(folded: FoldedGroup, role: ActorRole, status: GroupStatus, reason: str) -> None:
    folded.status[role] = GroupStatusPayload(role=role, status=status, reason=reason)


def _metadata(
    group: ShareGroupDescribeResponse, config: DescribeConfigsResponse, share_partitions: DescribedPartitions
) -> GroupState:
    records: list[GroupRecord] = [
        ShareGroupMetadata(epoch=group.group_epoch),
        ShareGroupConfig(overrides={c.name: c.own_value for c in config.configs if c.own_value is not None}),
        ShareGroupTargetAssignment(assignment_epoch=group.assignment_epoch),
    ]
    names = share_partitions.topics | {topic.topic_id: topic.topic for topic in group.initializing}
    initializing = {topic.topic_id: topic.partitions for topic in group.initializing}
    for topic_id, topic in names.items():
        records.append(
            ShareGroupStatePartitionMetadata(
                topic=topic,
                topic_id=topic_id,
                initializing=initializing.get(topic_id, []),
                initialized=[partition for key, partition in share_partitions.partitions if key == topic_id],
            )
        )
    if group.is_paused:
        records.append(ShareGroupPaused(is_paused=True, reason=group.pause_reason))
    for member in group.members:
        records += _member_records(member)
    state = GroupState()
    for record in records:
        state.apply(record)
    return state


def _member_records(member: DescribedMember) -> list[GroupRecord]:
    return [
        ShareGroupMemberMetadata(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rack_id=member.rack_id,
            subscribed_topic_names=member.subscribed_topic_names,
        ),
        ShareGroupCurrentMemberAssignment(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            previous_member_epoch=member.member_epoch,
            partitions={topic.topic_id: topic.partitions for topic in member.assignment},
        ),
    ]
