"""Batches of the state table: whole, in order, each message once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.audit.batches import check_batches
from sharegroup.audit.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow

Tampering = Callable[[list[StateRow]], None]


def marker(
    commit_id: int, end_offsets: dict[int, int], *, row_count: int = 2, leader_epoch: int = 1, checkpoint_id: str = "a"
) -> StateRow:
    payload = CommitMarkerPayload(checkpoint_id=checkpoint_id, row_count=row_count, end_offsets=end_offsets)
    return StateRow(
        record_type=RecordType.COMMIT_MARKER,
        commit_id=commit_id,
        leader_epoch=leader_epoch,
        payload=payload.model_dump(mode="json"),
    )


def metadata(commit_id: int, request_offset: int, *, request_partition: int = 0, leader_epoch: int = 1) -> StateRow:
    return StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id="group-1",
        commit_id=commit_id,
        leader_epoch=leader_epoch,
        request_partition=request_partition,
        request_offset=request_offset,
        payload={"records": []},
    )


@pytest.fixture
def rows() -> list[StateRow]:
    """Two batches, a restart with the checkpoint and one batch, a restart without it and one batch."""
    return [
        StateRow(record_type=RecordType.FENCE, leader_epoch=1),
        marker(0, {0: 3, 1: 0}),
        metadata(0, 2),
        marker(1, {0: 3, 1: 5}),
        metadata(1, 4, request_partition=1),
        StateRow(record_type=RecordType.FENCE, leader_epoch=2),
        marker(2, {0: 4, 1: 5}, leader_epoch=2),
        metadata(2, 3, leader_epoch=2),
        StateRow(record_type=RecordType.FENCE, leader_epoch=3),
        StateRow(record_type=RecordType.RECOVERED, leader_epoch=3),
        marker(0, {0: 9, 1: 5}, leader_epoch=3, checkpoint_id="b", row_count=1),
    ]


def test_batches_that_follow_each_other_hold(rows: list[StateRow]) -> None:
    assert check_batches(rows) == []
    assert check_batches(reversed(rows)) == []


def test_a_table_without_its_oldest_rows_lacks_them(rows: list[StateRow]) -> None:
    assert {first: [f.violation.invariant for f in check_batches(rows[first:])] for first in (0, 3, 5, 8)} == {
        0: [],
        3: ["rows_are_missing_only_when_pruned"],
        5: ["rows_are_missing_only_when_pruned"],
        8: ["rows_are_missing_only_when_pruned"],
    }


def test_rows_of_one_group_alone_have_no_batches_to_look_at(rows: list[StateRow]) -> None:
    assert check_batches(row for row in rows if row.group_id) == []


def test_a_marker_of_an_earlier_release_does_not_say_how_many_rows_it_has(rows: list[StateRow]) -> None:
    payload = {key: value for key, value in rows[1].payload.items() if key != "row_count"}
    rows[1] = rows[1].model_copy(update={"payload": payload})
    del rows[2]
    assert check_batches(rows) == []


def _drop(index: int) -> Tampering:
    return lambda rows: rows.__delitem__(index)


def _change(index: int, **columns: object) -> Tampering:
    def change(rows: list[StateRow]) -> None:
        rows[index] = rows[index].model_copy(update=columns)

    return change


@pytest.mark.parametrize(
    ("tampering", "invariant", "words"),
    [
        pytest.param(_drop(4), "each_batch_has_all_its_rows", "1 rows; it was committed with 2", id="a row is gone"),
        pytest.param(_drop(6), "each_batch_has_its_marker", "1 rows, but no marker", id="a marker is gone"),
        pytest.param(
            lambda rows: rows.insert(3, rows[2]), "each_batch_has_all_its_rows", "3 rows", id="a row is there twice"
        ),
        pytest.param(
            lambda rows: rows.__delitem__(slice(3, 5)),
            "batches_follow_each_other",
            "batch 1 should",
            id="a batch is gone",
        ),
        pytest.param(
            lambda rows: rows.extend([marker(2, {0: 9, 1: 5}, leader_epoch=4, row_count=1, checkpoint_id="b")]),
            "batches_follow_each_other",
            "batch 2 of checkpoint b where batch 1 should follow",
            id="a batch is skipped",
        ),
        pytest.param(
            _change(10, payload=marker(0, {0: 2, 1: 5}, checkpoint_id="b", row_count=1).payload),
            "messages_are_applied_once",
            "ends at 2 of request partition 0, after 4",
            id="offsets go back",
        ),
        pytest.param(
            _change(10, payload=marker(0, {0: 9}, checkpoint_id="b", row_count=1).payload),
            "messages_are_applied_once",
            "ends at None of request partition 1, after 5",
            id="a partition is forgotten",
        ),
        pytest.param(
            _change(7, request_offset=2), "messages_are_applied_once", "message 2 of request", id="a message twice"
        ),
        pytest.param(
            _change(2, request_offset=3), "messages_are_applied_once", "message 3 of request", id="a message too early"
        ),
        pytest.param(_change(1, payload={}), "payload_can_be_read", "checkpoint_id", id="a marker that says nothing"),
    ],
)
def test_tampering_is_found_under_its_name(
    rows: list[StateRow], tampering: Tampering, invariant: str, words: str
) -> None:
    tampering(rows)
    found = [finding.violation for finding in check_batches(rows)]
    assert [v.invariant for v in found if words in v.detail] == [invariant], found


def test_verify_looks_at_batches_too(rows: list[StateRow]) -> None:
    assert verify(rows, BrokerConfig()).findings == []
    del rows[4]
    (finding,) = verify(rows, BrokerConfig()).findings
    assert str(finding) == "batch 1 of leader epoch 1: each_batch_has_all_its_rows: 1 rows; it was committed with 2"
