"""The description of a group: its durable state and the end offsets of its topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import GroupConfig, effective_group_config
from sharegroup.coordinator.group_state import GroupState, Member
from sharegroup.core.record_state import RecordState
from sharegroup.logs.log_clock import wall_ms
from sharegroup.logs.port import Log, PartitionOffsets
from sharegroup.logs.topic_offsets import TopicOffsets, topic_offsets
from sharegroup.protocol.group_description import GroupStateName
from sharegroup.state.described_writes import (
    OpenWriteDescription,
    SinkDescription,
    described_sinks,
    described_writes,
    late_sinks,
)
from sharegroup.state.fold import FoldedGroup, FoldedPartition


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Partitions of one topic that a member may fetch."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of the group.

    Attributes:
        member_id: id chosen by the client.
        client_id: free name of the client.
        client_host: host that the client runs on, "" when unknown.
        member_epoch: epoch of its assignment.
        subscribed_topic_names: topics, sorted.
        assignment: partitions that it may fetch, by topic.
    """

    member_id: str
    client_id: str
    client_host: str
    rack_id: str
    member_epoch: int
    subscribed_topic_names: tuple[str, ...]
    assignment: tuple[TopicAssignment, ...]
    locked_count: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A share-partition; the offsets are None until it is initialised.

    Attributes:
        start_offset: the share-partition start offset (SPSO).
        end_offset: end of the log; None also when the topic is gone.
        lag: number of unfinished records in the log: end offset - start offset - delivery complete count (KIP-1226),
            without those that were deleted.
        in_flight_count: number of offsets from the SPSO to the last one that was ever acquired.
        delayed_count: number of available records that no member receives yet: they were returned with a delay.
        resolving_count: number of records whose results may be in a sink: their write is in doubt.
        delivery_complete_count: number of finished records at or above the SPSO.
        state_epoch: fencing epoch of the durable state.
        leader_epoch: leader epoch of the processor that last wrote the group.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    in_flight_count: int | None
    locked_count: int
    delayed_count: int
    resolving_count: int
    delivery_complete_count: int | None
    state_epoch: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class LockDescription:
    """Records that a member holds until a deadline.

    Attributes:
        client_id: free name of the holder; "" when it is no longer a member.
        delivery_count: deliveries of each record, this one included.
        deadline_ms: end of the lock; epoch ms.
        remaining_ms: time until then; negative when it has passed and no processor has ended the lock yet.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    member_id: str
    client_id: str
    delivery_count: int
    deadline_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class QuarantineDescription:
    """A failed actor of the group, and the reason of its failure."""

    role: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """A key of the group's configuration.

    Attributes:
        value: value in force.
        own_value: value that the group has set; None when it uses the default.
    """

    key: str
    value: str
    own_value: str | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A share group.

    Attributes:
        group_epoch: rises with changes of members, subscriptions and topics.
        assignment_epoch: group epoch of the assignment.
        members: members, by client id and member id.
        partitions: share-partitions, by topic and partition.
        locks: locks, ordered by deadline.
        open_writes: writes into sinks that are not closed, the oldest first.
        sinks: sinks of these, by address.
        late_sinks: sinks that nobody has asked for long about a write in doubt.
        quarantine: failed actors; empty when the group works.
        dead_letter_failure: reason why dead-letter records cannot be written; empty when they can.
    """

    group_id: str
    state: GroupStateName
    group_epoch: int
    assignment_epoch: int
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionDescription, ...]
    locks: tuple[LockDescription, ...]
    open_writes: tuple[OpenWriteDescription, ...]
    sinks: tuple[SinkDescription, ...]
    late_sinks: tuple[SinkDescription, ...]
    quarantine: tuple[QuarantineDescription, ...]
    is_paused: bool
    pause_reason: str
    dead_letter_failure: str
    config: tuple[ConfigDescription, ...]

    @property
    def lag(self) -> int | None:
        """Number of unfinished records of all share-partitions; None when no lag is known."""
        return _total(partition.lag for partition in self.partitions)

    @property
    def in_flight_count(self) -> int | None:
        """Number of records in flight of all share-partitions; None when none is initialised."""
        return _total(partition.in_flight_count for partition in self.partitions)

    @property
    def locked_count(self) -> int:
        """Number of records that members hold."""
        return sum(partition.locked_count for partition in self.partitions)

    @property
    def delayed_count(self) -> int:
        """Number of available records that no member receives yet."""
        return sum(partition.delayed_count for partition in self.partitions)

    @property
    def resolving_count(self) -> int:
        """Number of records whose results may be in a sink."""
        return sum(partition.resolving_count for partition in self.partitions)


def described_groups(log: Log, groups: Sequence[FoldedGroup], broker: BrokerConfig) -> list[GroupDescription]:
    """Return the descriptions of groups, with the present offsets of the log."""
    topics = {topic.topic for group in groups for topic in group.metadata.topics.values()}
    offsets = topic_offsets(log, topics)
    now_ms = wall_ms()
    return [described(group, offsets, broker, now_ms) for group in groups]


