"""Table snapshots: a recovery reads the last one and what follows it, however old the table is."""

from __future__ import annotations

import json
import shutil
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings

from sharegroup.core.record_state import RecordState
from sharegroup.errors import StateTableError
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import (
    ShareGroupConfig,
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
)
from sharegroup.protocol.row_payloads import LastRequest, PartitionSnapshotPayload, SharePartitionPayload
from sharegroup.protocol.rows import RecordType, RunEntry, StateRow
from sharegroup.state.commit_log import try_commit_snapshot
from sharegroup.state.fold import FoldedState, fold
from sharegroup.state.maintenance import compact, take_snapshot
from sharegroup.state.reader import StateTableReader
from sharegroup.state.schema import StoredRows, decoded, rows_to_table
from sharegroup.state.table_snapshot import table_snapshot, write_table_snapshot
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import FAR_FUTURE_MS, keep_up
from tests.state.share_partition_walk import BATCHES, Operation, Walk, folded_positions
from tests.state.state_rows import BATCH_MS, batch_rows, marker_row
from tests.support.examples import examples

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000


def metadata_rows(commit_id: int) -> list[StateRow]:
    """The rows of the coordinator and of a quarantined leader in a batch."""
    records = [
        ShareGroupMetadata(epoch=commit_id + 1),
        ShareGroupMemberMetadata(member_id=f"member-{commit_id % 3}", subscribed_topic_names=["orders"]),
        ShareGroupConfig(overrides={"share.delivery.count.limit": str(commit_id % 4 + 2)}),
    ]
    failed = {"role": "leader", "status": "FAILED" if commit_id % 2 else "ACTIVE", "reason": f"batch {commit_id}"}
    row = StateRow(
        record_type=RecordType.GROUP_METADATA,
        commit_id=commit_id,
        group_id="group-1",
        request_partition=0,
        request_offset=1_000 * commit_id + 999,
        time_ms=BATCH_MS,
        payload={"records": [record.model_dump(mode="json") for record in records]},
    )
    return [row, row.model_copy(update={"record_type": RecordType.GROUP_STATUS, "payload": failed})]


def description(state: FoldedState) -> object:
    """All that a fold says, to be compared."""
    return folded_positions(state), {
        group_id: (group.metadata.records(), group.status) for group_id, group in state.groups.items()
    }


