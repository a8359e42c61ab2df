"""Rows of the state table as the records that Kafka would have written to `__share_group_state`."""

from __future__ import annotations

from dataclasses import replace

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch
from sharegroup.protocol.rows import RecordType, StateBatchEntry, StateRow
from sharegroup.protocol.share_state_records import SharePartitionKey, ShareSnapshot, ShareStateRecord, ShareUpdate


def to_kafka_record(row: StateRow) -> ShareStateRecord | None:
    """The record of a row; None when Kafka would write none, since the row tells of locks only, or of something else.

    Kafka knows no dead-letter queue before 4.4: what is being archived is archived there.
    """
    key = SharePartitionKey(row.group_id, row.topic_id, row.partition)
    batches = tuple(_without_dead_letters(entry) for entry in row.state_batches)
    match row.record_type:
        case RecordType.SHARE_SNAPSHOT:
            snapshot = ShareSnapshot(
                snapshot_epoch=row.snapshot_epoch,
                state_epoch=row.state_epoch,
                leader_epoch=row.leader_epoch,
                start_offset=row.start_offset,
                delivery_complete_count=row.delivery_complete_count,
                create_timestamp=row.time_ms,
                write_timestamp=row.time_ms,
                state_batches=batches,
            )
            return ShareStateRecord(key, snapshot)
        case RecordType.SHARE_UPDATE:
            update = ShareUpdate(
                snapshot_epoch=row.snapshot_epoch,
                leader_epoch=row.leader_epoch,
                start_offset=row.start_offset,
                delivery_complete_count=row.delivery_complete_count,
                state_batches=batches,
            )
            return ShareStateRecord(key, update)
    return None


def _without_dead_letters(entry: StateBatchEntry) -> StateBatch:
    batch = entry.batch
    if batch.delivery_state is RecordState.ARCHIVING:
        return replace(batch, delivery_state=RecordState.ARCHIVED)
    return batch
