"""The share coordinator: the durable form of a share-partition's changes (spec 002, "Snapshot/update compaction").

Each rule is here once, as Kafka 4.3.1's `ShareCoordinatorShard` has it, and has two users:

- A leader writes rows of the state table. A change that Kafka would persist is a ShareUpdate; after a number of updates
  the next one is a ShareSnapshot instead. A change that Kafka keeps in memory only (an acquisition, a renewal,
  `unread`) is a ShareTransitions row. The engine holds the state, so the cost of a row grows with the changed ranges.
- `ShareCoordinatorShard` responds to the requests of Kafka's leaders, with Kafka's records. It holds the persisted
  batches itself, merged record by record. Kafka's recorded vectors test it, and audits ask it if it would write and
  hold the same as the leader.

The rules: `is_fenced` compares epochs; `SnapshotEpochs` numbers the snapshots and decides which record is one;
`combined` (`core/state_batches.py`) makes the batches of a record. A tombstone ends a state; the next one counts its
snapshots from 0 again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sharegroup.core.cause_rules import COUNT_RESETS
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch, combined, persisted_batches
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatchEntry, StateRow, TransitionEntry

UNKNOWN_EPOCH = -1
"""An epoch that the sender does not know: it is never fenced."""


def is_fenced(epoch: int, highest_epoch: int) -> bool:
    """Return True if a state or leader epoch is older than the highest one that is known."""
    return UNKNOWN_EPOCH != epoch < highest_epoch


class SnapshotEpochs(NamedTuple):
    """Position of a share-partition between two snapshots.

    Attributes:
        snapshot_epoch: number of the last snapshot, from 0; -1 before the first.
    """

    snapshot_epoch: int = -1
    updates_since_snapshot: int = 0

    def is_snapshot_due(self, updates_per_snapshot: int) -> bool:
        """Return True if the next change is to be a snapshot.

        Args:
            updates_per_snapshot: `share.coordinator.snapshot.update.records.per.snapshot`.
        """
        return self.snapshot_epoch < 0 or self.updates_since_snapshot >= updates_per_snapshot

    def after_snapshot(self) -> SnapshotEpochs:
        """Return the epochs after the next snapshot."""
        return SnapshotEpochs(self.snapshot_epoch + 1)

    def after_update(self) -> SnapshotEpochs:
        """Return the epochs after an update."""
        return SnapshotEpochs(self.snapshot_epoch, self.updates_since_snapshot + 1)

    def after(self, record_type: RecordType) -> SnapshotEpochs:
        """Return the epochs after a row of this type."""
        if record_type is RecordType.SHARE_SNAPSHOT:
            return self.after_snapshot()
        return self.after_update() if record_type is RecordType.SHARE_UPDATE else self


def row_type(epochs: SnapshotEpochs, entries: Sequence[TransitionEntry], updates_per_snapshot: int) -> RecordType:
    """Return the type of the row for these transitions."""
    is_persisted = epochs.snapshot_epoch < 0 or any(entry.is_persisted_by_kafka for entry in entries)
    if not is_persisted:
        return RecordType.SHARE_TRANSITIONS
    # Of an update, Kafka would ignore a count that falls (`combined`).
    is_snapshot = epochs.is_snapshot_due(updates_per_snapshot) or any(entry.cause in COUNT_RESETS for entry in entries)
    return RecordType.SHARE_SNAPSHOT if is_snapshot else RecordType.SHARE_UPDATE


def share_partition_row(
    record_type: RecordType,
    snapshot_epoch: int,
    share_partition: SharePartition,
    entries: Sequence[TransitionEntry],
    **columns: Any,
) -> StateRow:
    """Return the row of a share-partition, with further columns from the caller.

    Its state batches are those of Kafka's record: an update has the changes at or above the start offset, a snapshot
    has all batches that Kafka would have stored by then.
    """
    is_snapshot = record_type is RecordType.SHARE_SNAPSHOT
    return constructed(
        StateRow,
        record_type=record_type,
        state_epoch=share_partition.state_epoch,
        snapshot_epoch=snapshot_epoch,
        start_offset=share_partition.start_offset,
        delivery_complete_count=share_partition.delivery_complete_count,
        state_batches=[StateBatchEntry.of(batch) for batch in _state_batches(record_type, share_partition, entries)],
        transitions=list(entries),
        runs=[RunEntry.of(run) for run in share_partition.runs] if is_snapshot else [],
        **columns,
    )


def _state_batches(
    record_type: RecordType, share_partition: SharePartition, entries: Sequence[TransitionEntry]
) -> list[StateBatch]:
    if record_type is RecordType.SHARE_SNAPSHOT:
        return persisted_batches(share_partition.runs)
    return persisted_changes(entries, share_partition.start_offset)


def persisted_changes(entries: Iterable[TransitionEntry], start_offset: int) -> list[StateBatch]:
    """Return the batches of Kafka's record for these transitions, at or above a start offset."""
    changed = (
        StateBatch(entry.first_offset, entry.last_offset, entry.delivery_count, entry.to_state)
        for entry in entries
        if entry.is_persisted_by_kafka
    )
    return combined((), changed, start_offset)
