"""The share coordinator: which row makes a share-partition's changes durable (spec 002, "Snapshot/update compaction").

A change that Kafka would persist is a ShareUpdate; after a number of updates the next one is a ShareSnapshot in its
place. A change that Kafka keeps in memory only (an acquisition, a renewal, `unread`) is a ShareTransitions row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch, combined, persisted_batches
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatchEntry, StateRow, TransitionEntry


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
    """The row of a share-partition, without the columns that say where and when it was written.

    Its state batches are those of Kafka's record: of an update what changed at or above the start offset, of a
    snapshot all that Kafka would have stored by then.
    """
    is_snapshot = record_type is RecordType.SHARE_SNAPSHOT
    return StateRow(
        record_type=record_type,
        state_epoch=share_partition.state_epoch,
        snapshot_epoch=snapshot_epoch,
        start_offset=share_partition.start_offset,
        delivery_complete_count=share_partition.delivery_complete_count,
        state_batches=[StateBatchEntry.of(batch) for batch in _state_batches(record_type, share_partition, entries)],
        transitions=list(entries),
        runs=[RunEntry.of(run) for run in share_partition.runs] if is_snapshot else [],
    )


def tombstone_row(state_epoch: int, snapshot_epoch: int) -> StateRow:
    """The row by which the state of a share-partition ends; the next one's snapshots are counted from 0 again."""
    return StateRow(record_type=RecordType.SHARE_TOMBSTONE, state_epoch=state_epoch, snapshot_epoch=snapshot_epoch)


def _state_batches(
    record_type: RecordType, share_partition: SharePartition, entries: Sequence[TransitionEntry]
) -> list[StateBatch]:
    if record_type is RecordType.SHARE_SNAPSHOT:
        return persisted_batches(share_partition.runs)
    changed = (
        StateBatch(entry.first_offset, entry.last_offset, entry.delivery_count, entry.to_state)
        for entry in entries
        if entry.transition.is_persisted_by_kafka
    )
    return combined((), changed, share_partition.start_offset)
