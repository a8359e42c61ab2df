"""Table snapshots: the state of all groups in one commit, so that a reader needs nothing that is older.

Whatever a group does, and however long a share-partition has been cold, its state is in each of them. The table
remembers the time of the last one as the version of an application transaction, so that finding it costs nothing.

A snapshot is made share-partition by share-partition, and written as it is made: only the rows that it rests on are in
memory, as Arrow columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.coordinator.share_coordinator import share_partition_row
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.table_snapshot import GroupSnapshotPayload, PartitionSnapshotPayload, TableSnapshotPayload
from sharegroup.state.data_files import DataFile, LargeDataFile
from sharegroup.state.fold import (
    FoldedGroup,
    FoldedPartition,
    advance_group,
    note_last_requests,
)
from sharegroup.state.reader import CommitMarkerInfo, Recovery
from sharegroup.state.schema import rows_to_table, utc_date
from sharegroup.state.stored_rows import StoredRows, decoded

_ROWS_AT_ONCE = 4_096
_GROUP_COLUMNS = (
    "record_type",
    "commit_id",
    "leader_epoch",
    "group_id",
    "partition",
    "request_partition",
    "request_offset",
    "payload",
)


def write_table_snapshot(
    path: str, recovery: Recovery, marker: CommitMarkerInfo, time_ms: int, leader_epoch: int
) -> tuple[DataFile, int]:
    """Write the data file of a snapshot of everything up to a commit.

    Args:
        path: the table's folder.
        recovery: all that decides the state.
        marker: marker of the last commit in it.
        time_ms: the snapshot's time; epoch ms.
        leader_epoch: highest leader epoch of the table.

    Returns:
        The file, which no commit names yet, and its number of rows.

    Raises:
        StateTableError: rows do not fit each other.
        OSError: the disk refuses.
    """
    rows = table_snapshot_rows(recovery.rows, marker, time_ms)
    with LargeDataFile(path, utc_date(time_ms)) as file:
        while piece := list(islice(rows, _ROWS_AT_ONCE)):
            file.write(rows_to_table(piece, marker.commit_id, leader_epoch))
        return file.close(), file.row_count


def table_snapshot_rows(rows: StoredRows, marker: CommitMarkerInfo, time_ms: int) -> Iterator[StateRow]:
    """Yield the rows of a snapshot of everything up to a commit.

    Args:
        rows: all that decides the state.
        marker: marker of the last commit in it.
        time_ms: the snapshot's time; epoch ms.

    Raises:
        StateTableError: rows do not fit each other.
    """
    first = TableSnapshotPayload(
        leader_epoch=marker.leader_epoch,
        commit_id=marker.commit_id,
        commit_time_ms=marker.time_ms,
        marker=marker.payload,
    )
    stamp: dict[str, Any] = {
        "record_type": RecordType.TABLE_SNAPSHOT,
        "time_ms": time_ms,
        "commit_id": marker.commit_id,
    }
    yield StateRow(**stamp, payload=first.model_dump(mode="json"))
    groups = _groups(rows)
    with_partitions = set()
    for row in _partition_rows(rows):
        group = groups[row.group_id]
        with_partitions.add(row.group_id)
        address = {"request_partition": group.request_partition, "request_offset": group.request_offset}
        yield row.model_copy(update={**stamp, **address})
    for group in groups.values():
        if not group.is_gone or group.group_id in with_partitions:
            yield _group_row(group).model_copy(update=stamp)


def _groups(rows: StoredRows) -> dict[str, FoldedGroup]:
    """Return all groups without their share-partitions, dead ones included."""
    table = rows.table
    lasts = table.group_by("group_id").aggregate([("request_partition", "max"), ("request_offset", "max")])
    groups = {group_id: FoldedGroup(group_id) for group_id in lasts["group_id"].to_pylist()}
    is_of_partition = pc.greater_equal(table["partition"], 0)
    has_requests = pc.match_substring(table["payload"], '"last_requests": [{')
    for row in decoded(table.select(_GROUP_COLUMNS).filter(pc.or_(pc.invert(is_of_partition), has_requests))):
        if row.partition < 0:
            advance_group(groups[row.group_id], row)
            if row.record_type is RecordType.GROUP_METADATA and groups[row.group_id].is_gone:
                groups[row.group_id] = FoldedGroup(row.group_id)
        else:
            note_last_requests(groups[row.group_id], row)
    for group_id, partition, offset in zip(*(column.to_pylist() for column in lasts.columns), strict=True):
        groups[group_id].request_partition, groups[group_id].request_offset = partition, offset
    return groups


def _partition_rows(rows: StoredRows) -> Iterator[StateRow]:
    """Yield the row of each share-partition that has a state."""
    table = rows.table.filter(pc.greater_equal(rows.table["partition"], 0))
    # The sort is stable: the rows of a share-partition stay in fold order.
    keys = [(name, "ascending") for name in ("group_id", "topic_id", "partition")]
    ordered = decoded(table.take(pc.sort_indices(table, sort_keys=keys)))
    for (group_id, topic_id, partition), of_partition in groupby(ordered, _partition_key):
        group = FoldedGroup(group_id)
        first, *others = of_partition
        if first.record_type is RecordType.TABLE_SNAPSHOT and not others:
            yield first
            continue
        for row in (first, *others):
            advance_group(group, row)
        folded = group.partitions.get((topic_id, partition))
        if folded is not None:
            yield _partition_row(group_id, folded)


def _partition_key(row: StateRow) -> tuple[str, str, int]:
    return row.group_id, row.topic_id, row.partition


def _group_row(group: FoldedGroup) -> StateRow:
    payload = GroupSnapshotPayload(
        records=[record.model_dump(mode="json") for record in group.metadata.records()],
        status=list(group.status.values()),
        last_requests=list(group.last_requests.values()),
    )
    return StateRow(
        record_type=RecordType.TABLE_SNAPSHOT,
        group_id=group.group_id,
        request_partition=group.request_partition,
        request_offset=group.request_offset,
        payload=payload.model_dump(mode="json"),
    )


def _partition_row(group_id: str, partition: FoldedPartition) -> StateRow:
    payload = PartitionSnapshotPayload(
        updates_since_snapshot=partition.updates_since_snapshot,
        request_offset=partition.request_offset,
        snapshot_time_ms=partition.snapshot_time_ms,
        rejected=partition.rejected.ranges(partition.share_partition.runs),
    )
    row = share_partition_row(RecordType.SHARE_SNAPSHOT, partition.snapshot_epoch, partition.share_partition, [])
    return row.model_copy(
        update={
            "group_id": group_id,
            "topic_id": partition.topic_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "state_batches": [],
            "payload": payload.model_dump(mode="json"),
        }
    )
