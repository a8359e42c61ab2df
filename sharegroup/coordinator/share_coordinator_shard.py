"""Kafka's share coordinator: what is persisted of each share-partition, and which record a request makes of it.

A request is judged and answered with records; the state changes only when they are applied, once they are written.
Rules and messages are those of Kafka 4.3.1's `ShareCoordinatorShard`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sharegroup.coordinator.share_group_state import (
    ShareGroupState,
    merged_state,
    state_after_snapshot,
    state_after_update,
)
from sharegroup.coordinator.share_state_requests import (
    UNKNOWN_EPOCH,
    UNKNOWN_START_OFFSET,
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    ShareGroupStateSummary,
    ShareStateRequest,
    WriteShareGroupState,
)
from sharegroup.core.state_batches import combined
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


class ShareCoordinatorShard:
    """The persisted state of the share-partitions of many groups, as one partition of Kafka's state topic holds it.

    Args:
        partition_count: topic id → number of partitions, of each topic that exists; looked at with each request.
        updates_per_snapshot: `share.coordinator.snapshot.update.records.per.snapshot`.
    """

    def __init__(self, partition_count: Mapping[str, int], updates_per_snapshot: int) -> None:
        self._partition_count = partition_count
        self._updates_per_snapshot = updates_per_snapshot
        self._states: dict[SharePartitionKey, ShareGroupState] = {}

    @property
    def states(self) -> Mapping[SharePartitionKey, ShareGroupState]:
        """The share-partitions that have a state. To be read only."""
        return self._states

    def apply(self, record: ShareStateRecord) -> None:
        """Change the state by one record that was written. There is no other way to change it."""
        key = record.key
        known = self._states.get(key)
        match record.value:
            case None:
                self._states.pop(key, None)
            case ShareSnapshot() as snapshot:
                self._states[key] = state_after_snapshot(known, snapshot, self._updates_per_snapshot)
            case ShareUpdate() as update:
                self._states[key] = state_after_update(known, update)

    def initialize(self, request: InitializeShareGroupState, now_ms: int) -> list[ShareStateRecord]:
        """Begin a new state: an empty snapshot, numbered on.

        Raises:
            InvalidRequestError: topic id or partition is none.
            FencedStateEpochError: a higher state epoch is known.
            UnknownTopicOrPartitionError: there is no such partition.
        """
        key = _key(request)
        known = self._states.get(key)
        if known is not None:
            _check_state_epoch(request.state_epoch, known)
        self._check_exists(key)
        snapshot = ShareSnapshot(
            snapshot_epoch=known.persisted.snapshot_epoch + 1 if known else 0,
            state_epoch=request.state_epoch,
            leader_epoch=0,
            start_offset=request.start_offset,
            delivery_complete_count=UNKNOWN_COUNT if request.start_offset == UNKNOWN_START_OFFSET else 0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return [ShareStateRecord(key, snapshot)]

    def read(self, request: ReadShareGroupState, now_ms: int) -> tuple[ShareSnapshot, list[ShareStateRecord]]:
        """The state, and the record by which a leader epoch that was not known yet fences earlier ones.

        Raises:
            InvalidRequestError: topic id or partition is none, or the share-partition has no state.
            FencedLeaderEpochError: a higher leader epoch is known.
            UnknownTopicOrPartitionError: there is no such partition.
        """
        key = _key(request)
        known = self._initialized(key, "Read")
        _check_leader_epoch(request.leader_epoch, known)
        self._check_exists(key)
        persisted = known.persisted
        if request.leader_epoch in (UNKNOWN_EPOCH, known.leader_epoch_fence):
            return persisted, []
        update = ShareUpdate(
            snapshot_epoch=persisted.snapshot_epoch,
            leader_epoch=request.leader_epoch,
            start_offset=persisted.start_offset,
            delivery_complete_count=persisted.delivery_complete_count,
        )
        return persisted, [self._record(key, known, update, now_ms)]

    def read_summary(self, request: ReadShareGroupStateSummary) -> ShareGroupStateSummary:
        """The state without its batches; of a share-partition that has none, a summary that says so.

        Raises:
            InvalidRequestError: topic id or partition is none.
            UnknownTopicOrPartitionError: there is no such partition.
        """
        key = _key(request)
        self._check_exists(key)
        known = self._states.get(key)
        if known is None:
            return ShareGroupStateSummary()
        persisted = known.persisted
        return ShareGroupStateSummary(
            state_epoch=persisted.state_epoch,
            leader_epoch=persisted.leader_epoch,
            start_offset=persisted.start_offset,
            delivery_complete_count=persisted.delivery_complete_count,
        )

    def write(self, request: WriteShareGroupState, now_ms: int) -> list[ShareStateRecord]:
        """Change the state: an update, or a snapshot in its place when one is due.

        The epochs of a write are checked and not stored.

        Raises:
            InvalidRequestError: topic id or partition is none, or the share-partition has no state.
            FencedLeaderEpochError: a higher leader epoch is known.
            FencedStateEpochError: a higher state epoch is known.
            UnknownTopicOrPartitionError: there is no such partition.
        """
        key = _key(request)
        known = self._initialized(key, "Write")
        _check_leader_epoch(request.leader_epoch, known)
        _check_state_epoch(request.state_epoch, known)
        self._check_exists(key)
        update = ShareUpdate(
            snapshot_epoch=known.persisted.snapshot_epoch,
            leader_epoch=known.persisted.leader_epoch,
            start_offset=request.start_offset,
            delivery_complete_count=request.delivery_complete_count,
            state_batches=request.state_batches,
        )
        return [self._record(key, known, update, now_ms)]

    def delete(self, request: DeleteShareGroupState) -> list[ShareStateRecord]:
        """Delete the state; nothing is to be done when there is none.

        Raises:
            InvalidRequestError: topic id or partition is none.
            UnknownTopicOrPartitionError: there is no such partition.
        """
        key = _key(request)
        self._check_exists(key)
        return [ShareStateRecord(key, None)] if key in self._states else []

    def _record(
        self, key: SharePartitionKey, known: ShareGroupState, update: ShareUpdate, now_ms: int
    ) -> ShareStateRecord:
        """The update with its batches combined, or a snapshot of what it leads to when one is due."""
        if (known.updates_since_snapshot or 0) < self._updates_per_snapshot:
            batches = combined((), update.state_batches, update.start_offset)
            return ShareStateRecord(key, replace(update, state_batches=tuple(batches)))
        merged = merged_state(known.persisted, update)
        snapshot = replace(
            merged, snapshot_epoch=merged.snapshot_epoch + 1, create_timestamp=now_ms, write_timestamp=now_ms
        )
        return ShareStateRecord(key, snapshot)

    def _initialized(self, key: SharePartitionKey, operation: str) -> ShareGroupState:
        known = self._states.get(key)
        if known is None:
            raise InvalidRequestError(f"{operation} operation on uninitialized share partition not allowed.")
        return known

    def _check_exists(self, key: SharePartitionKey) -> None:
        if key.partition >= self._partition_count.get(key.topic_id, 0):
            raise UnknownTopicOrPartitionError()


def _key(request: ShareStateRequest) -> SharePartitionKey:
    if request.topic_id is None:
        raise InvalidRequestError("The topic id cannot be null.")
    if request.partition < 0:
        raise InvalidRequestError("The partition id cannot be a negative number.")
    return SharePartitionKey(request.group_id, request.topic_id, request.partition)


def _check_leader_epoch(leader_epoch: int, known: ShareGroupState) -> None:
    if leader_epoch != UNKNOWN_EPOCH and leader_epoch < known.leader_epoch_fence:
        raise FencedLeaderEpochError()


def _check_state_epoch(state_epoch: int, known: ShareGroupState) -> None:
    if state_epoch != UNKNOWN_EPOCH and known.state_epoch_fence is not None and state_epoch < known.state_epoch_fence:
        raise FencedStateEpochError()
