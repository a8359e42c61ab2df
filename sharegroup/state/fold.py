"""The fold: rows of the state table → the state they add up to. Recovery and audits share it; nothing else does it.

Pure. The order of rows comes from their columns, never from where they lie in the table.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import ValidationError

from sharegroup.coordinator.group_state import GroupState
from sharegroup.core.records import SharePartitionRecord, StartOffsetMoved
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import StateTableError
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import GroupRecord, ShareGroupMemberRemoved, ShareGroupRemoved, group_record
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.row_payloads import LastRequest
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.table_snapshot import GroupSnapshotPayload, PartitionSnapshotPayload
from sharegroup.state.stored_rows import StoredRows

SHARE_PARTITION_TYPES = frozenset(
    {
        RecordType.SHARE_SNAPSHOT,
        RecordType.SHARE_UPDATE,
        RecordType.SHARE_TRANSITIONS,
        RecordType.SHARE_TOMBSTONE,
    }
)

_LAST_TYPES = frozenset({RecordType.GROUP_METADATA, RecordType.GROUP_STATUS, RecordType.SHARE_TOMBSTONE})
"""Rows after which nothing may be left of a group."""


@dataclass(slots=True)
class FoldedPartition:
    """A share-partition as its rows leave it.

    Attributes:
        topic_id: topic id.
        topic: topic name.
        partition: partition.
        share_partition: the engine.
        snapshot_epoch: epoch of its last snapshot.
        updates_since_snapshot: ShareUpdate rows since then; ShareTransitions do not count.
        request_offset: the last message that its last row reflects.
        snapshot_time_ms: time of its last snapshot; epoch ms.
        rejected: which of its ARCHIVING records were rejected.
    """

    topic_id: str
    topic: str
    partition: int
    share_partition: SharePartition
    snapshot_epoch: int
    updates_since_snapshot: int
    request_offset: int
    snapshot_time_ms: int
    rejected: RejectedRecords = field(default_factory=RejectedRecords)

    @property
    def state_epoch(self) -> int:
        """Fencing epoch of its durable state."""
        return self.share_partition.state_epoch


@dataclass(slots=True)
class FoldedGroup:
    """A group as its rows leave it.

    Attributes:
        group_id: the share group.
        request_partition: the group's partition of the request log; -1 before its first row.
        request_offset: the last message that any row of the group reflects.
        metadata: members, epochs, topics, configuration.
        partitions: (topic id, partition) → share-partition.
        status: the last status row of each actor that has one.
        last_requests: member id → its last request with a durable effect.
    """

    group_id: str
    request_partition: int = -1
    request_offset: int = -1
    metadata: GroupState = field(default_factory=GroupState)
    partitions: dict[tuple[str, int], FoldedPartition] = field(default_factory=dict)
    status: dict[ActorRole, GroupStatusPayload] = field(default_factory=dict)
    last_requests: dict[str, LastRequest] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Return True if nothing is left of the group: it is dead, and nobody has to resume it or to be answered."""
        return self.metadata.is_gone and not self.partitions and not self.failures

    @property
    def failures(self) -> dict[ActorRole, str]:
        """Why each quarantined actor failed; empty when the group works."""
        return {role: row.reason for role, row in self.status.items() if row.status is GroupStatus.FAILED}

    @property
    def dead_letter_failure(self) -> str:
        """Why the group's dead letters cannot be written; empty when they can."""
        row = self.status.get(ActorRole.LEADER)
        return row.reason if row is not None and row.status is GroupStatus.DEGRADED else ""


@dataclass(slots=True)
class FoldedState:
    """All groups by id, but for those of which nothing is left."""

    groups: dict[str, FoldedGroup] = field(default_factory=dict)


def fold_order(row: StateRow) -> tuple[int, int, bool, int, int]:
    """Sort key: rows of a group follow the request log; a table snapshot follows the last message that is in it."""
    is_table_snapshot = row.record_type is RecordType.TABLE_SNAPSHOT
    return row.request_partition, row.request_offset, is_table_snapshot, row.leader_epoch, row.commit_id


