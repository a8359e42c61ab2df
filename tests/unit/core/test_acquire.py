from __future__ import annotations

import pytest

from sharegroup.core.acquisition import AcquireMode, AcquireRequest, throttle_threshold
from sharegroup.core.records import SharePartitionLimits
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import IllegalTransitionError
from tests.unit.core.notation import partition, run, shown, shown_ranges, shown_records

BATCH, EXACT = AcquireMode
LIMITS = SharePartitionLimits(lock_duration_ms=1_000, max_record_locks=20)
NOW_MS = 50


def acquired(
    share_partition: SharePartition,
    max_records: int = 500,
    mode: AcquireMode = BATCH,
    batch_size: int = 500,
    log_end_offset: int = 100,
    limits: SharePartitionLimits = LIMITS,
) -> list[str]:
    request = AcquireRequest("m1", max_records, batch_size, mode)
    return shown_ranges(share_partition.acquire(request, limits, log_end_offset, NOW_MS)[0])


@pytest.mark.parametrize("mode", AcquireMode)
def test_new_records_are_leased_with_count_1_until_the_lock_duration_is_over(mode: AcquireMode) -> None:
    share_partition = SharePartition(10)
    request = AcquireRequest("m1", max_records=5, mode=mode)

    ranges, records = share_partition.acquire(request, LIMITS, log_end_offset=100, now_ms=NOW_MS)

    assert shown_ranges(ranges) == ["10..14 #1"]
    assert shown_records(records) == ["10..14 NEW->ACQUIRED 1 by acquire"]
    assert shown(share_partition) == ["start 10", "10..14 ACQUIRED 1 m1 @1050"]


@pytest.mark.parametrize(
    ("max_records", "log_end_offset", "expected"),
    [
        (5, 100, ["0..4 #1"]),
        (500, 7, ["0..6 #1"]),
        (500, 100, ["0..19 #1"]),
        (500, 0, []),
        (0, 100, []),
        (-1, 100, []),
    ],
    ids=["max_records", "end of the log", "window", "empty log", "nothing wanted", "less than nothing"],
)
@pytest.mark.parametrize("mode", AcquireMode)
def test_what_ends_a_choice_of_new_records(
    mode: AcquireMode, max_records: int, log_end_offset: int, expected: list[str]
) -> None:
    assert acquired(SharePartition(0), max_records, mode, log_end_offset=log_end_offset) == expected


RELEASED = ("0..1 ACQUIRED 1 m2 @99", "2..5 AVAILABLE 1", "6..7 ACKNOWLEDGED 1", "8..9 AVAILABLE 1")


@pytest.mark.parametrize(
    ("mode", "max_records", "expected"),
    [
        (BATCH, 500, ["2..5 #2", "8..9 #2", "10..19 #1"]),
        (BATCH, 3, ["2..5 #2"]),
        (BATCH, 5, ["2..5 #2", "8..9 #2"]),
        (BATCH, 7, ["2..5 #2", "8..9 #2", "10..10 #1"]),
        (EXACT, 500, ["2..5 #2", "8..9 #2", "10..19 #1"]),
        (EXACT, 3, ["2..4 #2"]),
        (EXACT, 5, ["2..5 #2", "8..8 #2"]),
        (EXACT, 7, ["2..5 #2", "8..9 #2", "10..10 #1"]),
    ],
)
def test_available_records_come_first_and_only_batch_optimized_ends_a_run_past_max_records(
    mode: AcquireMode, max_records: int, expected: list[str]
) -> None:
    assert acquired(partition(*RELEASED), max_records, mode) == expected


def test_batch_optimized_stretches_a_run_by_less_than_batch_size() -> None:
    limits = SharePartitionLimits(max_record_locks=2_000)
    assert acquired(partition("0..99 AVAILABLE 1"), 50, batch_size=51, limits=limits) == ["0..50 #2", "51..99 #2"]
    assert acquired(partition("0..99 AVAILABLE 1"), 50, batch_size=50, limits=limits) == ["0..49 #2"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(BATCH, ["0..3 #1", "4..7 #1", "8..8 #1"]), (EXACT, ["0..8 #1"])],
    ids=["batch_optimized", "record_limit"],
)
def test_only_batch_optimized_splits_its_response_at_batch_size(mode: AcquireMode, expected: list[str]) -> None:
    assert acquired(SharePartition(0), 9, mode, batch_size=4) == expected


def test_ranges_of_equal_count_are_joined_in_the_response_and_others_not() -> None:
    share_partition = partition("0..1 AVAILABLE 1", "2..3 AVAILABLE 0", "4..5 AVAILABLE 1")
    assert acquired(share_partition, 8) == ["0..1 #2", "2..3 #1", "4..5 #2", "6..7 #1"]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (["0..0 ACQUIRED 1 m2 @99"], ["1..19 #1"]),
        (["0..0 ACQUIRED 1 m2 @99", "1..17 ACKNOWLEDGED 1"], ["18..19 #1"]),
        (["0..19 ACQUIRED 1 m2 @99"], []),
        (["0..9 ACQUIRED 1 m2 @99", "10..14 AVAILABLE 1", "15..19 ACKNOWLEDGED 1"], ["10..14 #2"]),
        (["0..9 ACQUIRED 1 m2 @99", "10..29 AVAILABLE 1"], ["10..29 #2"]),
    ],
    ids=["room", "finished records count", "full", "full but one was released", "the limit was lowered"],
)
def test_the_window_limits_new_records_only(runs: list[str], expected: list[str]) -> None:
    assert acquired(partition(*runs)) == expected


@pytest.mark.parametrize(
    ("delivery_count_limit", "threshold"), [(1, 2), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (10, 5), (25, 13)]
)
def test_the_throttle_threshold_is_half_of_the_limit_rounded_up(delivery_count_limit: int, threshold: int) -> None:
    assert throttle_threshold(delivery_count_limit) == threshold


