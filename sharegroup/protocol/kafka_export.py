"""Rows of the state table as the records that Kafka would have written to `__share_group_state`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sharegroup.core.record_state import RecordState
from sharegroup.core.runs import Run
from sharegroup.core.state_batches import StateBatch, persisted_batches
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_state_records import SharePartitionKey, ShareSnapshot, ShareStateRecord, ShareUpdate
from sharegroup.protocol.table_snapshot import PartitionSnapshotPayload


def to_kafka_record(row: StateRow) -> ShareStateRecord | None:
    """The record of a row; None when Kafka would write none, since the row tells of locks only, or of something else.

    A share-partition's row of a table snapshot is what a snapshot of a cold share-partition is in Kafka: it keeps the
    time at which the state was created, and has a new time of writing.
    """
    key = SharePartitionKey(row.group_id, row.topic_id, row.partition)
    match row.record_type:
        case RecordType.SHARE_SNAPSHOT:
            return ShareStateRecord(key, _snapshot(row, row.time_ms, _of_row(row)))
        case RecordType.SHARE_UPDATE:
            return ShareStateRecord(key, _update(row))
        case RecordType.SHARE_TOMBSTONE:
            return ShareStateRecord(key, None)
        case RecordType.TABLE_SNAPSHOT if row.partition >= 0:
            created_ms = PartitionSnapshotPayload.model_validate(row.payload).snapshot_time_ms
            return ShareStateRecord(key, _snapshot(row, created_ms, kafka_batches(entry.run for entry in row.runs)))
    return None


def kafka_batches(runs: Iterable[Run]) -> tuple[StateBatch, ...]:
    """What Kafka has stored of records that are in these states."""
    return tuple(_in_kafka(batch) for batch in persisted_batches(runs))


def kafka_state(state: RecordState) -> RecordState:
    """The state under which Kafka 4.3 stores a record: it knows no dead-letter queue, and archives at once."""
    return RecordState.ARCHIVED if state is RecordState.ARCHIVING else state


def _snapshot(row: StateRow, create_timestamp: int, state_batches: tuple[StateBatch, ...]) -> ShareSnapshot:
    return ShareSnapshot(
        snapshot_epoch=row.snapshot_epoch,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        create_timestamp=create_timestamp,
        write_timestamp=row.time_ms,
        state_batches=state_batches,
    )


def _update(row: StateRow) -> ShareUpdate:
    return ShareUpdate(
        snapshot_epoch=row.snapshot_epoch,
        leader_epoch=row.leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        state_batches=_of_row(row),
    )


def _of_row(row: StateRow) -> tuple[StateBatch, ...]:
    return tuple(_in_kafka(entry.batch) for entry in row.state_batches)


def _in_kafka(batch: StateBatch) -> StateBatch:
    return replace(batch, delivery_state=kafka_state(batch.delivery_state))
