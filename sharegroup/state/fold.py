"""The fold of the state table's rows into the present state, shared by recovery, quarantine and audits.

A group is the fold of its rows, and nothing else: what a processor has in memory is the fold of all rows that it has
committed. So a takeover folds, and continues; a group whose actors failed is folded again; an audit folds up to any
marker and compares. It is pure, and follows four rules:

1. The order of rows comes from their columns, never from their position in the table: rows follow the messages of the
   request log, and a table snapshot follows the last message in it (`fold_order`).
2. A snapshot replaces the state of its share-partition, a table snapshot that of its group. All other rows change it:
   they have the transitions, records or status that a message caused.
3. State changes only by applying records, with the same methods as live: `SharePartition.apply`, `GroupState.apply`.
4. A row that does not fit the rows before it is an error: the table lacks rows, or has another writer's.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import ValidationError

from sharegroup.coordinator.group_state import GroupState
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.open_writes import WriteClosed, WriteOpened
from sharegroup.core.records import SharePartitionRecord, StartOffsetMoved
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import StateTableError
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import GroupRecord, ShareGroupRemoved, group_record
from sharegroup.protocol.row_payloads import (
    GroupSnapshotPayload,
    GroupStatus,
    GroupStatusPayload,
    LastRequest,
    opened_writes,
)
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.schema import StoredRows

SHARE_PARTITION_TYPES = frozenset(
    {
        RecordType.SHARE_SNAPSHOT,
        RecordType.SHARE_UPDATE,
        RecordType.SHARE_TRANSITIONS,
        RecordType.SHARE_TOMBSTONE,
    }
)

CHANGE_TYPES = SHARE_PARTITION_TYPES | {RecordType.GROUP_METADATA, RecordType.GROUP_STATUS}
"""Types of rows that change the state of a group; a table snapshot repeats it."""

_LAST_TYPES = frozenset({RecordType.GROUP_METADATA, RecordType.GROUP_STATUS, RecordType.SHARE_TOMBSTONE})
"""Types of rows after which a group may have no state left."""


MAX_LAST_REQUESTS = 4_000
"""Members of a group of which a fold keeps the last request, if the group itself does not have half as many."""


@dataclass(slots=True)
class FoldedPartition:
    """The state of a share-partition after its rows.

    Attributes:
        share_partition: its state machine.
        epochs: the number of its last snapshot, and the ShareUpdate rows since then.
        request_offset: the last message that its last row reflects.
        snapshot_time_ms: time of its last snapshot; epoch ms.
        rejected: its rejected records among those that are ARCHIVING.
    """

    topic_id: str
    topic: str
    partition: int
    share_partition: SharePartition
    epochs: SnapshotEpochs
    request_offset: int
    snapshot_time_ms: int
    rejected: RejectedRecords = field(default_factory=RejectedRecords)

    @property
    def state_epoch(self) -> int:
        """Return the fencing epoch of its durable state."""
        return self.share_partition.state_epoch


@dataclass(slots=True)
class FoldedGroup:
    """The state of a group after its rows.

    Attributes:
        request_partition: the group's partition of the request log; -1 before its first row.
        request_offset: the last message that any row of the group reflects.
        leader_epoch: epoch of the processor that wrote the last row; -1 before the first.
        metadata: members, epochs, topics, configuration.
        partitions: (topic id, partition) → share-partition.
        status: the last status row of each actor that has one.
        last_requests: member id → its last request with a durable effect, the oldest first.
    """

    group_id: str
    request_partition: int = -1
    request_offset: int = -1
    leader_epoch: int = -1
    metadata: GroupState = field(default_factory=GroupState)
    partitions: dict[tuple[str, int], FoldedPartition] = field(default_factory=dict)
    status: dict[ActorRole, GroupStatusPayload] = field(default_factory=dict)
    last_requests: dict[str, LastRequest] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Return True if the group is dead, and has no state to resume and no request to respond to."""
        return self.metadata.is_gone and not self.partitions and not self.failures

    @property
    def failures(self) -> dict[ActorRole, str]:
        """Return role → reason of each quarantined actor; empty when the group works."""
        return {role: row.reason for role, row in self.status.items() if row.status is GroupStatus.FAILED}

    @property
    def dead_letter_failure(self) -> str:
        """Return why the group's dead-letter records cannot be written; empty when they can."""
        row = self.status.get(ActorRole.LEADER)
        return row.reason if row is not None and row.status is GroupStatus.DEGRADED else ""


@dataclass(slots=True)
class FoldedState:
    """All groups by id, except those without any state left."""

    groups: dict[str, FoldedGroup] = field(default_factory=dict)


def fold_order(row: StateRow) -> tuple[int, int, bool, int, int, int, bool]:
    """Return the sort key of a row: rows follow the request log; a table snapshot follows the last message in it.

    Where a message ends a state, the changes of the state come first, then its tombstone, then the rows after it.
    """
    is_table_snapshot = row.record_type is RecordType.TABLE_SNAPSHOT
    return (
        row.request_partition,
        row.request_offset,
        is_table_snapshot,
        row.leader_epoch,
        row.commit_id,
        0 if is_table_snapshot else row.state_epoch,
        row.record_type is RecordType.SHARE_TOMBSTONE,
    )