@pytest.mark.parametrize(
    ("delivery_count_limit", "runs", "expected"),
    [
        (5, ["0..7 AVAILABLE 2"], ["0..7 #3", "8..19 #1"]),
        (5, ["0..7 AVAILABLE 3"], ["0..3 #4"]),
        (5, ["0..7 AVAILABLE 4"], ["0..0 #5"]),
        (10, ["0..7 AVAILABLE 5"], ["0..3 #6"]),
        (10, ["0..7 AVAILABLE 6"], ["0..1 #7"]),
        (10, ["0..7 AVAILABLE 8"], ["0..0 #9"]),
        (3, ["0..7 AVAILABLE 2"], ["0..0 #3"]),
        (2, ["0..7 AVAILABLE 1"], ["0..7 #2", "8..19 #1"]),
        (5, ["0..3 AVAILABLE 1", "4..7 AVAILABLE 3"], ["0..3 #2"]),
        (5, ["0..3 AVAILABLE 3", "4..7 AVAILABLE 1"], ["0..1 #4"]),
        (2, ["0..7 AVAILABLE 2"], ["0..0 #3"]),
        (5, ["0..7 AVAILABLE 5"], ["0..0 #6"]),
    ],
    ids=[
        "under the threshold",
        "at it: half",
        "last delivery: alone",
        "half",
        "quarter",
        "at least one",
        "limit 3: last delivery",
        "limit 2 never throttles",
        "waits behind others",
        "ends the choice",
        "a lowered limit",
        "loaded at the limit",
    ],
)
@pytest.mark.parametrize("mode", AcquireMode)
def test_records_near_the_delivery_count_limit_come_in_small_portions(
    mode: AcquireMode, delivery_count_limit: int, runs: list[str], expected: list[str]
) -> None:
    limits = SharePartitionLimits(delivery_count_limit=delivery_count_limit, max_record_locks=20)
    assert acquired(partition(*runs), mode=mode, limits=limits) == expected


@pytest.mark.parametrize("mode", AcquireMode)
def test_max_records_bounds_a_throttled_portion(mode: AcquireMode) -> None:
    assert acquired(partition("0..7 AVAILABLE 3"), max_records=2, mode=mode) == ["0..1 #4"]


def test_take_leases_a_choice_made_elsewhere_and_skipped_offsets_become_available() -> None:
    share_partition = partition("0..3 AVAILABLE 1", "4..5 ACQUIRED 1 m2 @99")

    records = share_partition.take("m1", [run("1..2 AVAILABLE 1"), run("8..9 AVAILABLE 0")], LIMITS, NOW_MS)

    assert shown_records(records) == ["1..2 AVAILABLE->ACQUIRED 2 by acquire", "8..9 NEW->ACQUIRED 1 by acquire"]
    assert shown(share_partition) == [
        "start 0",
        "0..0 AVAILABLE 1",
        "1..2 ACQUIRED 2 m1 @1050",
        "3..3 AVAILABLE 1",
        "4..5 ACQUIRED 1 m2 @99",
        "6..7 AVAILABLE 0",
        "8..9 ACQUIRED 1 m1 @1050",
    ]


@pytest.mark.parametrize(
    "chosen",
    [
        ["4..5 ACQUIRED 1 m2 @99"],
        ["3..4 AVAILABLE 1"],
        ["4..5 AVAILABLE 1"],
        ["0..3 AVAILABLE 0"],
        ["5..6 AVAILABLE 0"],
        ["6..7 AVAILABLE 1"],
        ["2..3 AVAILABLE 1", "0..1 AVAILABLE 1"],
        ["0..2 AVAILABLE 1", "2..3 AVAILABLE 1"],
    ],
    ids=[
        "not available",
        "partly acquired meanwhile",
        "acquired meanwhile",
        "other count",
        "partly never in flight",
        "never in flight but counted",
        "descending",
        "overlapping",
    ],
)
def test_take_refuses_what_is_not_in_flight_like_that_and_changes_nothing(chosen: list[str]) -> None:
    share_partition = partition("0..3 AVAILABLE 1", "4..5 ACQUIRED 1 m2 @99")
    before = shown(share_partition)

    with pytest.raises(IllegalTransitionError):
        share_partition.take("m1", [run(text) for text in chosen], LIMITS, NOW_MS)

    assert shown(share_partition) == before


def test_take_refuses_offsets_below_the_start_offset() -> None:
    with pytest.raises(IllegalTransitionError, match=r"Offsets 3\.\.6"):
        SharePartition(5).take("m1", [run("3..6 AVAILABLE 0")], LIMITS, NOW_MS)


@pytest.mark.parametrize(
    ("runs", "acquirable", "next_fetch_offset"),
    [
        ([], 20, 0),
        (["0..4 ACQUIRED 1 m2 @99"], 15, 5),
        (["0..4 ACQUIRED 1 m2 @99", "5..6 AVAILABLE 1", "7..9 ACQUIRED 1 m2 @99"], 12, 5),
        (["0..19 ACQUIRED 1 m2 @99"], 0, 20),
    ],
)
def test_acquirable_count_and_next_fetch_offset(runs: list[str], acquirable: int, next_fetch_offset: int) -> None:
    share_partition = partition(*runs, start_offset=0)
    assert share_partition.acquirable_count(LIMITS, 100, NOW_MS) == acquirable
    assert share_partition.next_fetch_offset(NOW_MS) == next_fetch_offset
    assert sum(r.size for r in share_partition.acquire(AcquireRequest("m1", 500), LIMITS, 100, NOW_MS)[0]) == acquirable
