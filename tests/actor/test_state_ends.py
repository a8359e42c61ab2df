"""States that end with the message that also ended their locks."""

from __future__ import annotations

from sharegroup.core.record_state import Cause
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import DeleteShareGroupState
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from sharegroup.state.reader import CommitMarkerInfo
from sharegroup.state.schema import StoredRows, decoded, rows_to_table
from sharegroup.state.table_snapshot import table_snapshot
from tests.actor.group_harness import group_with, joined

LOCK_MS = 30_000


def test_locks_that_time_out_with_the_deletion_of_their_state_follow_a_table_snapshot_before_it() -> None:
    group = group_with(20)
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    snapshot_offset = max(row.request_offset for row in group.rows)
    marker = CommitMarkerInfo(0, 1, group.now_ms, CommitMarkerPayload(end_offsets={0: len(group.log)}))
    pieces = table_snapshot(StoredRows(rows_to_table(group.rows)), marker, group.now_ms, leader_epoch=1)
    snapshot = [row for piece in pieces for row in decoded(piece)]
    before = len(group.rows)
    group.now_ms += LOCK_MS
    group.tell(ApiKey.DELETE_SHARE_GROUP_STATE, DeleteShareGroupState(state_epoch=99, topic_ids=["orders-id"]))
    group.run_batch()
    rows = group.rows[before:]
    ended = [row for row in rows if any(entry.cause is Cause.LOCK_TIMEOUT for entry in row.transitions)]
    assert len(ended) == 1
    assert RecordType.SHARE_TOMBSTONE in {row.record_type for row in rows}
    assert all(row.request_offset > snapshot_offset for row in rows)
    stored = StoredRows(rows_to_table([*snapshot, *rows]))
    assert fold(stored).groups["group-1"].partitions == {}
