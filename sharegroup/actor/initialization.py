"""Share-partitions that wait for a new state until the start offset of their partition is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets, check_partition_count
from sharegroup.config.group import GroupConfig
from sharegroup.coordinator.share_coordinator import SnapshotEpochs, is_fenced
from sharegroup.core.records import PartitionKey
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch
from sharegroup.protocol.imported_batches import state_batches
from sharegroup.protocol.internal_messages import (
    UNINITIALIZED_OFFSET,
    InitializeShareGroupState,
    ShareGroupStateInitialized,
    StatePartition,
    StateTopic,
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The state that a share-partition is to get."""

    topic: str
    state_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...] = ()


class UninitializedPartitions:
    """Share-partitions that wait for a state, their first or one that replaces an older one.

    A state epoch fences older states: a share-partition with a state of that epoch, or of a higher one, keeps it.
    """

    def __init__(self, partitions: LedPartitions, offsets: KnownOffsets) -> None:
        self._waiting: dict[PartitionKey, _Wanted] = {}
        self._topics: Counter[str] = Counter()
        self._partitions = partitions
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._waiting)

    def has_topic(self, topic_id: str) -> bool:
        """Return True if a share-partition of the topic waits for a state."""
        return self._topics[topic_id] > 0

    def topic_waiting_at(self, key: PartitionKey) -> str | None:
        """Return the name of the topic if a share-partition waits for the log's offsets, else None."""
        wanted = self._waiting.get(key)
        # One that can start is not watched: the response would come at once, and then again without end.
        return wanted.topic if wanted is not None and not self._has_start_offset(key, wanted) else None

    def ask(self, body: InitializeShareGroupState) -> list[PartitionKey]:
        """Add share-partitions for which the coordinator requests a state, and return them.

        Raises:
            InvalidRequestError: the group would have too many share-partitions; nothing changed.
        """
        asked = {
            (topic.topic_id, wanted.partition_index): _Wanted(
                topic.topic, body.state_epoch, wanted.start_offset, state_batches(wanted.state_batches)
            )
            for topic in body.topics
            for wanted in topic.partitions
        }
        new_count = sum(key not in self._partitions for key in asked.keys() | self._waiting.keys())
        check_partition_count(len(self._partitions) + new_count)
        for key, wanted in asked.items():
            known = self._waiting.get(key)
            if known is None or known.state_epoch <= wanted.state_epoch:
                self._topics[key[0]] += known is None
                self._waiting[key] = wanted
        return list(asked)

    def forget(self, topic_ids: Iterable[str], state_epoch: int) -> list[PartitionKey]:
        """Remove share-partitions of topics whose state is to be deleted; those of a higher epoch keep waiting.

        Returns:
            The share-partitions that no longer wait.
        """
        deleted = set(topic_ids)
        ended = [
            key for key, wanted in self._waiting.items() if key[0] in deleted and wanted.state_epoch <= state_epoch
        ]
        for key in ended:
            self._remove(key)
        return ended

    def start(
        self,
        keys: Iterable[PartitionKey],
        config: GroupConfig,
        ended: Callable[[LedPartition], None],
        message: LoggedRequest,
    ) -> list[ShareGroupStateInitialized]:
        """Create the state of share-partitions whose start offset is known, and return the responses.

        Args:
            keys: those that may be able to start now.
            ended: called with each share-partition whose state is about to be replaced.
        """
        started: dict[int, dict[str, list[StatePartition]]] = {}
        names: dict[str, str] = {}
        for key in keys:
            wanted = self._waiting.get(key)
            if wanted is None or not self._has_start_offset(key, wanted) or self._waits_for_writes(key, wanted):
                continue
            self._remove(key)
            topic_id, partition = key
            names[topic_id] = wanted.topic
            start_offset = self._started(key, wanted, config, ended, message)
            done = StatePartition(partition_index=partition, start_offset=start_offset)
            started.setdefault(wanted.state_epoch, {}).setdefault(topic_id, []).append(done)
        return [
            ShareGroupStateInitialized(
                state_epoch=state_epoch,
                topics=[
                    StateTopic(topic_id=topic_id, topic=names[topic_id], partitions=partitions)
                    for topic_id, partitions in topics.items()
                ],
            )
            for state_epoch, topics in sorted(started.items())
        ]

    def _remove(self, key: PartitionKey) -> None:
        del self._waiting[key]
        self._topics[key[0]] -= 1
        if not self._topics[key[0]]:
            del self._topics[key[0]]

    def _waits_for_writes(self, key: PartitionKey, wanted: _Wanted) -> bool:
        """Return True while the state that is to be replaced has open writes; it acquires nothing from now on."""
        led = self._partitions.get(key)
        if led is None or self._has_state(key, wanted):
            return False
        led.is_ending = len(led.share_partition.open_writes) > 0
        return led.is_ending

    def _has_start_offset(self, key: PartitionKey, wanted: _Wanted) -> bool:
        return (
            wanted.start_offset != UNINITIALIZED_OFFSET or self._has_state(key, wanted) or self._offsets.is_known(key)
        )

    def _has_state(self, key: PartitionKey, wanted: _Wanted) -> bool:
        led = self._partitions.get(key)
        return led is not None and not is_fenced(led.share_partition.state_epoch, wanted.state_epoch)

    def _started(
        self,
        key: PartitionKey,
        wanted: _Wanted,
        config: GroupConfig,
        ended: Callable[[LedPartition], None],
        message: LoggedRequest,
    ) -> int:
        """Create the state of a share-partition unless it already exists, and return its start offset."""
        led = self._partitions.get(key)
        if led is None or not self._has_state(key, wanted):
            if led is not None:
                ended(led)
            start_offset = wanted.start_offset
            if start_offset == UNINITIALIZED_OFFSET:
                start_offset = self._offsets.reset_offset(key, config)
            engine = SharePartition(start_offset, (), wanted.state_epoch)
            epochs = led.epochs if led is not None else SnapshotEpochs()
            led = LedPartition(wanted.topic, *key, engine, epochs, is_new_state=True)
            imported = engine.import_batches(wanted.state_batches, config.share_partition_limits)
            led.record(imported, message.time_ms, message.offset)
            self._partitions.add(led)
        return led.share_partition.start_offset
