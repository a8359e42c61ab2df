"""What a group looks like from outside: its durable state and the ends of its logs, as one description.

Pure: rows were folded and offsets were read before; the time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import GroupConfig, effective_group_config
from sharegroup.coordinator.group_state import GroupState, Member
from sharegroup.core.record_state import RecordState
from sharegroup.core.share_partition import SharePartition
from sharegroup.logs.end_offsets import EndOffsets
from sharegroup.state.fold import FoldedGroup


class GroupStateName(StrEnum):
    """State of a group; `Quarantined` is ours, the others are Kafka's."""

    DEAD = "Dead"
    EMPTY = "Empty"
    STABLE = "Stable"
    QUARANTINED = "Quarantined"


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Partitions of one topic that a member may fetch."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of the group.

    Attributes:
        member_id: chosen by the client.
        client_id: free name of the client.
        rack_id: rack, "" when unknown.
        member_epoch: epoch of its assignment.
        subscribed_topic_names: topics, sorted.
        assignment: what it may fetch, by topic.
        locked_count: records that it holds.
    """

    member_id: str
    client_id: str
    rack_id: str
    member_epoch: int
    subscribed_topic_names: tuple[str, ...]
    assignment: tuple[TopicAssignment, ...]
    locked_count: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A share-partition; the offsets are None until it is initialised.

    Attributes:
        topic: topic name.
        topic_id: topic id.
        partition: partition.
        start_offset: the share-partition start offset (SPSO).
        end_offset: end of the log; None also when the topic is gone.
        lag: records that are not finished: end offset - start offset - delivery complete count (KIP-1226).
        in_flight_count: offsets from the SPSO to the last one that was ever acquired.
        locked_count: records that members hold.
        delivery_complete_count: finished records at or above the SPSO.
        state_epoch: fencing epoch of the durable state.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    in_flight_count: int | None
    locked_count: int
    delivery_complete_count: int | None
    state_epoch: int | None


@dataclass(frozen=True, slots=True)
class LockDescription:
    """Records that a member holds until a time.

    Attributes:
        topic: topic name.
        partition: partition.
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        member_id: the holder.
        client_id: its free name; "" when it is no member any more.
        delivery_count: deliveries of each record, this one included.
        deadline_ms: when the lock ends; epoch ms.
        remaining_ms: time until then; negative when it is over and no processor has ended it yet.
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
    """An actor of the group that failed, and why."""

    role: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """A key of the group's configuration.

    Attributes:
        key: the dotted key.
        value: what is in force.
        own_value: what the group has set; None when it follows the default.
    """

    key: str
    value: str
    own_value: str | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A share group.

    Attributes:
        group_id: the share group.
        state: its state.
        group_epoch: rises with members, subscriptions and topics.
        assignment_epoch: the group epoch that the assignment was made for.
        members: by client id and member id.
        partitions: by topic and partition.
        locks: the one that ends first comes first.
        quarantine: what failed; empty when the group works.
        dead_letter_failure: why records stay ARCHIVING: their dead letters cannot be written; empty when they can.
        config: all keys.
    """

    group_id: str
    state: GroupStateName
    group_epoch: int
    assignment_epoch: int
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionDescription, ...]
    locks: tuple[LockDescription, ...]
    quarantine: tuple[QuarantineDescription, ...]
    dead_letter_failure: str
    config: tuple[ConfigDescription, ...]

    @property
    def lag(self) -> int | None:
        """Records of all share-partitions that are not finished; None when no lag is known."""
        return _total(partition.lag for partition in self.partitions)

    @property
    def in_flight_count(self) -> int | None:
        """Records in flight of all share-partitions; None when none is initialised."""
        return _total(partition.in_flight_count for partition in self.partitions)

    @property
    def locked_count(self) -> int:
        """Records that members hold."""
        return sum(partition.locked_count for partition in self.partitions)


def described(group: FoldedGroup, end_offsets: EndOffsets, broker: BrokerConfig, now_ms: int) -> GroupDescription:
    """The description of a group.

    Args:
        group: its durable state.
        end_offsets: ends of the logs; what is missing is unknown.
        broker: defaults and limits of all groups.
        now_ms: the present time; epoch ms.

    Raises:
        InvalidConfigError: the group's stored configuration has a key or value that this release does not know.
    """
    metadata = group.metadata
    is_failed = bool(group.failures)
    return GroupDescription(
        group_id=group.group_id,
        state=GroupStateName.QUARANTINED if is_failed else GroupStateName(metadata.name),
        group_epoch=metadata.group_epoch,
        assignment_epoch=metadata.assignment_epoch,
        members=tuple(sorted(_members(group), key=lambda member: (member.client_id, member.member_id))),
        partitions=tuple(sorted(_partitions(group, end_offsets), key=lambda found: (found.topic, found.partition))),
        locks=tuple(sorted(_locks(group, now_ms), key=lambda lock: (lock.deadline_ms, lock.topic, lock.partition))),
        quarantine=tuple(QuarantineDescription(role.value, why) for role, why in sorted(group.failures.items())),
        dead_letter_failure=group.dead_letter_failure,
        config=tuple(described_config(metadata.config_overrides, broker)),
    )


def described_config(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigDescription]:
    """All keys of a group that has set these ones; Raises `InvalidConfigError` as `effective_group_config`."""
    effective = effective_group_config(broker, overrides)
    for key in GroupConfig.key_names():
        value = effective.value(key)
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        yield ConfigDescription(key, spelled, overrides.get(key))


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


def _partitions(group: FoldedGroup, end_offsets: EndOffsets) -> Iterator[PartitionDescription]:
    for topic_id, topic in group.metadata.topics.items():
        for partition in topic.partitions:
            end_offset = end_offsets.get((topic_id, partition))
            found = group.partitions.get((topic_id, partition))
            if found is None:
                yield PartitionDescription(
                    topic.topic, topic_id, partition, None, end_offset, None, None, 0, None, None
                )
            else:
                yield _initialized(topic.topic, topic_id, partition, end_offset, found.share_partition)


def _initialized(
    topic: str, topic_id: str, partition: int, end_offset: int | None, engine: SharePartition
) -> PartitionDescription:
    return PartitionDescription(
        topic,
        topic_id,
        partition,
        engine.start_offset,
        end_offset,
        None if end_offset is None else engine.lag(end_offset),
        engine.next_offset - engine.start_offset,
        sum(run.size for run in engine.runs if run.state is RecordState.ACQUIRED),
        engine.delivery_complete_count,
        engine.state_epoch,
    )


def _locks(group: FoldedGroup, now_ms: int) -> Iterator[LockDescription]:
    for (topic_id, _), found in group.partitions.items():
        if topic_id not in group.metadata.topics:
            continue
        for run in found.share_partition.runs:
            if run.state is RecordState.ACQUIRED:
                holder = group.metadata.members.get(run.member_id)
                yield LockDescription(
                    found.topic,
                    found.partition,
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
