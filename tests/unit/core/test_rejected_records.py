"""Which ARCHIVING records were rejected, as the share-partition goes on."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import StartOffsetMoved, Transition
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.run import Run

ARCHIVING = RecordState.ARCHIVING


def given_up(first: int, last: int, cause: Cause) -> Transition:
    return Transition(first, last, RecordState.ACQUIRED, ARCHIVING, 2, "anna", 0, cause)


@pytest.mark.parametrize(
    ("rejected", "runs", "split"),
    [
        ([], [(0, 9)], [(0, 9, False)]),
        ([(0, 9)], [(0, 9)], [(0, 9, True)]),
        ([(2, 3), (6, 6)], [(0, 9)], [(0, 1, False), (2, 3, True), (4, 5, False), (6, 6, True), (7, 9, False)]),
        ([(0, 5)], [(3, 3), (5, 8)], [(3, 3, True), (5, 5, True), (6, 8, False)]),
        ([(0, 2)], [(4, 5)], [(4, 5, False)]),
    ],
)
def test_runs_are_split_by_what_was_rejected(
    rejected: list[tuple[int, int]], runs: list[tuple[int, int]], split: list[tuple[int, int, bool]]
) -> None:
    records = RejectedRecords()
    for first, last in rejected:
        records.note(given_up(first, last, Cause.REJECT))
    for kept in (records, RejectedRecords(rejected)):
        parts = kept.split(Run(first, last, ARCHIVING, 2) for first, last in runs)
        assert [(run.first_offset, run.last_offset, is_rejected) for run, is_rejected in parts] == split


def test_only_what_is_archiving_counts() -> None:
    records = RejectedRecords([(0, 9)])
    runs = [
        Run(0, 2, ARCHIVING, 1),
        Run(3, 4, RecordState.ARCHIVED, 1),
        Run(5, 5, ARCHIVING, 1),
        Run(6, 9, RecordState.AVAILABLE, 1),
    ]
    assert records.ranges(runs) == [(0, 2), (5, 5)]


def test_other_causes_do_not_reject_and_the_start_offset_passes_what_is_done() -> None:
    records = RejectedRecords()
    records.note(given_up(0, 4, Cause.REJECT))
    records.note(given_up(5, 9, Cause.LOCK_TIMEOUT))
    records.note(StartOffsetMoved(3))
    assert records.ranges([Run(0, 9, ARCHIVING, 2)]) == [(3, 4)]
