"""Table snapshots: the state of all groups in one commit, so that a reader needs no older rows.

Each of them has the state of all share-partitions, however long they have been cold. The table stores the time of the
last one as the version of an application transaction, so that finding it costs nothing.

A snapshot is written while it is computed: only the rows that it depends on are in memory, as Arrow columns. Most
share-partitions have one row only, their last snapshot: it is copied as columns. The others are folded, one after
the other.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Set
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from sharegroup.coordinator.share_coordinator import share_partition_row
from sharegroup.errors import StateTableError
from sharegroup.protocol.messages import changed, constructed
from sharegroup.protocol.row_payloads import (
    GroupSnapshotPayload,
    OpenWriteEntry,
    PartitionSnapshotPayload,
    TableSnapshotPayload,
)
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.data_files import ROWS_PER_ROW_GROUP, LargeDataFile, NewFile
from sharegroup.state.fold import (
    FoldedGroup,
    FoldedPartition,
    advance_group,
    note_last_requests,
)
from sharegroup.state.reader import CommitMarkerInfo, Recovery
from sharegroup.state.schema import (
    PARTITION_COLUMN,
    PARTITION_KEY_COLUMNS,
    STATE_TABLE_SCHEMA,
    StoredRows,
    decoded,
    partition_key,
    rows_to_table,
    utc_date,
)

_ROWS_AT_ONCE = 4_096
_EMPTY_COLUMNS = ("state_batches", "transitions")
"""Types of rows with the history of a state, which snapshots do not contain."""
_CHANGES = (RecordType.SHARE_SNAPSHOT, RecordType.SHARE_UPDATE, RecordType.SHARE_TRANSITIONS)
"""Types of rows with a `SharePartitionPayload`; they follow the last table snapshot."""
_LISTS = pa.schema(
    {
        "rejected": pa.list_(pa.list_(pa.int64())),
        "last_requests": pa.list_(pa.struct({"member_id": pa.string()})),
        "open_writes": pa.list_(pa.struct({"version": pa.int64()})),
    }
)
"""The lists of a `SharePartitionPayload` on which a snapshot depends."""
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
) -> tuple[NewFile, int]:
    """Write the data file of a snapshot of everything up to a commit.

    Args:
        recovery: all rows that decide the state.
        marker: marker of the last commit in it.
        time_ms: the snapshot's time; epoch ms.
        leader_epoch: highest leader epoch of the table.

    Returns:
        The file, which no commit names yet, and its number of rows.

    Raises:
        StateTableError: a row contradicts the rows before it.
        OSError: the disk failed.
    """
    with LargeDataFile(path, utc_date(time_ms)) as file:
        for piece in table_snapshot(recovery.rows, marker, time_ms, leader_epoch):
            file.write(piece)
        return file.close(), file.row_count


def table_snapshot(rows: StoredRows, marker: CommitMarkerInfo, time_ms: int, leader_epoch: int) -> Iterator[pa.Table]:
    """Yield a snapshot of everything up to a commit, in pieces.

    Args:
        rows: all rows that decide the state.
        marker: marker of the last commit in it.
        time_ms: the snapshot's time; epoch ms.
        leader_epoch: highest leader epoch of the table.

    Raises:
        StateTableError: a row contradicts the rows before it.
    """
    marked = _with_marks(rows.table)
    table = marked.filter(pc.greater_equal(marked["partition"], 0))
    # The sort is stable: the rows of a share-partition stay in fold order.
    ordered = table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in PARTITION_KEY_COLUMNS]))
    is_final = _is_final(ordered)
    final = ordered.filter(is_final)
    addresses = _last_requests(rows.table)
    groups = _groups(marked, addresses)
    of_partitions = ordered.filter(pc.invert(is_final)).select(STATE_TABLE_SCHEMA.names)
    folded = _folded_rows(groups, of_partitions, final, marker, time_ms)
    while piece := list(islice(folded, _ROWS_AT_ONCE)):
        yield rows_to_table(piece, marker.commit_id, leader_epoch)
    stamp = {
        "record_type": RecordType.TABLE_SNAPSHOT,
        "time_ms": time_ms,
        "commit_id": marker.commit_id,
        "leader_epoch": leader_epoch,
    }
    for start in range(0, final.num_rows, ROWS_PER_ROW_GROUP):
        yield _passed_on(final.slice(start, ROWS_PER_ROW_GROUP), addresses, stamp)


def _folded_rows(
    groups: Mapping[str, FoldedGroup],
    of_partitions: pa.Table,
    final: pa.Table,
    marker: CommitMarkerInfo,
    time_ms: int,
) -> Iterator[StateRow]:
    """Yield the first row, the rows of share-partitions with several rows, and those of groups."""
    first = TableSnapshotPayload(
        leader_epoch=marker.leader_epoch,
        commit_id=marker.commit_id,
        commit_time_ms=marker.time_ms,
        marker=marker.payload,
    )
    payload = first.model_dump(mode="json")
    yield constructed(StateRow, record_type=RecordType.TABLE_SNAPSHOT, time_ms=time_ms, payload=payload)
    with_partitions = set(final["group_id"].to_pylist())
    holders = _holders(final)
    for group_id, partition in _partitions(of_partitions):
        with_partitions.add(group_id)
        holders.update((group_id, member_id) for member_id in partition.share_partition.runs.member_ids)
        yield _partition_row(groups[group_id], partition, time_ms)
    for group in groups.values():
        if not group.is_gone or group.group_id in with_partitions:
            yield _group_row(group, holders, time_ms)


def _holders(rows: pa.Table) -> set[tuple[str, str]]:
    """Return (group id, member id) of all members that have locks by the runs of rows."""
    runs = rows["runs"].combine_chunks()
    members = pc.struct_field(pc.list_flatten(runs), "member_id")
    is_held = pc.not_equal(members, "")
    groups = rows["group_id"].take(pc.list_parent_indices(runs).filter(is_held))
    return set(zip(groups.to_pylist(), members.filter(is_held).to_pylist(), strict=True))


def _is_final(ordered: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether it is the only one of its share-partition, and a snapshot that can be copied."""
    if not ordered.num_rows:
        return pa.chunked_array([], pa.bool_())
    keys = [ordered[name] for name in PARTITION_KEY_COLUMNS]
    differs = [pc.not_equal(key.slice(1), key.slice(0, len(key) - 1)).combine_chunks() for key in keys]
    is_border = functools.reduce(pc.or_, differs)
    edge = pa.array([True])
    is_single = pc.and_(pa.concat_arrays([edge, is_border]), pa.concat_arrays([is_border, edge]))
    # Rejected records may have been finished since, and open writes are in no column.
    is_share_snapshot = pc.and_not(
        pc.equal(ordered["record_type"], RecordType.SHARE_SNAPSHOT.value),
        pc.or_(ordered[_mark("rejected")], ordered[_mark("open_writes")]),
    )
    is_snapshot = pc.or_(pc.equal(ordered["record_type"], RecordType.TABLE_SNAPSHOT.value), is_share_snapshot)
    return pc.and_(is_single, is_snapshot)