def fold(rows: Iterable[StateRow], until: Mapping[int, int] | None = None) -> FoldedState:
    """Return the state after all rows.

    Args:
        rows: rows in any order; those that belong to no group are skipped.
        until: request partition → end offset, exclusive, as in a CommitMarker; later rows, and rows of partitions
            without an end offset, are left out. None takes all.

    Raises:
        StateTableError: a row contradicts the rows before it.
    """
    state = FoldedState()
    with without_collections():
        for row in rows if isinstance(rows, StoredRows) else sorted(rows, key=fold_order):
            if row.group_id and (until is None or row.request_offset < until.get(row.request_partition, 0)):
                advance(state, row)
    return state


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable Python's cycle collector meanwhile: it would scan millions of new objects in use again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def advance(state: FoldedState, row: StateRow) -> None:
    """Apply the next row of a group to the state.

    Raises:
        StateTableError: the row contradicts the rows before it.
    """
    group = state.groups.get(row.group_id)
    if group is None:
        group = state.groups[row.group_id] = FoldedGroup(row.group_id)
    advance_group(group, row)
    if row.record_type in _LAST_TYPES and group.is_gone:
        del state.groups[row.group_id]


def advance_group(group: FoldedGroup, row: StateRow) -> None:
    """Apply the next row to its group.

    Raises:
        StateTableError: the row contradicts the rows before it.
    """
    group.request_partition, group.request_offset = row.request_partition, row.request_offset
    group.leader_epoch = row.leader_epoch
    try:
        _apply(group, row)
    except (ValidationError, KeyError) as error:
        raise StateTableError(
            f"{row.record_type.value} row of group {row.group_id} at request offset {row.request_offset} of "
            f"partition {row.request_partition} does not fit what precedes it: {error!r}.",
            "The state table lacks rows, or holds rows of another writer: restore it from a copy.",
        ) from error


def note_last_requests(group: FoldedGroup, row: StateRow) -> None:
    """Record the members' last requests from a share-partition's row; the oldest make room.

    A member that was removed may have locks still, which a repeat of an earlier request must not touch.
    """
    for fields in row.payload.get("last_requests", ()):
        request = LastRequest.model_validate(fields)
        group.last_requests.pop(request.member_id, None)
        group.last_requests[request.member_id] = request
    while len(group.last_requests) > max(MAX_LAST_REQUESTS, 2 * len(group.metadata.members)):
        del group.last_requests[next(iter(group.last_requests))]


def _apply(group: FoldedGroup, row: StateRow) -> None:
    match row.record_type:
        case RecordType.SHARE_UPDATE | RecordType.SHARE_TRANSITIONS:
            _apply_transitions(group.partitions[row.topic_id, row.partition], row)
            note_last_requests(group, row)
        case RecordType.SHARE_SNAPSHOT:
            group.partitions[row.topic_id, row.partition] = _from_snapshot(
                row,
                0,
                row.request_offset,
                row.time_ms,
                row.payload.get("rejected", ()),
                opened_writes(row.payload),
            )
            note_last_requests(group, row)
        case RecordType.SHARE_TOMBSTONE:
            del group.partitions[row.topic_id, row.partition]
        case RecordType.GROUP_METADATA:
            for fields in row.payload["records"]:
                _apply_metadata(group, group_record(fields))
        case RecordType.GROUP_STATUS:
            status = GroupStatusPayload.model_validate(row.payload)
            group.status[status.role] = status
        case RecordType.TABLE_SNAPSHOT:
            _apply_table_snapshot(group, row)


def _apply_metadata(group: FoldedGroup, record: GroupRecord) -> None:
    group.metadata.apply(record)
    if isinstance(record, ShareGroupRemoved):
        group.last_requests.clear()


def _apply_table_snapshot(group: FoldedGroup, row: StateRow) -> None:
    if row.partition >= 0:
        snapshot = row.payload
        group.partitions[row.topic_id, row.partition] = _from_snapshot(
            row,
            snapshot["updates_since_snapshot"],
            snapshot["request_offset"],
            snapshot.get("snapshot_time_ms", 0),
            snapshot.get("rejected", ()),
            opened_writes(snapshot),
        )
        return
    payload = GroupSnapshotPayload.model_validate(row.payload)
    group.metadata = GroupState()
    for record in payload.records:
        group.metadata.apply_json(record)
    group.status = {status.role: status for status in payload.status}
    group.last_requests = {request.member_id: request for request in payload.last_requests}


def _from_snapshot(
    row: StateRow,
    updates_since_snapshot: int,
    request_offset: int,
    snapshot_time_ms: int,
    rejected: Iterable[tuple[int, int]],
    open_writes: Iterable[WriteOpened],
) -> FoldedPartition:
    # Without the model of the payload: for 100,000 share-partitions it would take a tenth of the fold.
    return FoldedPartition(
        row.topic_id,
        row.topic,
        row.partition,
        SharePartition(row.start_offset, [entry.run for entry in row.runs], row.state_epoch, open_writes),
        SnapshotEpochs(row.snapshot_epoch, updates_since_snapshot),
        request_offset,
        snapshot_time_ms,
        RejectedRecords(rejected),
    )


def _apply_transitions(partition: FoldedPartition, row: StateRow) -> None:
    share_partition = partition.share_partition
    records: list[SharePartitionRecord] = [entry.transition for entry in row.transitions]
    if row.start_offset > share_partition.start_offset:
        records.append(StartOffsetMoved(row.start_offset))
    records += map(WriteClosed, row.payload.get("closed_writes", ()))
    records += opened_writes(row.payload)
    for record in records:
        share_partition.apply(record)
        partition.rejected.note(record)
    partition.epochs = partition.epochs.after(row.record_type)
    share_partition.state_epoch = row.state_epoch
    partition.request_offset = row.request_offset
