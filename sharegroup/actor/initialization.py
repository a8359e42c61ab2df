"""Share-partitions that have no state yet: they get it when it is known where their partition starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.log_offsets import KnownOffsets, check_partition_count
from sharegroup.actor.share_session import PartitionKey
from sharegroup.config.group import GroupConfig
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.facts import UNINITIALIZED_OFFSET, InitializeShareGroupState, StatePartition, StateTopic

_BELOW_ALL_OFFSETS = -1


class UninitializedTopics:
    """Topics whose share-partitions wait for their state; a topic's get it all at once.

    Args:
        topics: (state epoch, topic) of those that wait.
        partitions: the share-partitions that have their state; those that get it are added.
        offsets: what is known of the record log.
    """

    def __init__(
        self,
        topics: Iterable[tuple[int, StateTopic]],
        partitions: MutableMapping[PartitionKey, LedPartition],
        offsets: KnownOffsets,
    ) -> None:
        self._topics = {topic.topic_id: (state_epoch, topic) for state_epoch, topic in topics}
        self._partitions = partitions
        self._offsets = offsets

    def __iter__(self) -> Iterator[tuple[int, StateTopic]]:
        return iter(self._topics.values())

    def ask(self, body: InitializeShareGroupState) -> None:
        """Take in topics whose share-partitions the coordinator wants to have their state.

        Raises:
            InvalidRequestError: the group would have too many share-partitions; nothing changed.
        """
        wanted = {**self._topics, **{topic.topic_id: (body.state_epoch, topic) for topic in body.topics}}
        check_partition_count(len(self._partitions) + sum(len(topic.partitions) for _, topic in wanted.values()))
        self._topics = wanted

    def start(self, config: GroupConfig) -> list[StateTopic]:
        """Give share-partitions their state where their start offset can be told; returns their topics.

        Args:
            config: the group's configuration, which says where a share-partition starts.
        """
        done: list[StateTopic] = []
        for state_epoch, topic in list(self._topics.values()):
            if all(self._can_start(topic, partition) for partition in topic.partitions):
                del self._topics[topic.topic_id]
                started = [
                    StatePartition(
                        partition_index=partition.partition_index,
                        start_offset=self._started(topic, partition, state_epoch, config),
                    )
                    for partition in topic.partitions
                ]
                done.append(StateTopic(topic_id=topic.topic_id, topic=topic.topic, partitions=started))
        return done

    def watched(self) -> dict[tuple[str, str, int], int]:
        """(topic, topic id, partition) of what waits for the log's offsets → an offset that is below all of them."""
        return {
            (topic.topic, topic.topic_id, partition.partition_index): _BELOW_ALL_OFFSETS
            for _, topic in self._topics.values()
            for partition in topic.partitions
            # One that is known would be told at once, and then again without end.
            if not self._can_start(topic, partition)
        }

    def _can_start(self, topic: StateTopic, partition: StatePartition) -> bool:
        key = (topic.topic_id, partition.partition_index)
        return partition.start_offset != UNINITIALIZED_OFFSET or key in self._partitions or self._offsets.knows(key)

    def _started(self, topic: StateTopic, partition: StatePartition, state_epoch: int, config: GroupConfig) -> int:
        """Give a share-partition its state unless it has it already; returns its start offset."""
        key = (topic.topic_id, partition.partition_index)
        led = self._partitions.get(key)
        if led is None:
            start_offset = partition.start_offset
            if start_offset == UNINITIALIZED_OFFSET:
                start_offset = self._offsets.reset_offset(key, config)
            engine = SharePartition(start_offset, (), state_epoch)
            led = LedPartition(topic.topic, topic.topic_id, partition.partition_index, engine, SnapshotEpochs())
            self._partitions[key] = led
        return led.share_partition.start_offset