def _passed_on(piece: pa.Table, addresses: pa.Table, stamp: Mapping[str, Any]) -> pa.Table:
    """Return rows that are snapshots of share-partitions as rows of the table snapshot."""
    count = piece.num_rows
    group = pc.index_in(piece["group_id"], addresses["group_id"].combine_chunks())
    columns = {
        **{name: piece[name] for name in STATE_TABLE_SCHEMA.names},
        **{name: addresses[f"{name}_max"].take(group) for name in ("request_partition", "request_offset")},
        **{name: pa.repeat(value, count) for name, value in stamp.items()},
        PARTITION_COLUMN: pa.repeat(utc_date(stamp["time_ms"]), count),
        **{name: pa.array([[]] * count, STATE_TABLE_SCHEMA.field(name).type) for name in _EMPTY_COLUMNS},
        "payload": _snapshot_payloads(piece),
    }
    return pa.table(columns).select(STATE_TABLE_SCHEMA.names).cast(STATE_TABLE_SCHEMA)


def _snapshot_payloads(piece: pa.Table) -> pa.ChunkedArray:
    """Return the payload of each row: that of a ShareSnapshot is different, and is determined by its columns."""
    payload = PartitionSnapshotPayload(updates_since_snapshot=0, request_offset=0, snapshot_time_ms=0)
    columns = {"request_offset": piece["request_offset"], "snapshot_time_ms": piece["time_ms"]}
    of_share_snapshot = _json_objects(payload.model_dump(mode="json"), columns)
    return pc.if_else(
        pc.equal(piece["record_type"], RecordType.TABLE_SNAPSHOT.value), piece["payload"], of_share_snapshot
    )


