"""Table snapshots: the state of all groups in one commit, so that a reader needs nothing that is older.

Whatever a group does, and however long a share-partition has been cold, its state is in each of them. The table
remembers the time of the last one as the version of an application transaction, so that finding it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.coordinator.share_coordinator import share_partition_row
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.table_snapshot import GroupSnapshotPayload, PartitionSnapshotPayload, TableSnapshotPayload
from sharegroup.state.fold import FoldedGroup, FoldedPartition, fold
from sharegroup.state.reader import CommitMarkerInfo, Recovery, StateTableReader


def due_snapshot(path: str, before_ms: int | None = None) -> list[StateRow]:
    """The rows of a new table snapshot; none when the last one is young enough, or nothing has happened since.

    Args:
        path: the state table's folder.
        before_ms: the last one is young enough from this time on; epoch ms. None: it never is.

    Raises:
        StateTableError: the table cannot be read, or its rows do not fit each other.
    """
    reader = StateTableReader(path)
    last_ms = reader.last_snapshot_ms()
    if last_ms is not None and before_ms is not None and last_ms >= before_ms:
        return []
    recovery = reader.recovery()
    if recovery.last_marker is None or recovery.last_marker == recovery.snapshot_marker:
        return []
    # The time tells snapshots apart, so it must rise even when the clock does not.
    time_ms = max(recovery.last_marker.commit_time_ms, 0 if last_ms is None else last_ms + 1)
    return table_snapshot_rows(recovery, recovery.last_marker, time_ms)


def table_snapshot_rows(recovery: Recovery, marker: CommitMarkerInfo, time_ms: int) -> list[StateRow]:
    """The rows of a snapshot of everything up to a batch.

    Args:
        recovery: all that decides the state.
        marker: the last batch in it.
        time_ms: the snapshot's time; epoch ms.
    """
    first = TableSnapshotPayload(
        leader_epoch=marker.leader_epoch,
        commit_id=marker.commit_id,
        commit_time_ms=marker.commit_time_ms,
        marker=CommitMarkerPayload(checkpoint_id=marker.checkpoint_id, end_offsets=dict(marker.end_offsets)),
    )
    rows = [StateRow(record_type=RecordType.TABLE_SNAPSHOT, payload=first.model_dump(mode="json"))]
    for group in fold(recovery.rows).groups.values():
        rows += _group_rows(group)
    return [row.model_copy(update={"time_ms": time_ms, "commit_id": marker.commit_id}) for row in rows]


def _group_rows(group: FoldedGroup) -> Iterator[StateRow]:
    payload = GroupSnapshotPayload(
        records=[record.model_dump(mode="json") for record in group.metadata.records()],
        status=list(group.status.values()),
    )
    yield StateRow(
        record_type=RecordType.TABLE_SNAPSHOT,
        group_id=group.group_id,
        request_partition=group.request_partition,
        request_offset=group.request_offset,
        payload=payload.model_dump(mode="json"),
    )
    for partition in group.partitions.values():
        yield _partition_row(group, partition)


def _partition_row(group: FoldedGroup, partition: FoldedPartition) -> StateRow:
    payload = PartitionSnapshotPayload(
        updates_since_snapshot=partition.updates_since_snapshot,
        request_offset=partition.request_offset,
        snapshot_time_ms=partition.snapshot_time_ms,
        rejected=partition.rejected.ranges(partition.share_partition.runs),
    )
    row = share_partition_row(RecordType.SHARE_SNAPSHOT, partition.snapshot_epoch, partition.share_partition, [])
    return row.model_copy(
        update={
            "record_type": RecordType.TABLE_SNAPSHOT,
            "group_id": group.group_id,
            "topic_id": partition.topic_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "state_batches": [],
            "request_partition": group.request_partition,
            "request_offset": group.request_offset,
            "payload": payload.model_dump(mode="json"),
        }
    )
