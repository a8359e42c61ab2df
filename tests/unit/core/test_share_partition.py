from __future__ import annotations

import pytest

from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.record_state import AcknowledgeType, Cause
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord, StartOffsetMoved
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import StateTableError
from tests.unit.core.notation import partition, run, shown, shown_records

LIMITS = SharePartitionLimits(lock_duration_ms=1_000, delivery_count_limit=5)
DEAD_LETTERS = SharePartitionLimits(lock_duration_ms=1_000, delivery_count_limit=5, has_dead_letter_queue=True)

# --- what is loaded -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], ["start 10"]),
        (["10..14 AVAILABLE 1"], ["start 10", "10..14 AVAILABLE 1"]),
        (["12..14 AVAILABLE 1"], ["start 10", "10..11 AVAILABLE 0", "12..14 AVAILABLE 1"]),
        (
            ["10..11 AVAILABLE 1", "14..15 ARCHIVED 2"],
            ["start 10", "10..11 AVAILABLE 1", "12..13 AVAILABLE 0", "14..15 ARCHIVED 2"],
        ),
        (["10..11 AVAILABLE 1", "12..13 AVAILABLE 1"], ["start 10", "10..13 AVAILABLE 1"]),
        (["10..12 ACKNOWLEDGED 1", "13..13 ARCHIVED 2", "14..14 AVAILABLE 1"], ["start 14", "14..14 AVAILABLE 1"]),
        (["10..12 ACKNOWLEDGED 1"], ["start 13"]),
        (["10..12 ARCHIVING 5", "13..14 ACKNOWLEDGED 1"], ["start 10", "10..12 ARCHIVING 5", "13..14 ACKNOWLEDGED 1"]),
        (["10..12 ACQUIRED 1 m1 @99"], ["start 10", "10..12 ACQUIRED 1 m1 @99"]),
    ],
    ids=[
        "nothing",
        "from the start",
        "hole at the start",
        "hole inside",
        "equal neighbours",
        "finished prefix",
        "all finished",
        "archiving is not finished",
        "locks survive",
    ],
)
def test_stored_runs_become_the_state(runs: list[str], expected: list[str]) -> None:
    assert shown(partition(*runs, start_offset=10)) == expected


@pytest.mark.parametrize(
    "runs",
    [["8..14 ACKNOWLEDGED 1"], ["14..12 ACKNOWLEDGED 1"], ["10..12 AVAILABLE 1", "12..14 AVAILABLE 2"]],
    ids=["begins below the start offset", "reversed", "overlapping"],
)
def test_damaged_stored_runs_are_refused(runs: list[str]) -> None:
    with pytest.raises(StateTableError, match=r"not an ascending range at or above offset 1[03]"):
        partition(*runs, start_offset=10)


# --- locks --------------------------------------------------------------------------------------------------------

LOCKED = (
    "0..1 ACQUIRED 1 m1 @300",
    "2..3 ACQUIRED 5 m2 @100",
    "4..4 ACKNOWLEDGED 1",
    "5..6 ACQUIRED 2 m1 @200",
)


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [
        (99, []),
        (100, ["2..3 ACQUIRED->ARCHIVED 5 by lock_timeout"]),
        (
            200,
            ["2..3 ACQUIRED->ARCHIVED 5 by lock_timeout", "5..6 ACQUIRED->AVAILABLE 2! by lock_timeout"],
        ),
        (
            900,
            [
                "2..3 ACQUIRED->ARCHIVED 5 by lock_timeout",
                "5..6 ACQUIRED->AVAILABLE 2! by lock_timeout",
                "0..1 ACQUIRED->AVAILABLE 1! by lock_timeout",
            ],
        ),
    ],
)
def test_locks_end_at_their_deadline_the_earliest_first(now_ms: int, expected: list[str]) -> None:
    share_partition = partition(*LOCKED)
    assert shown_records(share_partition.expire_locks(LIMITS, now_ms)) == expected
    assert share_partition.expire_locks(LIMITS, now_ms) == []


