"""One share group of a Kafka history in its last state: what a group here begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharegroup.audit.kafka_state.kafka_history import KafkaHistory
from sharegroup.audit.kafka_state.kafka_import import KafkaImport
from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch, persisted_batches
from sharegroup.errors import GroupIdNotFoundError, KafkaRecordError, UnknownTopicError


@dataclass(frozen=True, slots=True)
class KafkaPartitionState:
    """A share-partition.

    Attributes:
        start_offset: the start offset, past all finished records.
        state_batches: the records above it that were delivered, ascending.
    """

    start_offset: int
    state_batches: tuple[StateBatch, ...]

    def count(self, state: RecordState) -> int:
        """Return the number of records above the start offset that are in a state."""
        return sum(b.last_offset - b.first_offset + 1 for b in self.state_batches if b.delivery_state is state)


@dataclass(frozen=True, slots=True)
class KafkaGroup:
    """A share group.

    Attributes:
        states: (topic, partition) → its state.
        without_start_offset: share-partitions, as topic-partition, that have no start offset yet: nothing of them was
            acknowledged.
    """

    group_id: str
    members: frozenset[str] = frozenset()
    states: Mapping[tuple[str, int], KafkaPartitionState] = field(default_factory=dict)
    without_start_offset: list[str] = field(default_factory=list)


def kafka_group(history: KafkaHistory, topic_names: Mapping[str, str], group_id: str) -> KafkaGroup:
    """Return a group as the records of a history make it.

    Args:
        topic_names: topic id → name, besides those in the history.

    Raises:
        GroupIdNotFoundError: the history has no records of the group.
        KafkaRecordError: a record of the history could not be read, and may be one of the group.
        UnknownTopicError: the name of a topic is not known.
    """
    if history.unread:
        first = history.unread[0]
        raise KafkaRecordError(
            f"{len(history.unread)} records cannot be read, the first at {first.source}: {first.reason}",
            "They may be the group's. Import with the release that knows them.",
        )
    imported = KafkaImport(history, topic_names, group_id)
    for _ in imported.rows():
        pass
    if not imported.summary.row_count:
        raise GroupIdNotFoundError(f"Group {group_id} has no records.", "Check its name, and that it is a share group.")
    unnamed = {key.topic_id for key in imported.partitions} & imported.summary.unnamed_topic_ids
    if unnamed:
        topic_ids = ", ".join(sorted(unnamed))
        raise UnknownTopicError(
            f"The names of topics {topic_ids} are not known.",
            "Add the groups' own records to the dump, or ask the broker.",
        )
    states: dict[tuple[str, int], KafkaPartitionState] = {}
    without: list[str] = []
    for key, partition in sorted(imported.partitions.items()):
        topic, engine = imported.names[key.topic_id], partition.share_partition
        if engine.start_offset < 0:
            without.append(f"{topic}-{key.partition}")
        else:
            batches = tuple(persisted_batches(engine.runs))
            states[topic, key.partition] = KafkaPartitionState(engine.start_offset, batches)
    return KafkaGroup(group_id, imported.members(group_id), states, without)
