"""The share coordinator: which row makes a share-partition's changes durable (spec 002, "Snapshot/update compaction").

A change that Kafka would persist is a ShareUpdate; after a number of updates the next one is a ShareSnapshot in its
place. A change that Kafka keeps in memory only (an acquisition, a renewal, `unread`) is a ShareTransitions row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sharegroup.core.runs import Run, RunMap
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatch, StateRow, TransitionEntry


@dataclass(frozen=True, slots=True)
class SnapshotEpochs:
    """Where a share-partition stands between two snapshots.

    Attributes:
        snapshot_epoch: snapshots so far, from 0; -1 before the first.
        updates_since_snapshot: ShareUpdate rows since the last snapshot.
    """

    snapshot_epoch: int = -1
    updates_since_snapshot: int = 0

    def after(self, record_type: RecordType) -> SnapshotEpochs:
        """The epochs once a row of this type is written."""
        if record_type is RecordType.SHARE_SNAPSHOT:
            return SnapshotEpochs(self.snapshot_epoch + 1, 0)
        if record_type is RecordType.SHARE_UPDATE:
            return SnapshotEpochs(self.snapshot_epoch, self.updates_since_snapshot + 1)
        return self


def row_type(epochs: SnapshotEpochs, entries: Sequence[TransitionEntry], updates_per_snapshot: int) -> RecordType:
    """The type of the row for these transitions."""
    if epochs.snapshot_epoch < 0:
        return RecordType.SHARE_SNAPSHOT
    if not any(entry.transition.is_persisted_by_kafka for entry in entries):
        return RecordType.SHARE_TRANSITIONS
    if epochs.updates_since_snapshot >= updates_per_snapshot:
        return RecordType.SHARE_SNAPSHOT
    return RecordType.SHARE_UPDATE


def share_partition_row(
    record_type: RecordType,
    snapshot_epoch: int,
    share_partition: SharePartition,
    entries: Sequence[TransitionEntry],
) -> StateRow:
    """The row of a share-partition, without the columns that say where and when it was written."""
    is_snapshot = record_type is RecordType.SHARE_SNAPSHOT
    return StateRow(
        record_type=record_type,
        state_epoch=share_partition.state_epoch,
        snapshot_epoch=snapshot_epoch,
        start_offset=share_partition.start_offset,
        delivery_complete_count=share_partition.delivery_complete_count,
        state_batches=_snapshot_batches(share_partition) if is_snapshot else _update_batches(entries),
        transitions=list(entries),
        runs=[RunEntry.of(run) for run in share_partition.runs] if is_snapshot else [],
    )


def _update_batches(entries: Sequence[TransitionEntry]) -> list[StateBatch]:
    runs = [
        Run(entry.first_offset, entry.last_offset, entry.to_state, entry.delivery_count)
        for entry in entries
        if entry.transition.is_persisted_by_kafka
    ]
    if all(run.last_offset < after.first_offset for run, after in pairwise(runs)):
        # The usual case, in which no record changed twice, is many times faster at once than run by run.
        return [_state_batch(run) for run in RunMap(runs)]
    net = RunMap()
    for run in runs:
        net.assign(run)
    return [_state_batch(run) for run in net]


def _snapshot_batches(share_partition: SharePartition) -> list[StateBatch]:
    return [_state_batch(run) for run in share_partition.runs if run.state.is_persisted and run.delivery_count > 0]


def _state_batch(run: Run) -> StateBatch:
    return StateBatch(
        first_offset=run.first_offset,
        last_offset=run.last_offset,
        delivery_state=run.state,
        delivery_count=run.delivery_count,
    )
