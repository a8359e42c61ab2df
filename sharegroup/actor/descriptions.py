"""Responses to requests that only read: a group with its members, its configuration, its share-partitions.

They are made from the state at the time when the request is applied, and do not change it: no session or lock begins
or ends. So a quarantined group also responds to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sharegroup.actor.context import ActorContext
from sharegroup.actor.earlier_states import awaited_states
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.config.group import GroupConfig
from sharegroup.coordinator.group_state import GroupState, Member
from sharegroup.protocol.group_description import (
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedMember,
    DescribedPartition,
    DescribedTopic,
    DescribeShareGroupOffsetsRequest,
    GroupStateName,
    OffsetsPosition,
    ShareGroupDescribeResponse,
)
from sharegroup.protocol.group_messages import TopicPartitions
from sharegroup.protocol.row_payloads import OpenWriteEntry
from sharegroup.protocol.rows import RunEntry

MAX_ENTRIES_PER_PAGE = 4_000
"""Share-partitions and runs of one response: about half a megabyte."""


def described_group(
    context: ActorContext, state: GroupState, config: GroupConfig, assignor_name: str
) -> ShareGroupDescribeResponse:
    """Return the group and its members."""
    return ShareGroupDescribeResponse(
        coordinator_id=context.leader_epoch,
        coordinator_host=context.host,
        group_state=GroupStateName.PAUSED if state.pause is not None else state.name,
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=assignor_name,
        members=[_described_member(state, member) for _, member in sorted(state.members.items())],
        initializing=[
            TopicPartitions(topic_id=topic_id, topic=topic.topic, partitions=sorted(topic.initializing))
            for topic_id in sorted(state.changing_topic_ids)
            if (topic := state.topics[topic_id]).initializing
        ],
        is_paused=state.pause is not None,
        pause_reason="" if state.pause is None else state.pause.reason,
        state_id=context.state_id,
        awaited_states=list(awaited_states(context, config)),
    )


def described_config(config: GroupConfig, state: GroupState) -> DescribeConfigsResponse:
    """Return all keys of the group's configuration."""
    return DescribeConfigsResponse(
        configs=[
            DescribedConfig(name=key, value=config.spelled_value(key), own_value=state.config_overrides.get(key))
            for key in config.key_names()
        ]
    )


def described_partitions(
    request: DescribeShareGroupOffsetsRequest, partitions: LedPartitions, leader_epoch: int
) -> tuple[list[DescribedTopic], OffsetsPosition | None]:
    """Return one page of share-partitions that have their state, and where the next page begins."""
    described: dict[str, DescribedTopic] = {}
    room = MAX_ENTRIES_PER_PAGE
    for led, offset in _from(request, partitions):
        if room <= 0:
            return list(described.values()), _position(led, offset)
        partition, end_offset = _described_partition(led, offset, room if request.include_runs else 0, leader_epoch)
        topic = described.setdefault(
            led.topic_id, DescribedTopic(topic_name=led.topic, topic_id=led.topic_id, partitions=[])
        )
        topic.partitions.append(partition)
        room -= 1 + len(partition.runs)
        if request.include_runs and end_offset is not None:
            return list(described.values()), _position(led, end_offset)
    return list(described.values()), None


def _described_member(state: GroupState, member: Member) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        assignment=assigned_topics(state, member),
    )


def assigned_topics(state: GroupState, member: Member) -> list[TopicPartitions]:
    """Return the partitions that a member may fetch from, by topic."""
    return [
        TopicPartitions(
            topic_id=topic_id,
            topic=state.topics[topic_id].topic if topic_id in state.topics else "",
            partitions=list(partitions),
        )
        for topic_id, partitions in member.assignment.items()
    ]


def _from(request: DescribeShareGroupOffsetsRequest, partitions: LedPartitions) -> Iterator[tuple[LedPartition, int]]:
    """Yield the share-partitions of a request from its beginning on, each with the offset that its runs begin at."""
    filters = None if request.topics is None else {topic.topic_name: topic.partitions for topic in request.topics}
    begin = request.begin or OffsetsPosition(topic_id="", partition_index=0)
    first_key = (begin.topic_id, begin.partition_index)
    for topic_id in partitions.topic_ids_from(begin.topic_id):
        for led in partitions.of_topic(topic_id):
            wanted: Sequence[int] | None = None if filters is None else filters.get(led.topic, ())
            if led.key >= first_key and (wanted is None or led.partition in wanted):
                yield led, begin.offset if led.key == first_key else 0


def _described_partition(
    led: LedPartition, offset: int, most_runs: int, leader_epoch: int
) -> tuple[DescribedPartition, int | None]:
    """Return a share-partition with at most `most_runs` runs, and the offset after them unless they are all."""
    engine = led.share_partition
    is_first_page = most_runs > 0 and not offset
    runs = engine.runs.first_from(offset, most_runs + 1) if most_runs else []
    end_offset = runs[most_runs].first_offset if len(runs) > most_runs else None
    described = DescribedPartition(
        partition_index=led.partition,
        start_offset=engine.start_offset,
        leader_epoch=leader_epoch,
        state_epoch=engine.state_epoch,
        next_offset=engine.next_offset,
        delivery_complete_count=engine.delivery_complete_count,
        locked_count=engine.runs.locked_count,
        runs=[RunEntry.of(run) for run in runs[:most_runs]],
        open_writes=[OpenWriteEntry.of(opened) for opened in engine.open_writes.values()] if is_first_page else [],
    )
    return described, end_offset


def _position(led: LedPartition, offset: int) -> OffsetsPosition:
    return OffsetsPosition(topic_id=led.topic_id, partition_index=led.partition, offset=offset)
