"""Kafka's share coordinator: the persisted state of each share-partition, and the records that requests create.

A request is checked, and its response comes with records; the state changes only when these are applied, after they are
written. Requests and messages are those of Kafka 4.3.1's `ShareCoordinatorShard` (API keys 83 to 87; Kafka's messages
carry lists, its coordinator handles one share-partition at a time); the rules are those of `share_coordinator.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sharegroup.coordinator.share_coordinator import UNKNOWN_EPOCH, SnapshotEpochs, is_fenced
from sharegroup.core.state_batches import NO_START_OFFSET, combined
from sharegroup.errors import (
    FencedLeaderEpochError,
    FencedStateEpochError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.share_state_records import (
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareUpdate,
)


@dataclass(frozen=True, slots=True)
class ShareGroupState:
    """The coordinator's state of one share-partition.

    Attributes:
        persisted: its state, as a snapshot would hold it now.
        leader_epoch_fence: the highest leader epoch so far; it outlives a new initialisation.
        state_epoch_fence: the highest state epoch so far; -1 before the first snapshot.
        updates_since_snapshot: updates since a write made a snapshot.
    """

    persisted: ShareSnapshot
    leader_epoch_fence: int = UNKNOWN_EPOCH
    state_epoch_fence: int = UNKNOWN_EPOCH
    updates_since_snapshot: int = 0

    @property
    def epochs(self) -> SnapshotEpochs:
        """The position between two snapshots."""
        return SnapshotEpochs(self.persisted.snapshot_epoch, self.updates_since_snapshot)

    def after_snapshot(self, snapshot: ShareSnapshot, updates_per_snapshot: int) -> ShareGroupState:
        """Return the state after a snapshot."""
        return ShareGroupState(
            snapshot,
            max(self.leader_epoch_fence, snapshot.leader_epoch),
            max(self.state_epoch_fence, snapshot.state_epoch),
            # A snapshot that no write made, because it was cold or begins a new state, does not reset the count.
            0 if self.updates_since_snapshot >= updates_per_snapshot else self.updates_since_snapshot,
        )

    def after_update(self, update: ShareUpdate) -> ShareGroupState:
        """Return the state after an update."""
        return ShareGroupState(
            self.merged(update),
            max(self.leader_epoch_fence, update.leader_epoch),
            self.state_epoch_fence,
            self.epochs.after_update().updates_since_snapshot,
        )

    def merged(self, update: ShareUpdate) -> ShareSnapshot:
        """Return the persisted state after an update, with the same snapshot epoch."""
        persisted = self.persisted
        start_offset = persisted.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
        return replace(
            persisted,
            leader_epoch=persisted.leader_epoch if update.leader_epoch == UNKNOWN_EPOCH else update.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=tuple(combined(persisted.state_batches, update.state_batches, start_offset)),
        )


NO_STATE = ShareSnapshot(
    snapshot_epoch=0, state_epoch=0, leader_epoch=0, start_offset=NO_START_OFFSET, create_timestamp=0, write_timestamp=0
)
"""The summary of a share-partition without state."""


class ShareCoordinatorShard:
    """The persisted state of the share-partitions of many groups, as one partition of Kafka's state topic holds it.

    Every request raises InvalidRequestError if the topic id is null or the partition negative, and
    UnknownTopicOrPartitionError if there is no such partition.

    Args:
        partition_count: topic id → number of partitions, of each topic that exists; read with each request.
        updates_per_snapshot: `share.coordinator.snapshot.update.records.per.snapshot`.
    """

    def __init__(self, partition_count: Mapping[str, int], updates_per_snapshot: int) -> None:
        self._partition_count = partition_count
        self._updates_per_snapshot = updates_per_snapshot
        self._states: dict[SharePartitionKey, ShareGroupState] = {}

    @property
    def states(self) -> Mapping[SharePartitionKey, ShareGroupState]:
        """The share-partitions that have a state; read only."""
        return self._states

    def apply(self, record: ShareStateRecord) -> None:
        """Change the state by one record that was written. There is no other way to change it."""
        key = record.key
        known = self._states.get(key)
        match record.value:
            case None:
                self._states.pop(key, None)
            case ShareSnapshot() as snapshot:
                before = known or ShareGroupState(snapshot)
                self._states[key] = before.after_snapshot(snapshot, self._updates_per_snapshot)
            case ShareUpdate() as update:
                # The snapshot before the first update may lie in a part of the log that was pruned.
                before = known or ShareGroupState(replace(NO_STATE, snapshot_epoch=update.snapshot_epoch))
                self._states[key] = before.after_update(update)

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> list[ShareStateRecord]:
        """Begin a new state, which replaces any older one: an empty snapshot with the next number (key 83).

        Raises:
            FencedStateEpochError: a higher state epoch is known.
        """
        _check_key(key)
        known = self._states.get(key)
        if known is not None:
            _check_state_epoch(state_epoch, known)
        self._check_exists(key)
        epochs = known.epochs if known is not None else SnapshotEpochs()
        snapshot = ShareSnapshot(
            snapshot_epoch=epochs.after_snapshot().snapshot_epoch,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=UNKNOWN_COUNT if start_offset == NO_START_OFFSET else 0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return [ShareStateRecord(key, snapshot)]

    def read(
        self, key: SharePartitionKey, leader_epoch: int, now_ms: int
    ) -> tuple[ShareSnapshot, list[ShareStateRecord]]:
        """Return the state, and the record by which a new leader epoch fences earlier ones (key 84).

        Raises:
            InvalidRequestError: the share-partition has no state.
            FencedLeaderEpochError: a higher leader epoch is known.
        """
        known = self._initialized(key, "Read")
        _check_leader_epoch(leader_epoch, known)
        self._check_exists(key)
        persisted = known.persisted
        if leader_epoch in (UNKNOWN_EPOCH, known.leader_epoch_fence):
            return persisted, []
        update = ShareUpdate(
            snapshot_epoch=persisted.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=persisted.start_offset,
            delivery_complete_count=persisted.delivery_complete_count,
        )
        return persisted, [self._record(key, known, update, now_ms)]

    def read_summary(self, key: SharePartitionKey) -> ShareSnapshot:
        """Return the state for administrators (key 87); Kafka's response leaves the batches out."""
        _check_key(key)
        self._check_exists(key)
        known = self._states.get(key)
        return NO_STATE if known is None else known.persisted

    def write(
        self, key: SharePartitionKey, state_epoch: int, change: ShareUpdate, now_ms: int
    ) -> list[ShareStateRecord]:
        """Change the state: an update, or a snapshot instead when one is due (key 85).

        Args:
            state_epoch: epoch of the state that the leader knows; like that of the leader it is checked, not stored.
            change: the leader's epoch, the new start offset and count, and the changed batches.
            now_ms: the time; epoch ms.

        Raises:
            InvalidRequestError: the share-partition has no state.
            FencedLeaderEpochError: a higher leader epoch is known.
            FencedStateEpochError: a higher state epoch is known.
        """
        known = self._initialized(key, "Write")
        _check_leader_epoch(change.leader_epoch, known)
        _check_state_epoch(state_epoch, known)
        self._check_exists(key)
        persisted = known.persisted
        update = replace(change, snapshot_epoch=persisted.snapshot_epoch, leader_epoch=persisted.leader_epoch)
        return [self._record(key, known, update, now_ms)]

    def delete(self, key: SharePartitionKey) -> list[ShareStateRecord]:
        """Delete the state, if there is one (key 86)."""
        _check_key(key)
        self._check_exists(key)
        return [ShareStateRecord(key, None)] if key in self._states else []

    def _record(
        self, key: SharePartitionKey, known: ShareGroupState, update: ShareUpdate, now_ms: int
    ) -> ShareStateRecord:
        """Return the update with its batches combined, or the resulting snapshot when one is due."""
        if not known.epochs.is_snapshot_due(self._updates_per_snapshot):
            batches = combined((), update.state_batches, update.start_offset)
            return ShareStateRecord(key, replace(update, state_batches=tuple(batches)))
        snapshot = replace(
            known.merged(update),
            snapshot_epoch=known.epochs.after_snapshot().snapshot_epoch,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return ShareStateRecord(key, snapshot)

    def _initialized(self, key: SharePartitionKey, operation: str) -> ShareGroupState:
        _check_key(key)
        known = self._states.get(key)
        if known is None:
            raise InvalidRequestError(f"{operation} operation on uninitialized share partition not allowed.")
        return known

    def _check_exists(self, key: SharePartitionKey) -> None:
        if key.partition >= self._partition_count.get(key.topic_id, 0):
            raise UnknownTopicOrPartitionError()


def _check_key(key: SharePartitionKey) -> None:
    if not key.topic_id:
        raise InvalidRequestError("The topic id cannot be null.")
    if key.partition < 0:
        raise InvalidRequestError("The partition id cannot be a negative number.")


def _check_leader_epoch(leader_epoch: int, known: ShareGroupState) -> None:
    if is_fenced(leader_epoch, known.leader_epoch_fence):
        raise FencedLeaderEpochError()


def _check_state_epoch(state_epoch: int, known: ShareGroupState) -> None:
    if is_fenced(state_epoch, known.state_epoch_fence):
        raise FencedStateEpochError()
