"""Rows as Kafka's records: a share coordinator that reads them holds what the engine has, but for its locks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given

from sharegroup.audit.kafka_state.kafka_records import to_kafka_record
from sharegroup.coordinator.share_coordinator_shard import ShareCoordinatorShard, ShareGroupState
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.core.state_batches import StateBatch, combined, persisted_batches
from sharegroup.protocol.row_payloads import PartitionSnapshotPayload
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatchEntry, StateRow
from sharegroup.protocol.share_state_records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareUpdate,
    decoded,
    encoded,
)
from tests.state.share_partition_walk import BATCHES, UPDATES_PER_SNAPSHOT, Key, Operation, Walk

TOPIC_ID = "EREREREREREiIiIiIiIiIg"


def read_by_kafka(rows: Iterable[StateRow]) -> dict[Key, ShareGroupState]:
    """The state that a share coordinator makes of the bytes that the rows are exported as."""
    shard = ShareCoordinatorShard({TOPIC_ID: 2}, UPDATES_PER_SNAPSHOT)
    for row in rows:
        record = to_kafka_record(row.model_copy(update={"topic_id": TOPIC_ID}))
        if record is not None:
            shard.apply(decoded(*encoded(record)))
    return {(key.group_id, key.partition): state for key, state in shard.states.items()}


def at_or_above(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """The batches as few as they can be, which Kafka's combiner sometimes leaves out; cut at an offset."""
    return combined(combined(batches, (), start_offset), (), start_offset)


@given(batches=BATCHES)
def test_the_records_add_up_to_what_the_engine_has(batches: list[list[Operation]]) -> None:
    walk = Walk()
    rows = [row for batch in batches for row in walk.batch(batch)]
    states = read_by_kafka(rows)
    positions = walk.positions()
    assert states.keys() == positions.keys()
    for key, position in positions.items():
        persisted = states[key].persisted
        assert at_or_above(persisted.state_batches, position.start_offset) == persisted_batches(position.runs)
        assert persisted.start_offset <= position.start_offset
        assert (persisted.snapshot_epoch, states[key].updates_since_snapshot, persisted.state_epoch) == (
            position.epochs.snapshot_epoch,
            position.epochs.updates_since_snapshot,
            position.state_epoch,
        )


@given(batches=BATCHES)
def test_each_record_tells_where_the_share_partition_starts_and_how_much_is_finished(
    batches: list[list[Operation]],
) -> None:
    walk = Walk()
    for batch in batches:
        rows = walk.batch(batch)
        positions = walk.positions()
        for row in rows:
            record = to_kafka_record(row)
            if record is not None and record.value is not None:
                position = positions[row.group_id, row.partition]
                assert (record.value.start_offset, record.value.delivery_complete_count) == (
                    position.start_offset,
                    position.delivery_complete_count,
                )


@pytest.mark.parametrize(
    "record_type",
    sorted(set(RecordType) - {RecordType.SHARE_SNAPSHOT, RecordType.SHARE_UPDATE, RecordType.SHARE_TOMBSTONE}),
)
def test_kafka_writes_nothing_of_what_it_keeps_in_memory_or_elsewhere(record_type: RecordType) -> None:
    assert to_kafka_record(StateRow(record_type=record_type)) is None


ADDRESS: dict[str, Any] = {"group_id": "orders", "topic_id": TOPIC_ID, "partition": 1}


def test_a_state_that_ends_is_a_tombstone() -> None:
    row = StateRow(record_type=RecordType.SHARE_TOMBSTONE, **ADDRESS, state_epoch=2, snapshot_epoch=5)
    assert to_kafka_record(row) == ShareStateRecord(SharePartitionKey("orders", TOPIC_ID, 1), None)


def test_a_table_snapshot_is_the_snapshot_of_a_cold_share_partition() -> None:
    """It keeps when the state was created; what Kafka does not store of it is left out."""
    payload = PartitionSnapshotPayload(updates_since_snapshot=4, request_offset=9, snapshot_time_ms=1_000)
    runs = [Run(5, 6, RecordState.ACQUIRED, 1, "anna", 9_000), Run(7, 9, RecordState.AVAILABLE, 2)]
    row = StateRow(
        record_type=RecordType.TABLE_SNAPSHOT,
        **ADDRESS,
        time_ms=301_000,
        leader_epoch=7,
        state_epoch=2,
        snapshot_epoch=3,
        start_offset=5,
        delivery_complete_count=0,
        runs=[RunEntry.of(run) for run in runs],
        payload=payload.model_dump(mode="json"),
    )
    record = to_kafka_record(row)
    assert record is not None
    assert record.value == ShareSnapshot(
        snapshot_epoch=3,
        state_epoch=2,
        leader_epoch=7,
        start_offset=5,
        delivery_complete_count=0,
        create_timestamp=1_000,
        write_timestamp=301_000,
        state_batches=(StateBatch(7, 9, 2, RecordState.AVAILABLE),),
    )


def test_what_waits_for_its_dead_letter_is_archived_in_kafka() -> None:
    batch = StateBatch(0, 4, 5, RecordState.ARCHIVING)
    row = StateRow(
        record_type=RecordType.SHARE_UPDATE,
        group_id="orders",
        topic_id=TOPIC_ID,
        partition=1,
        leader_epoch=7,
        snapshot_epoch=2,
        start_offset=0,
        delivery_complete_count=0,
        state_batches=[StateBatchEntry.of(batch)],
    )
    record = to_kafka_record(row)
    assert record is not None
    assert record.key == SharePartitionKey("orders", TOPIC_ID, 1)
    assert record.value == ShareUpdate(
        snapshot_epoch=2,
        leader_epoch=7,
        start_offset=0,
        delivery_complete_count=0,
        state_batches=(StateBatch(0, 4, 5, RecordState.ARCHIVED),),
    )
