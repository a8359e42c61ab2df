"""Kafka's share coordinator, told of the same requests as the rows tell of: it must write and hold the same.

Kafka's rules are applied a second time, by a port of its own code, so that the engine is not judged by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

from sharegroup.coordinator.share_coordinator_shard import ShareCoordinatorShard
from sharegroup.coordinator.share_state_requests import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    WriteShareGroupState,
)
from sharegroup.core.invariants import Violation
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch, combined
from sharegroup.errors import ApiError
from sharegroup.protocol.kafka_export import kafka_batches, kafka_state, to_kafka_record
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_state_records import SharePartitionKey, ShareSnapshot, ShareStateRecord, ShareUpdate

_SHOWN_BATCHES = 3
_NEVER = 2**31
"""Updates before a snapshot: when one is due is a matter of configuration, and the rows say when there was one."""


class KafkaCoordinator:
    """Follows the rows of one group's share-partitions."""

    def __init__(self) -> None:
        self._partition_count: dict[str, int] = {}
        self._shard = ShareCoordinatorShard(self._partition_count, _NEVER)
        self._updates: dict[SharePartitionKey, list[ShareUpdate]] = {}

    def begin(self, row: StateRow) -> None:
        """Take a snapshot as it is; what was before it is not known."""
        record = to_kafka_record(row)
        if record is not None:
            self._apply(record)

    def initialize(self, row: StateRow) -> list[Violation]:
        """Follow the snapshot by which a state begins, be it the first."""
        key = self._key(row)
        request = InitializeShareGroupState(**_address(key), state_epoch=row.state_epoch, start_offset=row.start_offset)
        try:
            (expected,) = self._shard.initialize(request, row.time_ms)
        except ApiError as error:
            return [_refused(error)]
        # Kafka writes the state first, and the leader reads it then; here one row is both.
        return self._written(row, _with_leader_epoch(expected, row.leader_epoch))

    def write(self, row: StateRow) -> list[Violation]:
        """Follow an update, or the snapshot in its place."""
        key = self._key(row)
        try:
            _, fencing = self._shard.read(
                ReadShareGroupState(**_address(key), leader_epoch=row.leader_epoch), row.time_ms
            )
            for record in fencing:
                self._apply(record)
                self._merge_updates(key)
            (update,) = self._shard.write(
                WriteShareGroupState(
                    **_address(key),
                    state_epoch=row.state_epoch,
                    leader_epoch=row.leader_epoch,
                    start_offset=row.start_offset,
                    delivery_complete_count=row.delivery_complete_count,
                    state_batches=tuple(_changed(row)),
                ),
                row.time_ms,
            )
        except ApiError as error:
            return [_refused(error)]
        if row.record_type is RecordType.SHARE_UPDATE:
            return self._written(row, update)
        self._apply(update)
        return self._written(row, self._snapshot_of(row))

    def delete(self, row: StateRow) -> list[Violation]:
        """Follow the tombstone by which a state ends."""
        expected = self._shard.delete(DeleteShareGroupState(**_address(self._key(row))))
        if not expected:
            return [Violation("tombstone_ends_a_state", "there is no state that it could end")]
        return self._written(row, expected[0])

    def compare(self, row: StateRow, engine: SharePartition) -> list[Violation]:
        """Compare what Kafka would hold with an engine that has replayed the same rows.

        The engine may be further on: Kafka does not write down that a start offset followed the log's.
        """
        key = self._key(row)
        self._merge_updates(key)
        summary = self._shard.read_summary(ReadShareGroupStateSummary(**_address(key)))
        held = self._held(key)
        kept, found = (
            _few(batches, engine.start_offset) for batches in (held.state_batches, kafka_batches(engine.runs))
        )
        differences = [
            (summary.state_epoch != engine.state_epoch, "state epoch", summary.state_epoch, engine.state_epoch),
            (summary.start_offset > engine.start_offset, "start offset", summary.start_offset, engine.start_offset),
            (kept != found, "state batches", kept, found),
        ]
        return [
            Violation("kafka_would_hold_the_same", f"{name}: {_short(there)} there, {_short(here)} here")
            for is_unlike, name, there, here in differences
            if is_unlike
        ]

    def _written(self, row: StateRow, expected: ShareStateRecord) -> list[Violation]:
        record = to_kafka_record(row)
        assert record is not None
        self._apply(record)
        return [
            Violation("kafka_would_write_the_same", f"{name}: {_short(there)} there, {_short(here)} here")
            for name, there, here in _differences(_comparable(expected), _comparable(record))
        ]

    def _snapshot_of(self, row: StateRow) -> ShareStateRecord:
        key = self._key(row)
        held = self._held(key)
        snapshot = replace(
            held,
            snapshot_epoch=held.snapshot_epoch + 1,
            create_timestamp=row.time_ms,
            write_timestamp=row.time_ms,
        )
        return ShareStateRecord(key, snapshot)

    def _apply(self, record: ShareStateRecord) -> None:
        if isinstance(record.value, ShareUpdate):
            self._updates.setdefault(record.key, []).append(record.value)
        else:
            self._updates.pop(record.key, None)
            self._shard.apply(record)

    def _held(self, key: SharePartitionKey) -> ShareSnapshot:
        self._merge_updates(key)
        return self._shard.states[key].persisted

    def _merge_updates(self, key: SharePartitionKey) -> None:
        """Merge all updates so far at once: one by one, each would cost with all that is stored."""
        updates = self._updates.pop(key, [])
        if updates:
            batches = tuple(batch for update in updates for batch in update.state_batches)
            self._shard.apply(ShareStateRecord(key, replace(updates[-1], state_batches=batches)))

    def _key(self, row: StateRow) -> SharePartitionKey:
        # A share-partition that has rows was there.
        self._partition_count[row.topic_id] = max(self._partition_count.get(row.topic_id, 0), row.partition + 1)
        return SharePartitionKey(row.group_id, row.topic_id, row.partition)


