"""Kafka's share coordinator, with the requests that the rows correspond to: it must write and hold the same.

It fences, numbers and combines by the rules that made the rows, which Kafka's vectors test. Independently of the
engine, it merges the written batches, as Kafka's does: so the engine does not check itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

from sharegroup.audit.kafka_state.kafka_records import kafka_batches, kafka_state, to_kafka_record
from sharegroup.coordinator.share_coordinator_shard import ShareCoordinatorShard
from sharegroup.core.cause_rules import COUNT_RESETS
from sharegroup.core.invariants import Violation
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch, combined
from sharegroup.errors import ApiError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_state_records import SharePartitionKey, ShareSnapshot, ShareStateRecord, ShareUpdate

_SHOWN_BATCHES = 3
_NEVER = 2**31
"""Updates before a snapshot: the configuration decides when one is due, and the rows have it."""


class KafkaCoordinator:
    """Follows the rows of one group's share-partitions."""

    def __init__(self) -> None:
        self._partition_count: dict[str, int] = {}
        self._shard = ShareCoordinatorShard(self._partition_count, _NEVER)
        self._updates: dict[SharePartitionKey, list[ShareUpdate]] = {}

    def begin(self, row: StateRow) -> None:
        """Begin with a snapshot as it is; the rows before it are not known."""
        record = to_kafka_record(row)
        if record is not None:
            self._apply(record)

    def initialize(self, row: StateRow) -> list[Violation]:
        """Follow the snapshot by which a state begins, be it the first."""
        try:
            (expected,) = self._shard.initialize(self._key(row), row.state_epoch, row.start_offset, row.time_ms)
        except ApiError as error:
            return [_refused(error)]
        # Kafka writes the state first, and the leader reads it then; here one row is both.
        return self._written(row, _with_leader_epoch(expected, row.leader_epoch))

    def write(self, row: StateRow) -> list[Violation]:
        """Follow an update, or the snapshot instead of one."""
        if any(entry.cause in COUNT_RESETS for entry in row.transitions):
            # Kafka has no way to lower a count but a new state: its next snapshot would be this one.
            self.begin(row)
            return []
        key = self._key(row)
        change = ShareUpdate(
            snapshot_epoch=row.snapshot_epoch,
            leader_epoch=row.leader_epoch,
            start_offset=row.start_offset,
            delivery_complete_count=row.delivery_complete_count,
            state_batches=tuple(_changed(row)),
        )
        try:
            # A leader reads when it begins: the epoch of a later write is known.
            state = self._shard.states.get(key)
            if state is None or state.leader_epoch_fence != row.leader_epoch:
                for record in self._shard.read(key, row.leader_epoch, row.time_ms)[1]:
                    self._apply(record)
                    self._merge_updates(key)
            (update,) = self._shard.write(key, row.state_epoch, change, row.time_ms)
        except ApiError as error:
            return [_refused(error)]
        if row.record_type is RecordType.SHARE_UPDATE:
            return self._written(row, update)
        self._apply(update)
        return self._written(row, self._snapshot_of(row))

    def pass_over(
        self,
        row: StateRow,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        state_batches: Iterable[StateBatch],
    ) -> None:
        """Follow several updates after a snapshot, of which it is known that it would have written the same.

        Args:
            row: the snapshot.
            leader_epoch: epoch of the last one.
            start_offset: start offset of the last one.
            delivery_complete_count: that of the last one.
            state_batches: batches of all of them.
        """
        key = self._key(row)
        batches = tuple(batch._replace(delivery_state=kafka_state(batch.delivery_state)) for batch in state_batches)
        update = ShareUpdate(
            snapshot_epoch=row.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=batches,
        )
        self._apply(ShareStateRecord(key, update))
        if self._shard.states[key].leader_epoch_fence != leader_epoch:
            self._merge_updates(key)

    def delete(self, row: StateRow) -> list[Violation]:
        """Follow the tombstone by which a state ends."""
        expected = self._shard.delete(self._key(row))
        if not expected:
            return [Violation("tombstone_ends_a_state", "there is no state that it could end")]
        return self._written(row, expected[0])

    def compare(self, row: StateRow, engine: SharePartition) -> list[Violation]:
        """Compare Kafka's state with an engine that has replayed the same rows.

        The engine may be further on: Kafka does not write down that a start offset followed the log's.
        """
        key = self._key(row)
        held = self._held(key)
        expected, actual = (
            _few(batches, engine.start_offset) for batches in (held.state_batches, kafka_batches(engine.runs))
        )
        differences = [
            (held.state_epoch != engine.state_epoch, "state epoch", held.state_epoch, engine.state_epoch),
            (held.start_offset > engine.start_offset, "start offset", held.start_offset, engine.start_offset),
            (expected != actual, "state batches", expected, actual),
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
        if record == expected:
            return []
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


def _refused(error: ApiError) -> Violation:
    return Violation("kafka_would_write_the_same", f"{error.name}: {error.message}")


def _with_leader_epoch(record: ShareStateRecord, leader_epoch: int) -> ShareStateRecord:
    assert isinstance(record.value, ShareSnapshot)
    return replace(record, value=replace(record.value, leader_epoch=leader_epoch))


def _changed(row: StateRow) -> Iterator[StateBatch]:
    """Yield the batches that a leader of Kafka's would have sent for a row's transitions."""
    for entry in row.transitions:
        if entry.transition.is_persisted_by_kafka:
            state = kafka_state(entry.to_state)
            yield StateBatch(entry.first_offset, entry.last_offset, entry.delivery_count, state)


def _few(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Combine batches as far as possible, further than Kafka's combiner sometimes does; cut at an offset."""
    return combined(combined(batches, (), start_offset), (), start_offset)


def _comparable(record: ShareStateRecord) -> ShareStateRecord:
    """Return a record with its batches combined as far as possible."""
    if record.value is None:
        return record
    start_offset = record.value.start_offset
    return replace(
        record, value=replace(record.value, state_batches=tuple(_few(record.value.state_batches, start_offset)))
    )


def _differences(expected: ShareStateRecord, actual: ShareStateRecord) -> Iterator[tuple[str, object, object]]:
    """Yield field, expected and actual value where two records of one share-partition differ."""
    there, here = expected.value, actual.value
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
