"""Two-phase metadata of a group's share-partitions: initializing → initialized → deleting (KIP-932, record type 15).

Each change is recorded before the request to the leader, and again after the leader's response. So after a failure
between the two, the records show the requests that are still open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sharegroup.coordinator.group_state import GroupState, Initialization, StateTopic, state_partition_record
from sharegroup.protocol.group_records import GroupRecord, ShareGroupTopicRemoved
from sharegroup.protocol.internal_messages import (
    UNINITIALIZED_OFFSET,
    DeleteShareGroupState,
    InitializeShareGroupState,
    StatePartition,
)
from sharegroup.protocol.internal_messages import StateTopic as StateTopicMessage
from sharegroup.protocol.message_portions import topic_id_portions, topic_portions


def newly_seen(
    state: GroupState, topic: str, topic_id: str, partition_count: int, *, is_subscribed: bool, epoch: int
) -> list[GroupRecord]:
    """Return the records for an observed topic: share-partitions to initialise, or to delete with a removed topic.

    A topic that was deleted and created again has another topic id, and so other share-partitions. A partition that
    was added to a topic starts at offset 0 (KIP-932, "Managing the SPSO and SPEO"). The topic id is "" when there is
    no such topic; without a subscriber nothing is initialised.
    """
    known = state.topic_named(topic)
    records: list[GroupRecord] = []
    if known is not None and known.topic_id != topic_id:
        records += deleting(state, [known.topic_id])
        known = None
    # A topic whose state is being deleted is handled again after the deletion.
    if not topic_id or not is_subscribed or (topic_id in state.topics and known is None):
        return records
    present = known or StateTopic(topic, topic_id)
    new = {
        partition: Initialization(epoch, 0 if known and partition >= known.partition_count else UNINITIALIZED_OFFSET)
        for partition in range(partition_count)
        if partition not in present.initialized and partition not in present.initializing
    }
    if new:
        count = max(present.partition_count, partition_count)
        initializing = {**present.initializing, **new}
        records.append(state_partition_record(replace(present, partition_count=count, initializing=initializing)))
    return records


def altered(
    state: GroupState, topic: str, topic_id: str, partition_count: int, new: Mapping[int, Initialization]
) -> list[GroupRecord]:
    """Return the records by which share-partitions get a new state, which replaces any older one."""
    present = state.topics.get(topic_id) or StateTopic(topic, topic_id, partition_count)
    return [
        state_partition_record(
            replace(
                present,
                initializing={**present.initializing, **new},
                initialized=present.initialized - new.keys(),
            )
        )
    ]


def initialized(state: GroupState, topic_id: str, partitions: Iterable[int], state_epoch: int) -> list[GroupRecord]:
    """Return the records of share-partitions that now have their state; those that wait for a higher epoch do not."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return []
    done = {
        partition
        for partition in partitions
        if (waiting := topic.initializing.get(partition)) is not None and waiting.state_epoch <= state_epoch
    }
    if not done:
        return []
    rest = {partition: waiting for partition, waiting in topic.initializing.items() if partition not in done}
    return [state_partition_record(replace(topic, initializing=rest, initialized=topic.initialized | done))]


def deleting(state: GroupState, topic_ids: Iterable[str]) -> list[GroupRecord]:
    """Return the records that begin the deletion of all share-partitions of some topics."""
    topics = (state.topics[topic_id] for topic_id in topic_ids)
    return [
        state_partition_record(
            StateTopic(topic.topic, topic.topic_id, topic.partition_count, deleting=topic.partitions)
        )
        for topic in topics
    ]


def deleted(state: GroupState, topic_ids: Iterable[str]) -> list[GroupRecord]:
    """Return the records of topics whose share-partitions were deleted; topics not in deletion keep their state."""
    topics = (state.topics.get(topic_id) for topic_id in topic_ids)
    return [ShareGroupTopicRemoved(topic_id=topic.topic_id) for topic in topics if topic is not None and topic.deleting]


def initializations(state: GroupState) -> list[InitializeShareGroupState]:
    """Return the initialisation requests for the leader, by epoch, lowest first."""
    asked: dict[int, list[StateTopicMessage]] = {}
    for topic_id in sorted(state.changing_topic_ids):
        topic = state.topics[topic_id]
        by_epoch: dict[int, list[StatePartition]] = {}
        for partition, waiting in sorted(topic.initializing.items()):
            asked_partition = StatePartition(
                partition_index=partition,
                start_offset=waiting.start_offset,
                state_batches=list(waiting.state_batches),
            )
            by_epoch.setdefault(waiting.state_epoch, []).append(asked_partition)
        for epoch, partitions in by_epoch.items():
            message = StateTopicMessage(topic_id=topic.topic_id, topic=topic.topic, partitions=partitions)
            asked.setdefault(epoch, []).append(message)
    return [
        InitializeShareGroupState(state_epoch=epoch, topics=portion)
        for epoch, topics in sorted(asked.items())
        for portion in topic_portions(topics)
    ]


def deletions(state: GroupState) -> list[DeleteShareGroupState]:
    """Return the deletion requests for the leader."""
    topic_ids = sorted(topic_id for topic_id in state.changing_topic_ids if state.topics[topic_id].deleting)
    return [
        DeleteShareGroupState(state_epoch=state.group_epoch, topic_ids=portion)
        for portion in topic_id_portions(topic_ids)
    ]
