"""Which row makes a change durable: snapshot, update, or transitions that Kafka would keep in memory."""

from __future__ import annotations

import pytest

from sharegroup.coordinator.share_coordinator import SnapshotEpochs, row_type, share_partition_row
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry

SNAPSHOT, UPDATE, TRANSITIONS = (
    RecordType.SHARE_SNAPSHOT,
    RecordType.SHARE_UPDATE,
    RecordType.SHARE_TRANSITIONS,
)


def entry(
    first: int, last: int, from_state: RecordState | None, to_state: RecordState, count: int, cause: Cause
) -> TransitionEntry:
    return TransitionEntry(
        first_offset=first,
        last_offset=last,
        from_state=from_state,
        to_state=to_state,
        delivery_count=count,
        member_id="anna",
        deadline_ms=0,
        cause=cause,
        time_ms=0,
        request_offset=0,
    )


ACQUIRED = entry(0, 9, None, RecordState.ACQUIRED, 1, Cause.ACQUIRE)
RENEWED = entry(0, 9, RecordState.ACQUIRED, RecordState.ACQUIRED, 1, Cause.RENEW)
UNREAD = entry(5, 9, RecordState.ACQUIRED, RecordState.AVAILABLE, 0, Cause.UNREAD)
RELEASED = entry(0, 4, RecordState.ACQUIRED, RecordState.AVAILABLE, 1, Cause.RELEASE)
ACCEPTED = entry(3, 6, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED, 2, Cause.ACCEPT)
DELETED = entry(0, 4, RecordState.AVAILABLE, RecordState.ARCHIVED, 1, Cause.LOG_START)
EXPIRED = entry(0, 4, RecordState.ACQUIRED, RecordState.AVAILABLE, 1, Cause.LOCK_TIMEOUT)


@pytest.mark.parametrize(
    ("epochs", "entries", "expected"),
    [
        (SnapshotEpochs(-1, 0), [], SNAPSHOT),
        (SnapshotEpochs(-1, 0), [ACQUIRED], SNAPSHOT),
        (SnapshotEpochs(0, 0), [], TRANSITIONS),
        (SnapshotEpochs(0, 0), [ACQUIRED, RENEWED, UNREAD], TRANSITIONS),
        (SnapshotEpochs(0, 3), [ACQUIRED], TRANSITIONS),
        (SnapshotEpochs(0, 3), [DELETED], TRANSITIONS),
        (SnapshotEpochs(0, 0), [ACQUIRED, RELEASED], UPDATE),
        (SnapshotEpochs(0, 0), [ACCEPTED], UPDATE),
        (SnapshotEpochs(0, 2), [EXPIRED], UPDATE),
        (SnapshotEpochs(0, 3), [EXPIRED], SNAPSHOT),
        (SnapshotEpochs(7, 9), [ACCEPTED], SNAPSHOT),
    ],
)
def test_the_type_follows_from_what_kafka_would_persist(
    epochs: SnapshotEpochs, entries: list[TransitionEntry], expected: RecordType
) -> None:
    assert row_type(epochs, entries, updates_per_snapshot=3) is expected


def test_snapshots_are_numbered_and_updates_counted_between_them() -> None:
    epochs = SnapshotEpochs()
    seen = []
    for entries in [[ACQUIRED], [ACCEPTED], [ACQUIRED], [ACCEPTED], [ACCEPTED], [ACCEPTED]]:
        record_type = row_type(epochs, entries, updates_per_snapshot=2)
        epochs = epochs.after(record_type)
        seen.append((record_type, epochs.snapshot_epoch, epochs.updates_since_snapshot))
    assert seen == [
        (SNAPSHOT, 0, 0),
        (UPDATE, 0, 1),
        (TRANSITIONS, 0, 1),
        (UPDATE, 0, 2),
        (SNAPSHOT, 1, 0),
        (UPDATE, 1, 1),
    ]


RUNS = (
    Run(10, 14, RecordState.ACQUIRED, 1, "anna", 99),
    Run(15, 19, RecordState.ACKNOWLEDGED, 1),
    Run(20, 24, RecordState.AVAILABLE, 0),
    Run(25, 29, RecordState.AVAILABLE, 2),
    Run(30, 34, RecordState.ACQUIRED, 3, "ben", 80),
)


def batches_of(row: StateRow) -> list[tuple[int, int, RecordState, int]]:
    return [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in row.state_batches]


def test_a_snapshot_holds_locks_as_runs_and_what_kafka_persists_as_batches() -> None:
    row = share_partition_row(SNAPSHOT, 4, SharePartition(10, RUNS, state_epoch=2), [])
    assert (row.snapshot_epoch, row.state_epoch, row.start_offset, row.delivery_complete_count) == (4, 2, 10, 5)
    assert [entry.run for entry in row.runs] == list(RUNS)
    assert batches_of(row) == [
        (15, 19, RecordState.ACKNOWLEDGED, 1),
        (25, 34, RecordState.AVAILABLE, 2),
    ]


def test_an_update_holds_the_net_change_and_every_transition() -> None:
    row = share_partition_row(UPDATE, 4, SharePartition(0, (), state_epoch=2), [ACQUIRED, RELEASED, ACCEPTED])
    assert row.runs == []
    assert row.transitions == [ACQUIRED, RELEASED, ACCEPTED]
    assert batches_of(row) == [
        (0, 2, RecordState.AVAILABLE, 1),
        (3, 6, RecordState.ACKNOWLEDGED, 2),
    ]


def test_an_update_holds_nothing_below_the_start_offset() -> None:
    row = share_partition_row(UPDATE, 4, SharePartition(5, (), state_epoch=2), [RELEASED, ACCEPTED])
    assert batches_of(row) == [(5, 6, RecordState.ACKNOWLEDGED, 2)]


def test_an_update_joins_neighbours_that_kafka_stores_alike() -> None:
    other = entry(5, 9, RecordState.ACQUIRED, RecordState.AVAILABLE, 1, Cause.SESSION_CLOSE)
    row = share_partition_row(UPDATE, 4, SharePartition(0, (), state_epoch=2), [other, RELEASED])
    assert batches_of(row) == [(0, 9, RecordState.AVAILABLE, 1)]
