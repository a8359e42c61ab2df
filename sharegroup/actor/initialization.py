"""Share-partitions that wait for a new state: they get it when it is known where their partition starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.log_offsets import KnownOffsets, check_partition_count
from sharegroup.actor.share_session import PartitionKey
from sharegroup.config.group import GroupConfig
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.internal_messages import (
    UNINITIALIZED_OFFSET,
    InitializeShareGroupState,
    ShareGroupStateInitialized,
    StatePartition,
    StateTopic,
)

_BELOW_ALL_OFFSETS = -1


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The state that a share-partition is to get."""

    topic: str
    state_epoch: int
    start_offset: int


class UninitializedPartitions:
    """Share-partitions that wait for a state, their first or a new one in place of an older one.

    A state epoch fences what is older: who has a state of that epoch, or of a higher one, keeps it.

    Args:
        plain: those that wait, as `to_plain` wrote them.
        partitions: the share-partitions that have a state; those that get one are put in.
        offsets: what is known of the record log.
    """

    def __init__(
        self, plain: Iterable[Any], partitions: MutableMapping[PartitionKey, LedPartition], offsets: KnownOffsets
    ) -> None:
        self._waiting = {(topic_id, partition): _Wanted(*wanted) for topic_id, partition, *wanted in plain}
        self._partitions = partitions
        self._offsets = offsets

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold what waits."""
        return [
            [topic_id, partition, wanted.topic, wanted.state_epoch, wanted.start_offset]
            for (topic_id, partition), wanted in self._waiting.items()
        ]

    def ask(self, body: InitializeShareGroupState) -> None:
        """Take in share-partitions that the coordinator wants to have a state.

        Raises:
            InvalidRequestError: the group would have too many share-partitions; nothing changed.
        """
        asked = {
            (topic.topic_id, wanted.partition_index): _Wanted(topic.topic, body.state_epoch, wanted.start_offset)
            for topic in body.topics
            for wanted in topic.partitions
        }
        check_partition_count(len(self._partitions.keys() | self._waiting.keys() | asked.keys()))
        for key, wanted in asked.items():
            known = self._waiting.get(key)
            if known is None or known.state_epoch <= wanted.state_epoch:
                self._waiting[key] = wanted

    def forget(self, topic_ids: Iterable[str], state_epoch: int) -> None:
        """Give up share-partitions of topics whose state is to be deleted; those of a higher epoch go on waiting."""
        gone = set(topic_ids)
        self._waiting = {
            key: wanted
            for key, wanted in self._waiting.items()
            if key[0] not in gone or wanted.state_epoch > state_epoch
        }

    def start(self, config: GroupConfig, ended: Callable[[LedPartition], None]) -> list[ShareGroupStateInitialized]:
        """Give share-partitions their state where their start offset can be told; returns what to answer.

        Args:
            config: the group's configuration, which says where a share-partition starts.
            ended: called with each share-partition whose state is about to be replaced.
        """
        started: dict[int, dict[str, list[StatePartition]]] = {}
        names: dict[str, str] = {}
        for key, wanted in list(self._waiting.items()):
            if not self._can_start(key, wanted):
                continue
            del self._waiting[key]
            topic_id, partition = key
            names[topic_id] = wanted.topic
            start_offset = self._started(key, wanted, config, ended)
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

    def watched(self) -> dict[tuple[str, str, int], int]:
        """(topic, topic id, partition) of what waits for the log's offsets → an offset that is below all of them."""
        return {
            (wanted.topic, *key): _BELOW_ALL_OFFSETS
            for key, wanted in self._waiting.items()
            # One that is known would be told at once, and then again without end.
            if not self._can_start(key, wanted)
        }

    def _can_start(self, key: PartitionKey, wanted: _Wanted) -> bool:
        return wanted.start_offset != UNINITIALIZED_OFFSET or self._has_state(key, wanted) or self._offsets.knows(key)

    def _has_state(self, key: PartitionKey, wanted: _Wanted) -> bool:
        led = self._partitions.get(key)
        return led is not None and led.share_partition.state_epoch >= wanted.state_epoch

    def _started(
        self, key: PartitionKey, wanted: _Wanted, config: GroupConfig, ended: Callable[[LedPartition], None]
    ) -> int:
        """Give a share-partition its state unless it has it already; returns its start offset."""
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
            self._partitions[key] = led
        return led.share_partition.start_offset
