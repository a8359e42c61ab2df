"""The state table as records of Kafka's topics `__share_group_state` and `__consumer_offsets`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from sharegroup.audit.kafka_state.kafka_group_records import GroupRecords
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.core.state_batches import StateBatch, persisted_batches
from sharegroup.protocol import share_group_records, share_state_records
from sharegroup.protocol.row_payloads import PartitionSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_group_records import OFFSETS_TOPIC, ShareGroupRecord
from sharegroup.protocol.share_state_records import (
    STATE_TOPIC,
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareUpdate,
)

_TOMBSTONE = "Tombstone"


class ExportedRecord(NamedTuple):
    """A record that Kafka would have written, and the time of its row in epoch ms."""

    time_ms: int
    record: ShareStateRecord | ShareGroupRecord

    @property
    def topic(self) -> str:
        """Kafka's topic of the record."""
        return STATE_TOPIC if isinstance(self.record, ShareStateRecord) else OFFSETS_TOPIC


def kafka_records(rows: Iterable[StateRow]) -> Iterator[ExportedRecord]:
    """Yield the records that Kafka would have written, in the order of the rows; it has none for some of them."""
    groups = GroupRecords()
    for row in rows:
        yield from (ExportedRecord(row.time_ms, record) for record in groups.of(row))
        state = to_kafka_record(row)
        if state is not None:
            yield ExportedRecord(row.time_ms, state)


def record_document(exported: ExportedRecord) -> dict[str, Any]:
    """Return a record as a JSON object: its fields by name, and the bytes of key and value in base64.

    Raises:
        KafkaRecordError: a value does not fit its field in Kafka.
    """
    record = exported.record
    if isinstance(record, ShareStateRecord):
        key, value = share_state_records.encoded(record)
        name = type(record.value).__name__ if record.value is not None else _TOMBSTONE
    else:
        key, value = share_group_records.encoded(record)
        name = record.record_type.kafka_name if record.value is not None else _TOMBSTONE
    return {
        "topic": exported.topic,
        "timestamp": exported.time_ms,
        "type": name,
        "key": asdict(record.key),
        "value": None if record.value is None else _fields(record),
        "key_base64": b64encode(key).decode(),
        "value_base64": b64encode(value).decode() if value is not None else None,
    }


def _fields(record: ShareStateRecord | ShareGroupRecord) -> dict[str, Any]:
    """Return the fields of a value, with those of its batches by name."""
    assert record.value is not None
    fields = asdict(record.value)
    if isinstance(record.value, ShareSnapshot | ShareUpdate):
        fields["state_batches"] = [batch._asdict() for batch in record.value.state_batches]
    return fields


def to_kafka_record(row: StateRow) -> ShareStateRecord | None:
    """Return Kafka's record for a row; None when Kafka writes none, as for a row with locks only.

    A share-partition's row of a table snapshot corresponds to Kafka's snapshot of a cold share-partition: it keeps the
    creation time of the state, and has a new write time.
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
    """Return the batches that Kafka stores for records in these states."""
    return tuple(_in_kafka(batch) for batch in persisted_batches(runs))


def kafka_state(state: RecordState) -> RecordState:
    """Return the state under which Kafka 4.3 stores a record: it has no dead-letter queue, and archives at once."""
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
    return batch._replace(delivery_state=kafka_state(batch.delivery_state))
