"""Commits of the state table: whole, in order, each message once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.audit.verification.commits import check_commits
from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.rows import RecordType, StateRow

Tampering = Callable[[list[StateRow]], None]


def marker(
    commit_id: int,
    end_offsets: dict[int, int],
    *,
    row_count: int = 2,
    leader_epoch: int = 1,
    cuts: list[tuple[int, int]] | None = None,
) -> StateRow:
    """The marker of a commit with cuts (request partition, end offset)."""
    payload = CommitMarkerPayload(
        row_count=row_count,
        end_offsets=end_offsets,
        cuts=[Cut(partition=partition, end_offset=end, time_ms=1) for partition, end in cuts or []],
    )
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
        time_ms=1,
        payload={"records": []},
    )


@pytest.fixture
def rows() -> list[StateRow]:
    """Two commits, then a takeover and one commit, then a takeover and one commit of a marker alone."""
    return [
        StateRow(record_type=RecordType.FENCE, leader_epoch=1),
        marker(0, {0: 3, 1: 0}, cuts=[(0, 1), (0, 3)]),
        metadata(0, 2),
        marker(1, {0: 3, 1: 5}, cuts=[(1, 5)]),
        metadata(1, 4, request_partition=1),
        StateRow(record_type=RecordType.FENCE, leader_epoch=2),
        marker(2, {0: 4, 1: 5}, leader_epoch=2, cuts=[(0, 4)]),
        metadata(2, 3, leader_epoch=2),
        StateRow(record_type=RecordType.FENCE, leader_epoch=3),
        marker(3, {0: 9, 1: 6}, leader_epoch=3, row_count=1, cuts=[(0, 6), (1, 6), (0, 9)]),
    ]


def test_commits_that_follow_each_other_hold(rows: list[StateRow]) -> None:
    assert check_commits(rows) == []
    assert check_commits(reversed(rows)) == []


@pytest.mark.parametrize(
    ("first", "invariants"),
    [
        (0, []),
        (3, ["rows_are_missing_only_when_pruned", "commits_follow_each_other"]),
        (5, ["rows_are_missing_only_when_pruned", "commits_follow_each_other"]),
        (8, ["rows_are_missing_only_when_pruned", "commits_follow_each_other"]),
    ],
)
def test_a_table_without_its_oldest_rows_lacks_them(rows: list[StateRow], first: int, invariants: list[str]) -> None:
    assert [finding.violation.invariant for finding in check_commits(rows[first:])] == invariants


def test_rows_in_the_partition_of_their_date_hold(rows: list[StateRow]) -> None:
    dated = [row.model_copy(update={"date": "1970-01-01"}) for row in rows]
    assert check_commits(dated) == []


def test_rows_of_one_group_alone_have_no_commits_to_check(rows: list[StateRow]) -> None:
    assert check_commits(row for row in rows if row.group_id) == []


def _drop(index: int) -> Tampering:
    return lambda rows: rows.__delitem__(index)


def _change(index: int, **columns: object) -> Tampering:
    def change(rows: list[StateRow]) -> None:
        rows[index] = rows[index].model_copy(update=columns)

    return change


@pytest.mark.parametrize(
    ("tampering", "invariant", "words"),
    [
        pytest.param(_drop(4), "each_commit_has_all_its_rows", "1 rows; it was committed with 2", id="a row is gone"),
        pytest.param(_drop(6), "each_commit_has_its_marker", "1 rows, but no marker", id="a marker is gone"),
        pytest.param(
            lambda rows: rows.insert(3, rows[2]), "each_commit_has_all_its_rows", "3 rows", id="a row is there twice"
        ),
        pytest.param(
            lambda rows: rows.__delitem__(slice(3, 5)),
            "commits_follow_each_other",
            "commit 2 where commit 1 should follow",
            id="a commit is gone",
        ),
        pytest.param(
            lambda rows: rows.insert(7, rows[6]),
            "commits_follow_each_other",
            "commit 2 where commit 3 should follow",
            id="a commit is there twice",
        ),
        pytest.param(
            _change(9, leader_epoch=1), "leader_epochs_never_fall", "leader epoch 1 follows 2", id="an epoch falls"
        ),
        pytest.param(
            _change(7, leader_epoch=1),
            "a_commit_has_one_leader_epoch",
            "a GroupMetadata row has leader epoch 1",
            id="a row of another processor",
        ),
        pytest.param(
            _change(9, payload=marker(3, {0: 2, 1: 5}, row_count=1).payload),
            "messages_are_applied_once",
            "ends at 2 of request partition 0, after 4",
            id="offsets go back",
        ),
        pytest.param(
            _change(9, payload=marker(3, {0: 9}, row_count=1).payload),
            "messages_are_applied_once",
            "ends at None of request partition 1, after 5",
            id="a partition is forgotten",
        ),
        pytest.param(
            _change(9, payload=marker(3, {0: 9, 1: 6}, row_count=1, cuts=[(0, 6), (0, 6), (0, 9), (1, 6)]).payload),
            "cuts_are_ascending",
            "a cut of request partition 0 ends at 6, after 6",
            id="a cut twice",
        ),
        pytest.param(
            _change(9, payload=marker(3, {0: 9, 1: 6}, row_count=1, cuts=[(0, 8), (1, 6)]).payload),
            "cuts_end_at_the_marker",
            "the last cut of request partition 0 ends at 8, the marker at 9",
            id="a cut is gone",
        ),
        pytest.param(
            _change(7, request_offset=2), "messages_are_applied_once", "message 2 of request", id="a message twice"
        ),
        pytest.param(
            _change(2, request_offset=3), "messages_are_applied_once", "message 3 of request", id="a message too early"
        ),
        pytest.param(
            _change(2, date="1970-01-02"),
            "rows_are_in_the_partition_of_their_date",
            "a GroupMetadata row of 1 is in the partition of 1970-01-02",
            id="a row in the partition of another date",
        ),
        pytest.param(
            _change(2, date="1970-1-1"),
            "rows_are_in_the_partition_of_their_date",
            "is in the partition of 1970-1-1",
            id="a row in a partition that is no date",
        ),
        pytest.param(_change(1, payload={}), "payload_can_be_read", "end_offsets", id="a marker without its fields"),
    ],
)
def test_tampering_is_a_finding_of_its_invariant(
    rows: list[StateRow], tampering: Tampering, invariant: str, words: str
) -> None:
    tampering(rows)
    violations = [finding.violation for finding in check_commits(rows)]
    assert [v.invariant for v in violations if words in v.detail] == [invariant], violations


def test_verify_checks_commits_too(rows: list[StateRow]) -> None:
    assert verify(rows, BrokerConfig()).findings == []
    del rows[4]
    (finding,) = verify(rows, BrokerConfig()).findings
    assert str(finding) == "commit 1 of leader epoch 1: each_commit_has_all_its_rows: 1 rows; it was committed with 2"
