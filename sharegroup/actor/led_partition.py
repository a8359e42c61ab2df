"""A share-partition as its leader holds it: the engine, its epochs, and the journal of the cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sharegroup.actor.last_requests import LastRequests
from sharegroup.coordinator.share_coordinator import SnapshotEpochs, row_type, share_partition_row
from sharegroup.core.cause_rules import HOLDER_ACTS
from sharegroup.core.open_writes import WriteClosed, WriteOpened
from sharegroup.core.record_state import Cause
from sharegroup.core.records import SharePartitionRecord, Transition
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.row_payloads import OpenWriteEntry, SharePartitionPayload, StateOrigin
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry

_REQUEST = "AlterShareGroupOffsets"
"""Origin of a state that an administrator has imported."""


class LedPartition:
    """A share-partition that this leader serves.

    Attributes:
        is_ending: True while its state is to end, and waits until its open writes are decided: nothing is acquired.

    Args:
        epochs: the position of its durable state between snapshots.
        is_new_state: True if the state replaces an older one, and has no row yet.
        rejected: its ARCHIVING records that were rejected.
    """

    def __init__(
        self,
        topic: str,
        topic_id: str,
        partition: int,
        share_partition: SharePartition,
        epochs: SnapshotEpochs,
        *,
        is_new_state: bool = False,
        rejected: RejectedRecords | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.key = (topic_id, partition)
        self.partition = partition
        self.share_partition = share_partition
        self.epochs = epochs
        self.rejected = rejected or RejectedRecords()
        self.is_ending = False
        self._journal: list[TransitionEntry] = []
        self._opened: list[WriteOpened] = []
        self._closed: list[int] = []
        self._log_start_offset = -1
        self._is_new_state = is_new_state or epochs.snapshot_epoch < 0
        self._start_offset_written = share_partition.start_offset

    def record(
        self,
        records: Iterable[SharePartitionRecord],
        time_ms: int,
        request_offset: int,
        reason_at: Callable[[int], str] = lambda _: "",
    ) -> None:
        """Collect records that the engine applied, for the cut's row."""
        for record in records:
            self.rejected.note(record)
            if isinstance(record, Transition):
                self._journal.append(
                    TransitionEntry.of(record, time_ms, request_offset, reason_at(record.first_offset))
                )
            elif isinstance(record, WriteOpened):
                self._opened.append(record)
            elif isinstance(record, WriteClosed):
                self._closed.append(record.version)
            elif record.cause is Cause.LOG_START:
                self._log_start_offset = record.start_offset

    def take_row(self, updates_per_snapshot: int, last_requests: LastRequests) -> StateRow | None:
        """Return the row for all changes since the last call, None when there were none."""
        start_offset = self.share_partition.start_offset
        is_unchanged = not self._journal and not self._closed and start_offset == self._start_offset_written
        if is_unchanged and not self._is_new_state:
            return None
        if self._is_new_state:
            record_type = RecordType.SHARE_SNAPSHOT
        else:
            record_type = row_type(self.epochs, self._journal, updates_per_snapshot)
        self.epochs = self.epochs.after(record_type)
        row = share_partition_row(
            record_type,
            self.epochs.snapshot_epoch,
            self.share_partition,
            self._journal,
            topic_id=self.topic_id,
            topic=self.topic,
            partition=self.partition,
            payload=self._payload(record_type, last_requests),
        )
        self._journal, self._opened, self._closed, self._log_start_offset = [], [], [], -1
        self._start_offset_written, self._is_new_state = start_offset, False
        return row

    def _payload(self, record_type: RecordType, last_requests: LastRequests) -> dict[str, Any]:
        is_snapshot = record_type is RecordType.SHARE_SNAPSHOT
        rejected = self.rejected.ranges(self.share_partition.runs) if is_snapshot else []
        requesters = last_requests.of(entry.member_id for entry in self._journal if entry.cause in HOLDER_ACTS)
        is_imported = any(entry.cause is Cause.IMPORTED for entry in self._journal)
        opened = list(self.share_partition.open_writes.values()) if is_snapshot else self._opened
        has_writes = bool(opened or self._closed)
        if self._log_start_offset < 0 and not rejected and not requesters and not is_imported and not has_writes:
            return {}
        payload = constructed(
            SharePartitionPayload,
            log_start_offset=self._log_start_offset,
            rejected=rejected,
            last_requests=requesters,
            origin=StateOrigin(source=_REQUEST, is_new_state=True) if is_imported else None,
            open_writes=[OpenWriteEntry.of(each) for each in opened],
            closed_writes=self._closed,
        )
        return payload.model_dump(mode="json")

    def tombstone(self) -> StateRow:
        """Return the row that ends the state, to be written after all its other rows."""
        return StateRow(
            record_type=RecordType.SHARE_TOMBSTONE,
            topic_id=self.topic_id,
            topic=self.topic,
            partition=self.partition,
            state_epoch=self.share_partition.state_epoch,
            snapshot_epoch=self.epochs.snapshot_epoch,
        )