def test_the_next_deadline_is_that_of_the_earliest_lock() -> None:
    share_partition = partition(*LOCKED)
    deadlines = []
    while (deadline_ms := share_partition.next_deadline_ms) is not None:
        deadlines.append(deadline_ms)
        share_partition.expire_locks(LIMITS, deadline_ms)
    assert deadlines == [100, 200, 300]


def test_a_renewed_lock_ends_at_its_new_deadline() -> None:
    share_partition = partition("0..3 ACQUIRED 1 m1 @100")
    share_partition.acknowledge("m1", [AcknowledgementBatch(1, 2, (AcknowledgeType.RENEW,))], LIMITS, now_ms=99)
    share_partition.expire_locks(LIMITS, now_ms=100)
    assert shown(share_partition) == [
        "start 0",
        "0..0 AVAILABLE 1!",
        "1..2 ACQUIRED 1 m1 @1099",
        "3..3 AVAILABLE 1!",
    ]


def test_a_timeout_at_the_delivery_count_limit_lets_the_start_offset_pass() -> None:
    share_partition = partition("0..1 ACQUIRED 5 m1 @100", "2..2 ACKNOWLEDGED 1", "3..3 ACQUIRED 1 m1 @900")
    assert shown_records(share_partition.expire_locks(LIMITS, 100)) == [
        "0..1 ACQUIRED->ARCHIVED 5 by lock_timeout",
        "start 3",
    ]


def test_a_record_is_delivered_as_often_as_the_limit_says_and_then_archived() -> None:
    share_partition = SharePartition(0)
    counts = []
    for attempt in range(10):
        request = AcquireRequest("m1", 1, takes_suspects=attempt > 0)
        ranges, _ = share_partition.acquire(request, LIMITS, log_end_offset=1, now_ms=attempt * 1_000)
        counts += [r.delivery_count for r in ranges]
        share_partition.expire_locks(LIMITS, now_ms=(attempt + 1) * 1_000)
    assert counts == [1, 2, 3, 4, 5]
    assert shown(share_partition) == ["start 1"]


# --- a share session closes ---------------------------------------------------------------------------------------


def test_a_closed_session_gives_back_what_its_member_holds_and_nothing_else() -> None:
    share_partition = partition(
        "0..1 ACQUIRED 1 m1 @300",
        "2..3 ACQUIRED 1 m2 @300",
        "4..4 ACKNOWLEDGED 1",
        "5..6 ACQUIRED 5 m1 @200",
        "7..8 AVAILABLE 3",
    )
    assert shown_records(share_partition.release_member("m1", LIMITS, now_ms=0)) == [
        "0..1 ACQUIRED->AVAILABLE 1 by session_close",
        "5..6 ACQUIRED->ARCHIVED 5 by session_close",
    ]
    assert share_partition.release_member("m1", LIMITS, now_ms=0) == []
    assert shown(share_partition) == [
        "start 0",
        "0..1 AVAILABLE 1",
        "2..3 ACQUIRED 1 m2 @300",
        "4..4 ACKNOWLEDGED 1",
        "5..6 ARCHIVED 5",
        "7..8 AVAILABLE 3",
    ]


# --- the log start moves ------------------------------------------------------------------------------------------

BEFORE_LOG_START = (
    "10..12 ACQUIRED 1 m1 @300",
    "13..14 AVAILABLE 2",
    "15..15 ACKNOWLEDGED 1",
    "16..17 ARCHIVING 5",
    "18..19 ARCHIVED 2",
    "20..21 ACQUIRED 1 m1 @300",
)


