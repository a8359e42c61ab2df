"""What a share coordinator knows of one share-partition, and how records change it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharegroup.coordinator.share_state_requests import UNKNOWN_EPOCH, UNKNOWN_START_OFFSET
from sharegroup.core.state_batches import combined
from sharegroup.protocol.share_state_records import ShareSnapshot, ShareUpdate


@dataclass(frozen=True, slots=True)
class ShareGroupState:
    """What is known of one share-partition.

    Attributes:
        persisted: its state, as a snapshot would hold it now.
        leader_epoch_fence: the highest leader epoch so far; it outlives a new initialisation.
        state_epoch_fence: the highest state epoch so far; None before the first snapshot.
        updates_since_snapshot: updates since a write made a snapshot; None before the first update.
    """

    persisted: ShareSnapshot
    leader_epoch_fence: int
    state_epoch_fence: int | None
    updates_since_snapshot: int | None


def state_after_snapshot(
    known: ShareGroupState | None, snapshot: ShareSnapshot, updates_per_snapshot: int
) -> ShareGroupState:
    """The state once a snapshot is written.

    Args:
        known: the state before, None when there was none.
        snapshot: what was written.
        updates_per_snapshot: `share.coordinator.snapshot.update.records.per.snapshot`.
    """
    if known is None:
        return ShareGroupState(snapshot, snapshot.leader_epoch, snapshot.state_epoch, None)
    updates = known.updates_since_snapshot
    return ShareGroupState(
        snapshot,
        max(known.leader_epoch_fence, snapshot.leader_epoch),
        max(snapshot.state_epoch if known.state_epoch_fence is None else known.state_epoch_fence, snapshot.state_epoch),
        # A snapshot that no write made, because it was cold or begins a new state, does not put the count back.
        0 if updates is not None and updates >= updates_per_snapshot else updates,
    )


def state_after_update(known: ShareGroupState | None, update: ShareUpdate) -> ShareGroupState:
    """The state once an update is written; `known` is the state before, None when there was none."""
    if known is None:
        # The snapshot before it lay in a part of the log that was pruned; the next one is not far.
        return ShareGroupState(_alone(update), update.leader_epoch, None, 1)
    return ShareGroupState(
        merged_state(known.persisted, update),
        max(known.leader_epoch_fence, update.leader_epoch),
        known.state_epoch_fence,
        (known.updates_since_snapshot or 0) + 1,
    )


def merged_state(persisted: ShareSnapshot, update: ShareUpdate) -> ShareSnapshot:
    """What is persisted after an update; still the snapshot of the same epoch."""
    start_offset = persisted.start_offset if update.start_offset == UNKNOWN_START_OFFSET else update.start_offset
    return replace(
        persisted,
        leader_epoch=persisted.leader_epoch if update.leader_epoch == UNKNOWN_EPOCH else update.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=tuple(combined(persisted.state_batches, update.state_batches, start_offset)),
    )


def _alone(update: ShareUpdate) -> ShareSnapshot:
    return ShareSnapshot(
        snapshot_epoch=update.snapshot_epoch,
        state_epoch=0,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        create_timestamp=0,
        write_timestamp=0,
        state_batches=update.state_batches,
    )