def _address(key: SharePartitionKey) -> dict[str, Any]:
    return {"group_id": key.group_id, "topic_id": key.topic_id, "partition": key.partition}


def _refused(error: ApiError) -> Violation:
    return Violation("kafka_would_write_the_same", f"{error.name}: {error.message}")


def _with_leader_epoch(record: ShareStateRecord, leader_epoch: int) -> ShareStateRecord:
    assert isinstance(record.value, ShareSnapshot)
    return replace(record, value=replace(record.value, leader_epoch=leader_epoch))


def _changed(row: StateRow) -> Iterator[StateBatch]:
    """What a leader of Kafka's would have sent of a row's transitions."""
    for entry in row.transitions:
        if entry.transition.is_persisted_by_kafka:
            state = kafka_state(entry.to_state)
            yield StateBatch(entry.first_offset, entry.last_offset, entry.delivery_count, state)


def _few(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Batches as few as they can be, which Kafka's combiner sometimes leaves out; cut at an offset."""
    return combined(combined(batches, (), start_offset), (), start_offset)


def _comparable(record: ShareStateRecord) -> ShareStateRecord:
    """The record with as few batches as there can be."""
    if record.value is None:
        return record
    start_offset = record.value.start_offset
    return replace(
        record, value=replace(record.value, state_batches=tuple(_few(record.value.state_batches, start_offset)))
    )


def _differences(expected: ShareStateRecord, found: ShareStateRecord) -> Iterator[tuple[str, object, object]]:
    """(Field, value there, value here) of two records of one share-partition, where they differ."""
    there, here = expected.value, found.value
    if there is None or here is None or type(there) is not type(here):
        if there != here:
            yield "record", type(there).__name__, type(here).__name__
        return
    for field in fields(there):
        values = getattr(there, field.name), getattr(here, field.name)
        if values[0] != values[1]:
            yield field.name, *values


def _short(value: object) -> object:
    return f"{len(value)} batches" if isinstance(value, list | tuple) and len(value) > _SHOWN_BATCHES else value
