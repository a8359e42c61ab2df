"""The fold gives back what the live engine was when it wrote the rows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.coordinator.group_state import GroupState
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.errors import StateTableError
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupConfig,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
)
from sharegroup.protocol.row_payloads import LastRequest, SharePartitionPayload
from sharegroup.protocol.rows import RecordType, RunEntry, StateRow, TransitionEntry
from sharegroup.state.fold import MAX_LAST_REQUESTS, FoldedPartition, fold
from tests.state.share_partition_walk import BATCHES, GROUPS, Operation, Walk, folded_positions


@given(batches=BATCHES, seed=st.integers(0, 1_000))
def test_the_fold_of_rows_in_any_order_is_the_live_state(batches: list[list[Operation]], seed: int) -> None:
    walk = Walk()
    rows = [row for batch in batches for row in walk.batch(batch)]
    random.Random(seed).shuffle(rows)
    assert folded_positions(fold(rows)) == walk.positions()


@given(batches=BATCHES, data=st.data())
def test_the_fold_until_a_marker_is_the_live_state_at_that_marker(
    batches: list[list[Operation]], data: st.DataObject
) -> None:
    walk = Walk()
    rows: list[StateRow] = []
    positions = []
    end_offsets = []
    for batch in batches:
        rows += walk.batch(batch)
        positions.append(walk.positions())
        end_offsets.append(walk.end_offset)
    chosen = data.draw(st.integers(0, len(batches) - 1))
    until = dict.fromkeys(range(len(GROUPS)), end_offsets[chosen])
    assert folded_positions(fold(rows, until)) == positions[chosen]


def share_row(record_type: RecordType, request_offset: int, **columns: object) -> StateRow:
    where = {"group_id": "group-1", "topic_id": "topic-id", "topic": "orders", "partition": 0, "request_partition": 0}
    return StateRow.model_validate(
        {"record_type": record_type, "request_offset": request_offset, "start_offset": 0, **where, **columns}
    )


def transition(first_offset: int, last_offset: int, to_state: RecordState) -> TransitionEntry:
    return TransitionEntry(
        first_offset=first_offset,
        last_offset=last_offset,
        from_state=None,
        to_state=to_state,
        delivery_count=1,
        member_id="anna",
        deadline_ms=90 if to_state is RecordState.ACQUIRED else 0,
        cause=Cause.ACQUIRE if to_state is RecordState.ACQUIRED else Cause.RELEASE,
        time_ms=1,
        request_offset=1,
    )


def only_partition(rows: list[StateRow]) -> FoldedPartition:
    return fold(rows).groups["group-1"].partitions["topic-id", 0]


def test_a_snapshot_replaces_and_its_transitions_are_history() -> None:
    run = RunEntry(first_offset=7, last_offset=9, state=RecordState.AVAILABLE, delivery_count=2)
    folded = only_partition(
        [
            share_row(RecordType.SHARE_SNAPSHOT, 1, snapshot_epoch=0),
            share_row(RecordType.SHARE_UPDATE, 2, transitions=[transition(0, 6, RecordState.ACQUIRED)]),
            share_row(
                RecordType.SHARE_SNAPSHOT,
                3,
                snapshot_epoch=1,
                start_offset=7,
                runs=[run],
                transitions=[transition(7, 9, RecordState.ACQUIRED)],
            ),
        ]
    )
    assert list(folded.share_partition.runs) == [Run(7, 9, RecordState.AVAILABLE, 2)]
    assert (folded.share_partition.start_offset, folded.epochs.snapshot_epoch, folded.request_offset) == (7, 1, 3)


@pytest.mark.parametrize(
    ("later", "updates_since_snapshot"),
    [
        ([], 0),
        ([RecordType.SHARE_UPDATE], 1),
        ([RecordType.SHARE_TRANSITIONS, RecordType.SHARE_TRANSITIONS], 0),
        ([RecordType.SHARE_UPDATE, RecordType.SHARE_TRANSITIONS, RecordType.SHARE_UPDATE], 2),
        ([RecordType.SHARE_UPDATE, RecordType.SHARE_SNAPSHOT], 0),
    ],
)
def test_only_updates_count_towards_the_next_snapshot(later: list[RecordType], updates_since_snapshot: int) -> None:
    rows = [share_row(kind, offset) for offset, kind in enumerate([RecordType.SHARE_SNAPSHOT, *later])]
    assert only_partition(rows).epochs.updates_since_snapshot == updates_since_snapshot


def test_a_lock_comes_back_with_its_member_and_deadline() -> None:
    folded = only_partition(
        [
            share_row(RecordType.SHARE_SNAPSHOT, 1),
            share_row(RecordType.SHARE_TRANSITIONS, 2, transitions=[transition(0, 4, RecordState.ACQUIRED)]),
        ]
    )
    assert list(folded.share_partition.runs) == [Run(0, 4, RecordState.ACQUIRED, 1, "anna", 90)]


@pytest.mark.parametrize(
    ("until", "snapshot_epochs"),
    [({0: 0}, []), ({0: 5}, []), ({0: 6}, [0]), ({0: 9}, [0]), ({0: 10}, [1]), ({1: 10}, [])],
)
def test_an_end_offset_is_exclusive(until: dict[int, int], snapshot_epochs: list[int]) -> None:
    rows = [share_row(RecordType.SHARE_SNAPSHOT, offset, snapshot_epoch=epoch) for epoch, offset in enumerate([5, 9])]
    state = fold(rows, until)
    assert [p.epochs.snapshot_epoch for g in state.groups.values() for p in g.partitions.values()] == snapshot_epochs


def test_a_row_that_follows_nothing_is_an_error_that_names_it() -> None:
    with pytest.raises(StateTableError, match=r"ShareUpdate row of group group-1 at request offset 5 of partition 0"):
        fold([share_row(RecordType.SHARE_UPDATE, 5)])


def metadata_row(request_offset: int, *records: GroupRecord) -> StateRow:
    payload = {"records": [record.model_dump(mode="json") for record in records]}
    return share_row(RecordType.GROUP_METADATA, request_offset, payload=payload)


def test_group_metadata_is_what_its_records_add_up_to() -> None:
    history: list[list[GroupRecord]] = [
        [
            ShareGroupMetadata(epoch=1),
            ShareGroupMemberMetadata(member_id="anna", subscribed_topic_names=["orders"]),
            ShareGroupMemberMetadata(member_id="ben", subscribed_topic_names=["orders"]),
        ],
        [
            ShareGroupCurrentMemberAssignment(
                member_id="anna", member_epoch=1, previous_member_epoch=0, partitions={"topic-id": [0, 1]}
            ),
            ShareGroupConfig(overrides={"share.delivery.count.limit": "3"}),
        ],
        [ShareGroupMetadata(epoch=2), ShareGroupMemberRemoved(member_id="ben", reason="left")],
    ]
    live = GroupState()
    for records in history:
        for record in records:
            live.apply(record)
    rows = [metadata_row(offset, *records) for offset, records in enumerate(history)]
    assert fold(reversed(rows)).groups["group-1"].metadata.records() == live.records()


def test_a_metadata_record_without_its_member_is_an_error() -> None:
    assignment = ShareGroupCurrentMemberAssignment(
        member_id="nobody", member_epoch=1, previous_member_epoch=0, partitions={}
    )
    with pytest.raises(StateTableError, match=r"GroupMetadata row of group group-1.*nobody"):
        fold([metadata_row(1, assignment)])


def test_an_actor_is_quarantined_until_its_group_is_resumed() -> None:
    failed, resumed = (
        share_row(RecordType.GROUP_STATUS, offset, payload={"role": "leader", "status": status, "reason": reason})
        for offset, status, reason in [(4, "FAILED", "KeyError"), (9, "ACTIVE", "resumed")]
    )
    assert fold([failed]).groups["group-1"].failures == {ActorRole.LEADER: "KeyError"}
    alive = metadata_row(1, ShareGroupMetadata(epoch=1))
    assert fold([alive, failed, resumed]).groups["group-1"].failures == {}
    # Without members and configuration, nothing else was left of the group.
    assert fold([failed, resumed]).groups == {}


def test_a_group_whose_dead_letters_failed_is_gone_with_the_rest_of_it() -> None:
    degraded = share_row(
        RecordType.GROUP_STATUS, 7, payload={"role": "leader", "status": "DEGRADED", "reason": "no topic"}
    )
    snapshot, tombstone = share_row(RecordType.SHARE_SNAPSHOT, 2), share_row(RecordType.SHARE_TOMBSTONE, 6)
    assert fold([snapshot, degraded]).groups["group-1"].dead_letter_failure == "no topic"
    assert fold([snapshot, tombstone, degraded]).groups == {}
    assert fold([snapshot, tombstone]).groups == {}


def test_rows_without_a_group_make_no_group() -> None:
    assert fold([StateRow(record_type=RecordType.FENCE), StateRow(record_type=RecordType.COMMIT_MARKER)]).groups == {}


def test_the_oldest_last_requests_make_room() -> None:
    rows = [
        share_row(
            RecordType.SHARE_SNAPSHOT,
            offset,
            payload=SharePartitionPayload(
                last_requests=[LastRequest(member_id=name, share_session_epoch=1, correlation_id=1) for name in names]
            ).model_dump(mode="json"),
        )
        for offset, names in enumerate([["anna", "ben"], ["anna"], [str(n) for n in range(MAX_LAST_REQUESTS - 1)]])
    ]
    kept = fold(rows).groups["group-1"].last_requests
    assert len(kept) == MAX_LAST_REQUESTS
    assert "anna" in kept
    assert "ben" not in kept