@pytest.mark.parametrize(
    ("log_start_offset", "records", "expected"),
    [
        (9, [], ["start 10", *BEFORE_LOG_START]),
        (10, [], ["start 10", *BEFORE_LOG_START]),
        (
            11,
            ["10..10 ACQUIRED->ARCHIVED 1 by log_start", "start 11 by log_start"],
            ["start 11", "11..12 ACQUIRED 1 m1 @300", *BEFORE_LOG_START[1:]],
        ),
        (
            14,
            [
                "10..12 ACQUIRED->ARCHIVED 1 by log_start",
                "13..13 AVAILABLE->ARCHIVED 2 by log_start",
                "start 14 by log_start",
            ],
            ["start 14", "14..14 AVAILABLE 2", *BEFORE_LOG_START[2:]],
        ),
        (
            18,
            [
                "10..12 ACQUIRED->ARCHIVED 1 by log_start",
                "13..14 AVAILABLE->ARCHIVED 2 by log_start",
                "16..17 ARCHIVING->ARCHIVED 5 by log_start",
                "start 18 by log_start",
                "start 20",
            ],
            ["start 20", BEFORE_LOG_START[-1]],
        ),
        (
            40,
            [
                "10..12 ACQUIRED->ARCHIVED 1 by log_start",
                "13..14 AVAILABLE->ARCHIVED 2 by log_start",
                "16..17 ARCHIVING->ARCHIVED 5 by log_start",
                "20..21 ACQUIRED->ARCHIVED 1 by log_start",
                "start 40 by log_start",
            ],
            ["start 40"],
        ),
    ],
    ids=["backwards", "where it is", "into a lock", "into available records", "onto finished records", "past the end"],
)
def test_what_lies_below_the_log_start_is_forgotten_whichever_member_holds_it(
    log_start_offset: int, records: list[str], expected: list[str]
) -> None:
    share_partition = partition(*BEFORE_LOG_START)
    assert shown_records(share_partition.move_log_start(log_start_offset, LIMITS)) == records
    assert shown(share_partition) == expected
    assert share_partition.next_offset == max(22, log_start_offset)


# --- dead-letter records ------------------------------------------------------------------------------------------


def test_an_archiving_record_holds_the_start_offset_until_its_dead_letter_is_written() -> None:
    share_partition = partition("0..3 ACQUIRED 5 m1 @100", "4..5 ACQUIRED 1 m1 @900")
    share_partition.expire_locks(DEAD_LETTERS, now_ms=100)
    assert shown(share_partition)[:2] == ["start 0", "0..3 ARCHIVING 5"]

    written = share_partition.finish_dead_letters(0, 1, DEAD_LETTERS, now_ms=200)

    assert shown_records(written) == ["0..1 ARCHIVING->ARCHIVED 5 by dead_letter_written", "start 2"]
    assert shown(share_partition) == ["start 2", "2..3 ARCHIVING 5", "4..5 ACQUIRED 1 m1 @900"]
    assert share_partition.finish_dead_letters(0, 1, DEAD_LETTERS, now_ms=300) == []


# --- records ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_offset", [3, 12, 40])
def test_a_reset_forgets_what_was_in_flight_in_both_directions(start_offset: int) -> None:
    share_partition = partition(*BEFORE_LOG_START)
    share_partition.apply(StartOffsetMoved(start_offset, Cause.OFFSET_RESET))
    assert shown(share_partition) == [f"start {start_offset}"]
    assert share_partition.next_offset == start_offset
    assert share_partition.next_deadline_ms is None


def test_the_records_of_every_operation_rebuild_the_state() -> None:
    live, replica = SharePartition(0), SharePartition(0)
    records: list[SharePartitionRecord] = []
    records += live.acquire(AcquireRequest("m1", 10), LIMITS, log_end_offset=50, now_ms=0)[1]
    records += live.take("m2", [run("15..19 AVAILABLE 0")], LIMITS, now_ms=500)
    records += live.acknowledge("m1", [AcknowledgementBatch(0, 4, (AcknowledgeType.ACCEPT,))], LIMITS, now_ms=600)
    records += live.release_member("m2", LIMITS, now_ms=700)
    records += live.expire_locks(LIMITS, now_ms=1_000)
    records += live.move_log_start(7, LIMITS)

    for record in records:
        replica.apply(record)

    assert shown(replica) == shown(live)
    assert shown(live) == ["start 7", "7..9 AVAILABLE 1!", "10..14 AVAILABLE 0", "15..19 AVAILABLE 1"]