def fold(rows: Iterable[StateRow], until: Mapping[int, int] | None = None) -> FoldedState:
    """Return the state that rows add up to.

    Args:
        rows: rows in any order; those that belong to no group are passed over.
        until: request partition → end offset, exclusive, as in a CommitMarker; later rows, and rows of partitions
            that it does not name, are left out. None takes all.

    Raises:
        StateTableError: a row does not fit what precedes it.
    """
    state = FoldedState()
    with _without_collections():
        for row in rows if isinstance(rows, StoredRows) else sorted(rows, key=fold_order):
            if row.group_id and (until is None or row.request_offset < until.get(row.request_partition, 0)):
                advance(state, row)
    return state


@contextmanager
def _without_collections() -> Iterator[None]:
    """Let Python collect no cycles meanwhile: it would look again and again at millions of new objects in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def advance(state: FoldedState, row: StateRow) -> None:
    """Change the state by the next row of a group.

    Raises:
        StateTableError: the row does not fit what precedes it.
    """
    group = state.groups.get(row.group_id)
    if group is None:
        group = state.groups[row.group_id] = FoldedGroup(row.group_id)
    advance_group(group, row)
    if row.record_type in _LAST_TYPES and group.is_gone:
        del state.groups[row.group_id]


def advance_group(group: FoldedGroup, row: StateRow) -> None:
    """Change a group by its next row.

    Raises:
        StateTableError: the row does not fit what precedes it.
    """
    group.request_partition, group.request_offset = row.request_partition, row.request_offset
    try:
        _apply(group, row)
    except (ValidationError, KeyError) as error:
        raise StateTableError(
            f"{row.record_type.value} row of group {row.group_id} at request offset {row.request_offset} of "
            f"partition {row.request_partition} does not fit what precedes it: {error!r}.",
            "The state table lacks rows, or holds rows of another writer: restore it from a copy.",
        ) from error


def note_last_requests(group: FoldedGroup, row: StateRow) -> None:
    """Take in the members' last requests of a share-partition's row."""
    for fields in row.payload.get("last_requests", ()):
        request = LastRequest.model_validate(fields)
        group.last_requests[request.member_id] = request


def _apply(group: FoldedGroup, row: StateRow) -> None:
    match row.record_type:
        case RecordType.SHARE_UPDATE | RecordType.SHARE_TRANSITIONS:
            _apply_transitions(group.partitions[row.topic_id, row.partition], row)
            note_last_requests(group, row)
        case RecordType.SHARE_SNAPSHOT:
            snapshot = PartitionSnapshotPayload(
                updates_since_snapshot=0,
                request_offset=row.request_offset,
                snapshot_time_ms=row.time_ms,
                rejected=row.payload.get("rejected", []),
            )
            group.partitions[row.topic_id, row.partition] = _from_snapshot(row, snapshot)
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
    match record:
        case ShareGroupMemberRemoved():
            group.last_requests.pop(record.member_id, None)
        case ShareGroupRemoved():
            group.last_requests.clear()


def _apply_table_snapshot(group: FoldedGroup, row: StateRow) -> None:
    if row.partition >= 0:
        snapshot = PartitionSnapshotPayload.model_validate(row.payload)
        group.partitions[row.topic_id, row.partition] = _from_snapshot(row, snapshot)
        return
    payload = GroupSnapshotPayload.model_validate(row.payload)
    group.metadata = GroupState()
    for record in payload.records:
        group.metadata.apply_json(record)
    group.status = {status.role: status for status in payload.status}
    group.last_requests = {request.member_id: request for request in payload.last_requests}


def _from_snapshot(row: StateRow, snapshot: PartitionSnapshotPayload) -> FoldedPartition:
    return FoldedPartition(
        row.topic_id,
        row.topic,
        row.partition,
        SharePartition(row.start_offset, (entry.run for entry in row.runs), row.state_epoch),
        row.snapshot_epoch,
        snapshot.updates_since_snapshot,
        snapshot.request_offset,
        snapshot.snapshot_time_ms,
        RejectedRecords(snapshot.rejected),
    )


def _apply_transitions(partition: FoldedPartition, row: StateRow) -> None:
    share_partition = partition.share_partition
    records: list[SharePartitionRecord] = [entry.transition for entry in row.transitions]
    if row.start_offset > share_partition.start_offset:
        records.append(StartOffsetMoved(row.start_offset))
    for record in records:
        share_partition.apply(record)
        partition.rejected.note(record)
    if row.record_type is RecordType.SHARE_UPDATE:
        partition.updates_since_snapshot += 1
    share_partition.state_epoch = row.state_epoch
    partition.request_offset = row.request_offset