def _json_objects(values: Mapping[str, Any], columns: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return a JSON object for each row: the values, each replaced by its column of integers if it has one."""
    parts: list[str | pa.ChunkedArray] = []
    for name, value in values.items():
        parts.append(f"{', ' if parts else '{'}{json.dumps(name)}: ")
        parts.append(pc.cast(columns[name], pa.string()) if name in columns else json.dumps(value))
    return pc.binary_join_element_wise(*parts, "}", "")


def _with_marks(rows: pa.Table) -> pa.Table:
    """Return rows with a column for each of `_LISTS`, which is True for a change with entries in that list.

    Only payloads of changes are parsed, so the cost grows with the rows since the last table snapshot.

    Raises:
        StateTableError: a payload is not the JSON of a change.
    """
    is_change = pc.is_in(rows["record_type"], pa.array([kind.value for kind in _CHANGES]))
    is_parsed = pc.and_(is_change, pc.not_equal(rows["payload"], "{}"))
    payloads = rows["payload"].filter(is_parsed)
    lists = pa.concat_tables(
        [
            _LISTS.empty_table(),
            *(_parsed(payloads.slice(start, _ROWS_AT_ONCE)) for start in range(0, len(payloads), _ROWS_AT_ONCE)),
        ]
    )
    for name in _LISTS.names:
        has_entries = np.zeros(rows.num_rows, np.bool_)
        has_entries[is_parsed.to_numpy()] = pc.fill_null(pc.list_value_length(lists[name]), 0).to_numpy() > 0
        rows = rows.append_column(_mark(name), pa.array(has_entries))
    return rows


def _mark(name: str) -> str:
    return f"has_{name}"


def _parsed(payloads: pa.ChunkedArray) -> pa.Table:
    """Return `_LISTS` of payloads; null where one has no such list."""
    lines = "\n".join(payloads.to_pylist()).encode()
    try:
        table = pa_json.read_json(
            pa.BufferReader(lines),
            pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pa_json.ParseOptions(_LISTS, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise _unreadable(str(error)) from error
    if table.num_rows != len(payloads):
        raise _unreadable(f"{len(payloads)} rows have {table.num_rows} payloads")
    return table


def _unreadable(detail: str) -> StateTableError:
    return StateTableError(
        f"Payloads of the state table are no JSON objects of share-partitions: {detail}.",
        "The state table holds rows of another writer: restore it from a copy.",
    )


def _last_requests(table: pa.Table) -> pa.Table:
    """Return request partition and offset of the last message reflected in each group's rows."""
    # One thread, so that the groups are in the order of their first rows; most tables have few.
    by_group = table.group_by("group_id", use_threads=False)
    return by_group.aggregate([("request_partition", "max"), ("request_offset", "max")])


def _groups(table: pa.Table, last_requests: pa.Table) -> dict[str, FoldedGroup]:
    """Return all groups without their share-partitions, dead ones included.

    Args:
        table: all rows that decide the state, with their marks.
        last_requests: result of `_last_requests` for them.
    """
    groups = {group_id: FoldedGroup(group_id) for group_id in last_requests["group_id"].to_pylist()}
    is_of_group = pc.less(table["partition"], 0)
    is_decoded = pc.or_(is_of_group, table[_mark("last_requests")])
    for row in decoded(table.select(_GROUP_COLUMNS).filter(is_decoded)):
        if row.partition < 0:
            advance_group(groups[row.group_id], row)
            if row.record_type is RecordType.GROUP_METADATA and groups[row.group_id].is_gone:
                groups[row.group_id] = FoldedGroup(row.group_id)
        else:
            note_last_requests(groups[row.group_id], row)
    for group_id, partition, offset in zip(*(column.to_pylist() for column in last_requests.columns), strict=True):
        groups[group_id].request_partition, groups[group_id].request_offset = partition, offset
    return groups


def _partitions(ordered: pa.Table) -> Iterator[tuple[str, FoldedPartition]]:
    """Yield each share-partition that has a state, with its group's id."""
    for (group_id, topic_id, partition), of_partition in groupby(decoded(ordered), partition_key):
        group = FoldedGroup(group_id)
        for row in of_partition:
            advance_group(group, row)
        folded = group.partitions.get((topic_id, partition))
        if folded is not None:
            yield group_id, folded


def _group_row(group: FoldedGroup, holders: Set[tuple[str, str]], time_ms: int) -> StateRow:
    """Return the row of a group, with the last requests of its members and of those that have locks."""
    payload = GroupSnapshotPayload(
        records=[record.model_dump(mode="json") for record in group.metadata.records()],
        status=list(group.status.values()),
        last_requests=[
            request
            for member_id, request in group.last_requests.items()
            if member_id in group.metadata.members or (group.group_id, member_id) in holders
        ],
    )
    return constructed(
        StateRow,
        record_type=RecordType.TABLE_SNAPSHOT,
        time_ms=time_ms,
        group_id=group.group_id,
        request_partition=group.request_partition,
        request_offset=group.request_offset,
        payload=payload.model_dump(mode="json"),
    )


def partition_payload(partition: FoldedPartition) -> dict[str, Any]:
    """Return the payload of a share-partition's row in a table snapshot."""
    payload = PartitionSnapshotPayload(
        updates_since_snapshot=partition.epochs.updates_since_snapshot,
        request_offset=partition.request_offset,
        snapshot_time_ms=partition.snapshot_time_ms,
        rejected=partition.rejected.ranges(partition.share_partition.runs),
        open_writes=[OpenWriteEntry.of(opened) for opened in partition.share_partition.open_writes.values()],
    )
    return payload.model_dump(mode="json")


def _partition_row(group: FoldedGroup, partition: FoldedPartition, time_ms: int) -> StateRow:
    row = share_partition_row(
        RecordType.SHARE_SNAPSHOT,
        partition.epochs.snapshot_epoch,
        partition.share_partition,
        [],
        group_id=group.group_id,
        topic_id=partition.topic_id,
        topic=partition.topic,
        partition=partition.partition,
        request_partition=group.request_partition,
        request_offset=group.request_offset,
        time_ms=time_ms,
        payload=partition_payload(partition),
    )
    return changed(row, record_type=RecordType.TABLE_SNAPSHOT, state_batches=[])