def test_a_snapshot_holds_what_every_group_is(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(6):
        writer.append([*batch_rows(commit_id), *metadata_rows(commit_id)], commit_id)
    before = description(fold(reader.rows()))
    keep_up(table_path)
    snapshot = reader.rows([RecordType.TABLE_SNAPSHOT])
    assert [(row.group_id, row.partition) for row in snapshot] == [
        ("", -1),
        *(("group-1", partition) for partition in range(3)),
        ("group-1", -1),
    ]
    assert list(reader.recovery().rows) == snapshot[1:]
    assert description(fold(reader.recovery_rows())) == description(fold(reader.rows())) == before
    assert fold(snapshot).groups["group-1"].failures == {ActorRole.LEADER: "batch 5"}


@settings(max_examples=examples(2), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_recovery_from_any_snapshot_gives_the_same_state_as_all_rows(
    tmp_path: Path, batches: list[list[Operation]]
) -> None:
    path = str(tmp_path / "walk")
    shutil.rmtree(path, ignore_errors=True)
    writer = StateTableWriter.open(path, {})
    reader = StateTableReader(path)
    walk = Walk()
    for commit_id, batch in enumerate(batches):
        rows = walk.batch(batch)
        writer.append([marker_row(commit_id, walk.end_offset), *rows], commit_id)
        if commit_id % 2:
            keep_up(path)
        if commit_id % 5 == 4:
            writer = StateTableWriter.open(path, {})
        assert folded_positions(fold(reader.recovery_rows())) == walk.positions()
    assert folded_positions(fold(reader.rows())) == walk.positions()
    marker = reader.last_marker()
    assert marker is not None
    assert marker.commit_id == len(batches) - 1


def test_a_recovery_reads_as_many_files_of_an_old_table_as_of_a_young_one(
    table_path: str, reader: StateTableReader
) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append([*batch_rows(0), *batch_rows(0, group_id="cold")], 0)
    counts = []
    for day in range(1, 9):
        for commit_id in range(3 * day, 3 * day + 3):
            writer.append(batch_rows(commit_id, time_ms=BATCH_MS + day * DAY_MS), commit_id)
        keep_up(table_path)
        writer.append(batch_rows(3 * day + 3, time_ms=BATCH_MS + day * DAY_MS), 3 * day + 3)
        recovery = reader.recovery()
        counts.append(len(recovery.files))
        assert recovery.file_count > day
    assert max(counts) <= 3
    assert fold(recovery.rows).groups.keys() == {"group-1", "cold"}
    assert description(fold(recovery.rows)) == description(fold(reader.rows()))


def test_a_recovery_reads_no_other_files_than_it_says(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(12):
        writer.append(batch_rows(commit_id, time_ms=BATCH_MS + commit_id * DAY_MS), commit_id)
        if commit_id == 8:
            keep_up(table_path)
    recovery = reader.recovery()
    assert len(recovery.files) < recovery.file_count
    for uri in DeltaTable(table_path).file_uris():
        if not uri.endswith(recovery.files):
            Path(uri).unlink()
    again = reader.recovery()
    assert list(again.rows) == list(recovery.rows)
    assert again.last_marker == recovery.last_marker
    assert reader.last_marker() == recovery.last_marker


def test_nothing_new_needs_no_new_snapshot(table_path: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    assert take_snapshot(table_path, FAR_FUTURE_MS) == 0
    writer.append(batch_rows(0), 0)
    assert take_snapshot(table_path, FAR_FUTURE_MS) == 5
    assert take_snapshot(table_path, FAR_FUTURE_MS) == 0
    writer.append(batch_rows(1), 1)
    assert take_snapshot(table_path, BATCH_MS) == 0
    assert take_snapshot(table_path, FAR_FUTURE_MS) == 5


def test_anybody_may_take_the_snapshot_of_a_table_without_a_processor(
    table_path: str, reader: StateTableReader
) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    before = description(fold(reader.rows()))
    assert take_snapshot(table_path, BATCH_MS, is_dry_run=True) == 5
    assert reader.last_snapshot_ms() is None
    assert take_snapshot(table_path, BATCH_MS) == 5
    assert take_snapshot(table_path, BATCH_MS) == 0
    assert reader.leader_epoch() == 1
    assert description(fold(reader.recovery_rows())) == before
    writer.append(batch_rows(3), 3)
    assert [row.commit_id for row in reader.recovery_rows()] == [2, 2, 2, 2, 3, 3, 3]


def test_a_snapshot_survives_compaction_and_the_end_of_the_log_that_it_was_committed_in(
    table_path: str, reader: StateTableReader
) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    keep_up(table_path)
    writer.append(batch_rows(3), 3)
    before = reader.recovery()
    compact(table_path)
    table = DeltaTable(table_path)
    table.create_checkpoint()
    for version in range(table.version()):
        (Path(table_path) / "_delta_log" / f"{version:020}.json").unlink()
    after = reader.recovery()
    assert (list(after.rows), after.last_marker, after.snapshot_marker) == (
        list(before.rows),
        before.last_marker,
        before.snapshot_marker,
    )


def test_a_snapshot_that_somebody_deleted_is_an_error_that_says_what_to_do(
    table_path: str, reader: StateTableReader
) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append(batch_rows(0), 0)
    keep_up(table_path)
    DeltaTable(table_path).alter.set_table_properties({"delta.appendOnly": "false"})
    DeltaTable(table_path).delete("record_type = 'TableSnapshot'")
    with pytest.raises(StateTableError, match=r"lacks its table snapshot .*restore the table from a copy"):
        reader.recovery()


def test_a_snapshot_does_not_take_the_place_of_a_younger_one(table_path: str, reader: StateTableReader) -> None:
    """Rows that the older one needs may be pruned by now."""
    writer = StateTableWriter.open(table_path, {})
    writer.append(batch_rows(0), 0)
    version = DeltaTable(table_path).version()
    recovery = reader.recovery()
    assert recovery.last_marker is not None
    file, _ = write_table_snapshot(table_path, recovery, recovery.last_marker, BATCH_MS - 1, leader_epoch=1)
    writer.append(batch_rows(1), 1)
    keep_up(table_path)
    younger = reader.last_snapshot_ms()
    assert not try_commit_snapshot(table_path, version, file, 1, BATCH_MS - 1)
    assert reader.last_snapshot_ms() == younger


def test_a_snapshot_is_committed_beside_appends(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append(batch_rows(0), 0)
    version = DeltaTable(table_path).version()
    recovery = reader.recovery()
    assert recovery.last_marker is not None
    file, _ = write_table_snapshot(table_path, recovery, recovery.last_marker, BATCH_MS, leader_epoch=1)
    for commit_id in (1, 2):
        writer.append(batch_rows(commit_id), commit_id)
    before = description(fold(reader.rows()))
    assert try_commit_snapshot(table_path, version, file, 1, BATCH_MS)
    assert description(fold(reader.recovery().rows)) == before
    writer.append(batch_rows(3), 3)


def test_a_snapshot_has_the_last_requests_of_members_and_of_those_that_hold_locks(
    table_path: str, reader: StateTableReader
) -> None:
    writer = StateTableWriter.open(table_path, {})
    names = ["anna", "ben", "carl", "dora"]
    requests = [LastRequest(member_id=name, share_session_epoch=1, correlation_id=7) for name in names]
    payload = SharePartitionPayload(last_requests=requests).model_dump(mode="json")

    def locked(row: StateRow, member_id: str) -> StateRow:
        lock = RunEntry(
            first_offset=5, last_offset=5, state=RecordState.ACQUIRED, delivery_count=1, member_id=member_id
        )
        return row.model_copy(update={"runs": [lock], "payload": payload})

    def last_requests() -> list[str]:
        group = fold(reader.recovery().rows).groups["group-1"]
        return sorted(group.last_requests)

    member = ShareGroupMemberMetadata(member_id="anna", subscribed_topic_names=[]).model_dump(mode="json")
    former = ShareGroupMemberMetadata(member_id="ben", subscribed_topic_names=[]).model_dump(mode="json")
    removed = ShareGroupMemberRemoved(member_id="ben", reason="left").model_dump(mode="json")
    epoch = ShareGroupMetadata(epoch=1).model_dump(mode="json")
    marker, first, second, third = batch_rows(0)
    (metadata, _) = metadata_rows(0)
    records = [epoch, member, former, removed]
    metadata = metadata.model_copy(update={"request_offset": 0, "payload": {"records": records}})
    writer.append([marker, locked(first, "ben"), locked(second, "carl"), third, metadata], 0)
    # Of two share-partitions there are several rows, so that they are folded; the third is copied.
    marker, _, second, third = batch_rows(1)
    writer.append([marker, locked(second, "carl"), third], 1)
    assert last_requests() == names
    keep_up(table_path)
    assert last_requests() == ["anna", "ben", "carl"]
    marker, *without_locks = batch_rows(2)
    writer.append([marker, *without_locks], 2)
    keep_up(table_path)
    assert last_requests() == ["anna"]


def changed_rows(payloads: list[dict[str, object]], spacing: tuple[str, str]) -> StoredRows:
    """Return a row for each share-partition, whose payload has this spacing after commas and colons."""
    kinds = cycle((RecordType.SHARE_SNAPSHOT, RecordType.TABLE_SNAPSHOT))
    rows = [
        row.model_copy(update={"record_type": kind, "partition": partition})
        for partition, (row, kind) in enumerate(
            zip(cycle(batch_rows(0)[1:]), islice(kinds, len(payloads)), strict=False)
        )
    ]
    table = rows_to_table(rows)
    texts = pa.array([json.dumps(payload, separators=spacing) for payload in payloads])
    return StoredRows(table.set_column(table.column_names.index("payload"), "payload", texts))


def test_payloads_are_read_as_json_however_they_are_spaced(reader: StateTableReader, table_path: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append(batch_rows(0), 0)
    marker = reader.last_marker()
    assert marker is not None
    request = LastRequest(member_id='x"rejected": [[', share_session_epoch=1, correlation_id=7)
    snapshot = PartitionSnapshotPayload(updates_since_snapshot=3, request_offset=1).model_dump(mode="json")
    changes = [
        SharePartitionPayload(last_requests=[request]),
        SharePartitionPayload(rejected=[(5, 9)]),
        SharePartitionPayload(log_start_offset=3),
    ]
    payloads = [payload for change in changes for payload in (change.model_dump(mode="json"), snapshot)]
    usual, compact = (
        list(table_snapshot(changed_rows(payloads, spacing), marker, BATCH_MS, 1))
        for spacing in ((", ", ": "), (",", ":"))
    )
    decoded_rows = [[row for piece in pieces for row in decoded(piece)] for pieces in (usual, compact)]
    assert decoded_rows[0] == decoded_rows[1]


@pytest.mark.parametrize("payload", ["", "{}\n{}", "[]", '{"rejected": [[5'])
def test_a_payload_that_is_no_object_is_an_error(reader: StateTableReader, table_path: str, payload: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append(batch_rows(0), 0)
    marker = reader.last_marker()
    assert marker is not None
    table = rows_to_table(batch_rows(0)[1:2])
    table = table.set_column(table.column_names.index("payload"), "payload", pa.array([payload]))
    table = table.set_column(0, "record_type", pa.array([RecordType.SHARE_SNAPSHOT.value]))
    with pytest.raises(StateTableError, match="no JSON objects"):
        list(table_snapshot(StoredRows(table), marker, BATCH_MS, 1))
