"""The history of a Kafka cluster's share groups as rows of a state table, so that every audit works on it.

Each record is a row, in the order of `KafkaHistory`; its number takes the role of the offset in the request log. Kafka
stores less than a processor, so the rows have what follows from its records:

- Kafka stores the states that acknowledgements and ended locks lead to. A row has transitions for what changed of them,
  all with cause `imported`: who held a record, from when and until when, and why it changed is not known, and no
  record is ever ACQUIRED.
- Kafka's stored start offset lags behind the finished records; a row's has passed them. What Kafka stored is in the
  row's payload (`origin`), with the topic, partition and offset of its record.
- Kafka counts the records of aborted transactions as finished but does not store them; here they stay AVAILABLE with
  delivery count 0. `ImportSummary.unnamed_finished_count` is their number.
- A share-partition whose first records were deleted begins with what is left.

The engine holds the state meanwhile, and all columns follow from it, as live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sharegroup.audit.kafka_state.kafka_group_import import ImportedGroups
from sharegroup.audit.kafka_state.kafka_history import HistoryRecord, KafkaHistory, UnreadRecord
from sharegroup.coordinator.share_coordinator import SnapshotEpochs, share_partition_row
from sharegroup.core.record_state import Cause
from sharegroup.core.records import StartOffsetMoved, Transition
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import NO_START_OFFSET, StateBatch, combined, persisted_batches
from sharegroup.protocol.row_payloads import SharePartitionPayload, StateOrigin
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.protocol.share_state_records import SharePartitionKey, ShareSnapshot, ShareStateRecord, ShareUpdate


@dataclass(slots=True)
class ImportedPartition:
    """A share-partition after the records so far.

    Attributes:
        share_partition: its state; the start offset is -1 while Kafka has not stored one.
        epochs: its place between two snapshots.
        stored_start_offset: the start offset that Kafka has stored.
        stored_complete_count: the finished records at or above it, as Kafka counts them; -1 when not known.
    """

    share_partition: SharePartition
    epochs: SnapshotEpochs
    stored_start_offset: int = NO_START_OFFSET
    stored_complete_count: int = -1

    @property
    def unnamed_finished_count(self) -> int:
        """Finished records that Kafka counts, and that no stored batch has."""
        if self.stored_complete_count < 0 or self.stored_start_offset == NO_START_OFFSET:
            return 0
        engine = self.share_partition
        counted = self.stored_start_offset + self.stored_complete_count
        return max(counted - engine.start_offset - engine.delivery_complete_count, 0)


@dataclass(slots=True)
class ImportSummary:
    """The result of an import, and what is not known after it.

    Attributes:
        record_counts: Kafka's topic → its records.
        row_count: rows that they became.
        partition_count: share-partitions that have a state at the end.
        unread: records that could not be decoded.
        unknown_fields: records with tagged fields of a later release.
        other_group_count: records of groups of other kinds.
        unnamed_topic_ids: topics whose names no record has; they are named by their ids.
        pruned: share-partitions whose first records Kafka has deleted, as group/topic-partition.
        unnamed_finished_count: see `ImportedPartition`; over all share-partitions.
    """

    record_counts: dict[str, int] = field(default_factory=dict)
    row_count: int = 0
    group_ids: set[str] = field(default_factory=set)
    partition_count: int = 0
    unread: list[UnreadRecord] = field(default_factory=list)
    unknown_fields: list[UnreadRecord] = field(default_factory=list)
    other_group_count: int = 0
    unnamed_topic_ids: set[str] = field(default_factory=set)
    pruned: list[str] = field(default_factory=list)
    unnamed_finished_count: int = 0


class KafkaImport:
    """Makes the rows of a history.

    Args:
        topic_names: topic id → name, besides those in the history.
        group_id: import this group only; None is all.
    """

    def __init__(
        self, history: KafkaHistory, topic_names: Mapping[str, str] | None = None, group_id: str | None = None
    ) -> None:
        self._history = history
        self.names = {**(topic_names or {}), **history.topic_names}
        self._group_id = group_id
        self._groups = ImportedGroups()
        self.partitions: dict[SharePartitionKey, ImportedPartition] = {}
        self.summary = ImportSummary(
            record_counts=dict(history.record_counts),
            unread=history.unread,
            unknown_fields=history.unknown_fields,
            other_group_count=history.other_group_count,
        )

    def rows(self) -> Iterator[StateRow]:
        """Yield the rows, once; the summary is complete after the last one."""
        time_ms = 0
        for record in self._history.records():
            time_ms = record.timestamp_ms
            group_id = record.record.key.group_id
            if self._group_id is None or group_id == self._group_id:
                yield from self._rows_of(record, group_id)
        for group_id, payload in self._groups.waiting():
            yield self._group_row(group_id, payload, time_ms)
        self.summary.partition_count = len(self.partitions)
        self.summary.unnamed_finished_count = sum(each.unnamed_finished_count for each in self.partitions.values())

    def members(self, group_id: str) -> frozenset[str]:
        """Return the members of a group after the rows so far."""
        return self._groups.members(group_id)

    def _rows_of(self, record: HistoryRecord, group_id: str) -> Iterator[StateRow]:
        self.summary.group_ids.add(group_id)
        if isinstance(record.record, ShareStateRecord):
            row = self._state_row(record, record.record)
            if row is not None:
                self.summary.row_count += 1
                yield row
            return
        payload = self._groups.payload(record.record, record.source)
        if payload is not None:
            yield self._group_row(group_id, payload, record.timestamp_ms)

    def _group_row(self, group_id: str, payload: dict[str, Any], time_ms: int) -> StateRow:
        self.summary.row_count += 1
        return StateRow(
            record_type=RecordType.GROUP_METADATA,
            group_id=group_id,
            request_partition=0,
            request_offset=self.summary.row_count - 1,
            time_ms=time_ms,
            payload=payload,
        )

    def _state_row(self, record: HistoryRecord, state: ShareStateRecord) -> StateRow | None:
        """Return the row of a record; None for a tombstone of a state that is not known."""
        known = self.partitions.get(state.key)
        if state.value is None:
            return None if known is None else self._tombstone(state.key, record.timestamp_ms)
        is_new = known is None or (
            isinstance(state.value, ShareSnapshot) and _starts_again(known.share_partition, state.value)
        )
        if known is None or is_new:
            known = self._begin(state.key, state.value)
            record_type = RecordType.SHARE_SNAPSHOT
        else:
            is_snapshot = isinstance(state.value, ShareSnapshot)
            record_type = RecordType.SHARE_SNAPSHOT if is_snapshot else RecordType.SHARE_UPDATE
            known.epochs = SnapshotEpochs(state.value.snapshot_epoch) if is_snapshot else known.epochs.after_update()
        origin = StateOrigin(
            source=record.source,
            start_offset=state.value.start_offset,
            delivery_complete_count=state.value.delivery_complete_count,
            leader_epoch=state.value.leader_epoch,
            is_new_state=is_new,
        )
        return self._changed_row(record, state.key, known, state.value, record_type, origin)

    def _begin(self, key: SharePartitionKey, value: ShareSnapshot | ShareUpdate) -> ImportedPartition:
        is_first = key not in self.partitions
        is_whole = isinstance(value, ShareSnapshot) and not value.snapshot_epoch and not value.state_batches
        if is_first and not is_whole:
            self.summary.pruned.append(f"{key.group_id}/{self._name(key.topic_id)}-{key.partition}")
        state_epoch = value.state_epoch if isinstance(value, ShareSnapshot) else 0
        engine = SharePartition(value.start_offset, (), state_epoch)
        known = self.partitions[key] = ImportedPartition(engine, SnapshotEpochs(value.snapshot_epoch))
        return known

    def _changed_row(
        self,
        record: HistoryRecord,
        key: SharePartitionKey,
        known: ImportedPartition,
        value: ShareSnapshot | ShareUpdate,
        record_type: RecordType,
        origin: StateOrigin,
    ) -> StateRow:
        engine = known.share_partition
        transitions = list(_transitions(engine, value))
        unexplained_start = _apply(engine, transitions, value.start_offset)
        if value.start_offset != NO_START_OFFSET:
            known.stored_start_offset = value.start_offset
            known.stored_complete_count = value.delivery_complete_count
        offset = self.summary.row_count
        return share_partition_row(
            record_type,
            known.epochs.snapshot_epoch,
            engine,
            [TransitionEntry.of(transition, record.timestamp_ms, offset, "") for transition in transitions],
            payload=SharePartitionPayload(log_start_offset=unexplained_start, origin=origin).model_dump(mode="json"),
            **self._address(key, record.timestamp_ms),
        )

    def _tombstone(self, key: SharePartitionKey, time_ms: int) -> StateRow:
        known = self.partitions.pop(key)
        return StateRow(
            record_type=RecordType.SHARE_TOMBSTONE,
            state_epoch=known.share_partition.state_epoch,
            snapshot_epoch=known.epochs.snapshot_epoch,
            **self._address(key, time_ms),
        )

    def _address(self, key: SharePartitionKey, time_ms: int) -> dict[str, Any]:
        return {
            "group_id": key.group_id,
            "topic_id": key.topic_id,
            "topic": self._name(key.topic_id),
            "partition": key.partition,
            "request_partition": 0,
            "request_offset": self.summary.row_count,
            "time_ms": time_ms,
        }

    def _name(self, topic_id: str) -> str:
        name = self.names.get(topic_id)
        if name is None:
            self.summary.unnamed_topic_ids.add(topic_id)
        return name or topic_id


def _starts_again(engine: SharePartition, snapshot: ShareSnapshot) -> bool:
    """Return True if a snapshot does not continue the state before it: an administrator has reset the offsets.

    A reset has a higher state epoch, but not if the group has been empty since an earlier reset.
    """
    if snapshot.state_epoch > engine.state_epoch:
        return True
    batches = combined((), snapshot.state_batches, snapshot.start_offset)
    runs = (Run(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches)
    start_offset = SharePartition(snapshot.start_offset, runs).start_offset
    if start_offset < engine.start_offset:
        return True
    before = combined((), persisted_batches(engine.runs), start_offset)
    # What was stored before can only have gone up.
    return combined(combined(before, batches, start_offset), (), start_offset) != combined(batches, (), start_offset)


def _transitions(engine: SharePartition, value: ShareSnapshot | ShareUpdate) -> Iterator[Transition]:
    """Yield what a record's batches change; as in Kafka, the batch of the higher count, then state, applies."""
    floor = max(engine.start_offset, value.start_offset)
    for batch in combined((), value.state_batches, floor):
        for run in engine.runs.overlapping(batch.first_offset, batch.last_offset):
            if batch.rank > (run.delivery_count, run.state):
                yield _transition(batch.cut(run.first_offset, run.last_offset), run)
        if batch.last_offset >= engine.next_offset:
            yield _transition(batch.cut(max(batch.first_offset, engine.next_offset), batch.last_offset), None)


def _transition(batch: StateBatch, before: Run | None) -> Transition:
    from_state = before.state if before is not None else None
    return Transition(
        batch.first_offset,
        batch.last_offset,
        from_state,
        batch.delivery_state,
        batch.delivery_count,
        "",
        0,
        Cause.IMPORTED,
    )


def _apply(engine: SharePartition, transitions: Iterable[Transition], start_offset: int) -> int:
    """Apply a record's changes; return its start offset if finished records do not explain it, else -1.

    Such a start offset is the first one of the share-partition, or has followed the log's start, or has passed records
    of aborted transactions.
    """
    moved = NO_START_OFFSET
    for transition in transitions:
        is_behind_a_hole = transition.from_state is None and transition.first_offset > engine.next_offset
        if is_behind_a_hole and start_offset > engine.start_offset:
            moved = _move(engine, start_offset)
        engine.apply(transition)
        engine.pass_finished()
    return _move(engine, start_offset) if start_offset > engine.start_offset else moved


def _move(engine: SharePartition, start_offset: int) -> int:
    engine.apply(StartOffsetMoved(start_offset, Cause.LOG_START))
    engine.pass_finished()
    return start_offset
