from __future__ import annotations

from dataclasses import replace

import pytest

from sharegroup.core.acquisition import AcquireMode, AcquireRequest, throttle_threshold
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
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
        (BATCH, 500, ["2..5 #2", "8..9 #2", "10..21 #1"]),
        (BATCH, 3, ["2..5 #2"]),
        (BATCH, 5, ["2..5 #2", "8..9 #2"]),
        (BATCH, 7, ["2..5 #2", "8..9 #2", "10..10 #1"]),
        (EXACT, 500, ["2..5 #2", "8..9 #2", "10..21 #1"]),
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
        (["0..0 ACQUIRED 1 m2 @99", "1..17 ACKNOWLEDGED 1"], ["18..36 #1"]),
        (["0..0 ACQUIRED 1 m2 @99", "1..17 ARCHIVED 1"], ["18..36 #1"]),
        (["0..9 ARCHIVING 1"], ["10..29 #1"]),
        (["0..9 AVAILABLE 1 @51"], ["10..29 #1"]),
        (["0..9 AVAILABLE 1 @50"], ["0..9 #2", "10..19 #1"]),
        (["0..19 ACQUIRED 1 m2 @99"], []),
        (["0..9 ACQUIRED 1 m2 @99", "10..19 AVAILABLE 1", "20..29 ACKNOWLEDGED 1"], ["10..19 #2"]),
        (["0..9 ACQUIRED 1 m2 @99", "10..29 AVAILABLE 1"], ["10..29 #2"]),
    ],
    ids=[
        "room",
        "finished records do not count",
        "archived records do not count",
        "records that wait for their dead letter do not count",
        "delayed records do not count",
        "a delay that is over does",
        "full",
        "full but some were released",
        "the limit was lowered",
    ],
)
@pytest.mark.parametrize("mode", AcquireMode)
def test_the_window_limits_new_records_only(mode: AcquireMode, runs: list[str], expected: list[str]) -> None:
    share_partition = partition(*runs, start_offset=0)
    acquirable = share_partition.acquirable_count(LIMITS, 100, NOW_MS)
    assert acquired(share_partition, mode=mode) == expected
    assert sum(r.size for r in share_partition.runs.held_by("m1")) == acquirable


TEN_MINUTES_MS = 600_000


def test_a_record_that_is_released_with_a_long_delay_leaves_the_window_to_the_others() -> None:
    limits = SharePartitionLimits(lock_duration_ms=1_000, max_record_locks=100)
    share_partition = SharePartition(0)
    delivered: list[int] = []

    def fetched(now_ms: int) -> list[int]:
        ranges, _ = share_partition.acquire(AcquireRequest("m1", 500), limits, 400, now_ms)
        return [offset for r in ranges for offset in range(r.first_offset, r.last_offset + 1)]

    offsets = fetched(NOW_MS)
    release = AcknowledgementBatch(0, 0, (AcknowledgeType.RELEASE,), TEN_MINUTES_MS)
    share_partition.acknowledge("m1", [release], limits, NOW_MS)
    offsets.remove(0)
    while offsets:
        assert len(offsets) <= 100
        delivered += offsets
        accept = AcknowledgementBatch(offsets[0], offsets[-1], (AcknowledgeType.ACCEPT,))
        share_partition.acknowledge("m1", [accept], limits, NOW_MS)
        offsets = fetched(NOW_MS)

    assert delivered == list(range(1, 400))
    assert share_partition.start_offset == 0
    assert fetched(NOW_MS + TEN_MINUTES_MS) == [0]


def test_records_whose_delay_ends_may_exceed_the_window_and_no_new_ones_come_until_it_has_room() -> None:
    share_partition = partition("0..9 AVAILABLE 1 @60", "10..29 ACQUIRED 1 m2 @99")

    def fetched(now_ms: int) -> list[str]:
        return shown_ranges(share_partition.acquire(AcquireRequest("m1", 500), LIMITS, 100, now_ms)[0])

    assert fetched(NOW_MS) == []
    assert fetched(60) == ["0..9 #2"]
    share_partition.acknowledge("m2", [AcknowledgementBatch(10, 19, (AcknowledgeType.ACCEPT,))], LIMITS, 60)
    assert fetched(60) == []
    share_partition.acknowledge("m2", [AcknowledgementBatch(20, 24, (AcknowledgeType.ACCEPT,))], LIMITS, 60)
    assert fetched(60) == ["30..34 #1"]


@pytest.mark.parametrize(
    ("max_span_offsets", "max_record_locks", "expected"),
    [(40, 20, ["37..39 #1"]), (38, 20, ["37..37 #1"]), (37, 20, []), (30, 39, ["37..38 #1"]), (30, 20, [])],
    ids=["rest of the span", "one offset", "full", "a larger window is the span", "the span was lowered"],
)
def test_the_span_from_the_start_offset_limits_new_records(
    max_span_offsets: int, max_record_locks: int, expected: list[str]
) -> None:
    limits = replace(LIMITS, max_span_offsets=max_span_offsets, max_record_locks=max_record_locks)
    share_partition = partition("0..0 AVAILABLE 1 @99", "1..35 ACKNOWLEDGED 1", "36..36 AVAILABLE 1 @99")
    assert share_partition.is_span_full(limits) == (not expected)
    assert acquired(share_partition, limits=limits) == expected


@pytest.mark.parametrize(("max_runs", "expected"), [(4, ["1..1 #2", "3..20 #1"]), (3, ["1..1 #2"])])
def test_the_runs_in_flight_limit_new_records(max_runs: int, expected: list[str]) -> None:
    limits = replace(LIMITS, max_runs=max_runs)
    share_partition = partition("0..0 ACQUIRED 1 m2 @99", "1..1 AVAILABLE 1", "2..2 ACKNOWLEDGED 1")
    assert share_partition.is_span_full(limits) == (max_runs == 3)
    assert acquired(share_partition, limits=limits) == expected


def test_the_default_span_is_a_million_offsets_or_ten_thousand_runs() -> None:
    limits = SharePartitionLimits()
    assert (limits.span_limit, limits.max_runs) == (1_000_000, 10_000)
    assert SharePartitionLimits(max_record_locks=10_000_000).span_limit == 10_000_000


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