def described(group: FoldedGroup, offsets: TopicOffsets, broker: BrokerConfig, now_ms: int) -> GroupDescription:
    """Return the description of a group. Pure.

    Args:
        offsets: those of the log; missing ones are unknown.

    Raises:
        InvalidConfigError: the group's stored configuration has a key or value that this release does not know.
    """
    metadata = group.metadata
    config = tuple(described_config(metadata.config_overrides, broker))
    writes = described_writes(group, now_ms)
    sinks = described_sinks(writes)
    return GroupDescription(
        group_id=group.group_id,
        state=_state_name(group),
        group_epoch=metadata.group_epoch,
        assignment_epoch=metadata.assignment_epoch,
        members=tuple(sorted(_members(group), key=lambda member: (member.client_id, member.member_id))),
        partitions=tuple(
            sorted(_partitions(group, offsets, now_ms), key=lambda folded: (folded.topic, folded.partition))
        ),
        locks=tuple(sorted(_locks(group, now_ms), key=lambda lock: (lock.deadline_ms, lock.topic, lock.partition))),
        open_writes=writes,
        sinks=sinks,
        late_sinks=tuple(late_sinks(sinks, {each.key: each.value for each in config})),
        quarantine=tuple(QuarantineDescription(role.value, why) for role, why in sorted(group.failures.items())),
        is_paused=metadata.pause is not None,
        pause_reason="" if metadata.pause is None else metadata.pause.reason,
        dead_letter_failure=group.dead_letter_failure,
        config=config,
    )


def _state_name(group: FoldedGroup) -> GroupStateName:
    if group.failures:
        return GroupStateName.QUARANTINED
    return GroupStateName.PAUSED if group.metadata.pause is not None else GroupStateName(group.metadata.name)


def described_config(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigDescription]:
    """Yield all configuration keys of a group with these overrides.

    Raises:
        InvalidConfigError: as `effective_group_config`.
    """

    effective = effective_group_config(broker, overrides)
    for key in GroupConfig.key_names():
        yield ConfigDescription(key, effective.spelled_value(key), overrides.get(key))


def _members(group: FoldedGroup) -> Iterator[MemberDescription]:
    for member in group.metadata.members.values():
        locked = sum(
            run.size
            for partition in group.partitions.values()
            for run in partition.share_partition.runs.held_by(member.member_id)
        )
        yield MemberDescription(
            member.member_id,
            member.client_id,
            member.client_host,
            member.rack_id,
            member.member_epoch,
            member.subscribed_topic_names,
            _assignment(group.metadata, member),
            locked,
        )


def _assignment(metadata: GroupState, member: Member) -> tuple[TopicAssignment, ...]:
    assigned = (
        TopicAssignment(metadata.topics[topic_id].topic if topic_id in metadata.topics else topic_id, partitions)
        for topic_id, partitions in member.assignment.items()
        if partitions
    )
    return tuple(sorted(assigned, key=lambda topic: topic.topic))


def _partitions(group: FoldedGroup, offsets: TopicOffsets, now_ms: int) -> Iterator[PartitionDescription]:
    for topic_id, topic in group.metadata.topics.items():
        for partition in topic.partitions:
            in_log = offsets.get((topic_id, partition))
            folded = group.partitions.get((topic_id, partition))
            if folded is None:
                yield PartitionDescription(
                    topic.topic,
                    topic_id,
                    partition,
                    None,
                    in_log.end_offset if in_log is not None else None,
                    None,
                    None,
                    0,
                    0,
                    0,
                    None,
                    None,
                    None,
                )
            else:
                yield _initialized(topic.topic, topic_id, in_log, folded, group.leader_epoch, now_ms)


def _initialized(
    topic: str,
    topic_id: str,
    in_log: PartitionOffsets | None,
    folded: FoldedPartition,
    leader_epoch: int,
    now_ms: int,
) -> PartitionDescription:
    engine = folded.share_partition
    return PartitionDescription(
        topic,
        topic_id,
        folded.partition,
        engine.start_offset,
        None if in_log is None else in_log.end_offset,
        None if in_log is None else engine.lag(in_log.end_offset, in_log.start_offset),
        engine.next_offset - engine.start_offset,
        sum(run.size for run in engine.runs if run.state is RecordState.ACQUIRED),
        sum(run.size for run in engine.runs if run.state is RecordState.AVAILABLE and run.deadline_ms > now_ms),
        sum(run.size for run in engine.runs if run.state is RecordState.RESOLVING),
        engine.delivery_complete_count,
        engine.state_epoch,
        leader_epoch,
    )


def _locks(group: FoldedGroup, now_ms: int) -> Iterator[LockDescription]:
    for (topic_id, _), folded in group.partitions.items():
        if topic_id not in group.metadata.topics:
            continue
        for run in folded.share_partition.runs:
            if run.state is RecordState.ACQUIRED:
                holder = group.metadata.members.get(run.member_id)
                yield LockDescription(
                    folded.topic,
                    folded.partition,
                    run.first_offset,
                    run.last_offset,
                    run.member_id,
                    holder.client_id if holder else "",
                    run.delivery_count,
                    run.deadline_ms,
                    run.deadline_ms - now_ms,
                )


def _total(values: Iterator[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
