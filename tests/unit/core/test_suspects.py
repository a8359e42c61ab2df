"""Portions of suspects, and their search in one share-partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.record_state import AcknowledgeType, Cause
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.suspects import portion_size
from tests.unit.core.notation import partition, shown, shown_ranges


@pytest.mark.parametrize(
    ("suspect_count", "delivery_count", "limit", "expected"),
    [
        (12, 1, 3, 4),
        (8, 1, 3, 3),
        (4, 2, 3, 1),
        (2_000, 1, 3, 45),
        (2_000, 1, 5, 2_000),
        (2_000, 2, 5, 159),
        (159, 3, 5, 13),
        (13, 4, 5, 1),
        (2_000, 1, 2, 1),
        (7, 9, 5, 1),
        (1_000_000, 2, 10, 177_828),
    ],
)
def test_a_portion_leaves_about_the_same_factor_for_each_further_delivery(
    suspect_count: int, delivery_count: int, limit: int, expected: int
) -> None:
    assert portion_size(suspect_count, delivery_count, limit) == expected


@given(st.integers(1, 3_000), st.integers(1, 12), st.integers(2, 10))
def test_a_portion_is_at_most_all_and_one_on_the_last_delivery(n: int, delivery_count: int, limit: int) -> None:
    size = portion_size(n, delivery_count, limit)
    assert 1 <= size <= n
    assert size == 1 or delivery_count < limit - 1


def crashes_and_fetches(size: int, guilty: set[int], limit: int) -> tuple[set[int], int, int]:
    """Records that are given up, crashes and fetches of one process that fetches all it can, and dies of the guilty."""
    limits = SharePartitionLimits(delivery_count_limit=limit, max_record_locks=size)
    share_partition = SharePartition(0)
    crashes = fetches = 0
    given_up: set[int] = set()
    while share_partition.start_offset < size:
        has_suspects = bool(share_partition.acquirable_suspect_count(size, now_ms=0))
        request = AcquireRequest("m1", size, batch_size=size, takes_suspects=has_suspects)
        ranges, _ = share_partition.acquire(request, limits, size, now_ms=0)
        fetches += 1
        offsets = {offset for run in ranges for offset in range(run.first_offset, run.last_offset + 1)}
        if offsets & guilty:
            crashes += 1
            given_up |= {o for run in ranges if run.delivery_count == limit for o in offsets}
            share_partition.release_member("m1", limits, 0, Cause.MEMBER_ENDED)
        else:
            batches = [AcknowledgementBatch(r.first_offset, r.last_offset, (AcknowledgeType.ACCEPT,)) for r in ranges]
            share_partition.acknowledge("m1", batches, limits, 0)
    return given_up, crashes, fetches


@pytest.mark.parametrize(
    ("size", "offset", "limit", "crashes", "fetches"),
    [(12, 5, 3, 3, 8), (2_000, 1_000, 5, 5, 57), (2_000, 1_000, 3, 3, 116), (2_000, 1_000, 2, 2, 2_001)],
)
def test_one_record_that_kills_is_found(size: int, offset: int, limit: int, crashes: int, fetches: int) -> None:
    assert crashes_and_fetches(size, {offset}, limit) == ({offset}, crashes, fetches)


def test_suspects_of_several_runs_make_one_portion_as_long_as_their_count_is_the_same() -> None:
    share_partition = partition(
        "0..1 AVAILABLE 2!", "2..3 ACKNOWLEDGED 1", "4..9 AVAILABLE 2!", "10..19 AVAILABLE 1!", "20..29 AVAILABLE 0"
    )
    request = AcquireRequest("m1", 500, takes_suspects=True)
    ranges, _ = share_partition.acquire(request, SharePartitionLimits(), 100, 0)
    assert shown_ranges(ranges) == ["0..1 #3", "4..5 #3"]


def test_others_pass_over_suspects() -> None:
    share_partition = partition("0..1 AVAILABLE 2!", "2..3 AVAILABLE 1", "4..9 AVAILABLE 2!", "10..11 AVAILABLE 0")
    ranges, _ = share_partition.acquire(AcquireRequest("m1", 500), SharePartitionLimits(), 12, 0)
    assert shown_ranges(ranges) == ["2..3 #2", "10..11 #1"]


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (AcknowledgeType.RELEASE, ["0..3 AVAILABLE 3", "4..7 AVAILABLE 2"]),
        (AcknowledgeType.UNREAD, ["0..3 AVAILABLE 2!", "4..7 AVAILABLE 1"]),
        (AcknowledgeType.RENEW, ["0..3 ACQUIRED 3! m1 @30050", "4..7 ACQUIRED 2 m1 @30050"]),
        (Cause.SESSION_CLOSE, ["0..3 AVAILABLE 3!", "4..7 AVAILABLE 2"]),
        (Cause.MEMBER_SILENT, ["0..3 AVAILABLE 3!", "4..7 AVAILABLE 2!"]),
        (Cause.MEMBER_ENDED, ["0..3 AVAILABLE 3!", "4..7 AVAILABLE 2!"]),
        (Cause.LOCK_TIMEOUT, ["0..3 AVAILABLE 3!", "4..7 AVAILABLE 2!"]),
    ],
)
def test_an_end_without_an_acknowledgement_makes_suspects_and_a_release_clears_them(
    cause: AcknowledgeType | Cause, expected: list[str]
) -> None:
    limits = SharePartitionLimits()
    share_partition = partition("0..3 ACQUIRED 3! m1 @50", "4..7 ACQUIRED 2 m1 @50")
    if isinstance(cause, AcknowledgeType):
        share_partition.acknowledge("m1", [AcknowledgementBatch(0, 7, (cause,))], limits, 50)
    elif cause is Cause.LOCK_TIMEOUT:
        share_partition.expire_locks(limits, 50)
    else:
        share_partition.release_member("m1", limits, 50, cause)
    assert shown(share_partition)[1:] == expected


def test_released_runs_below_the_last_delivery_share_a_fetch_and_come_one_a_fetch_at_it() -> None:
    released = [f"{2 * n}..{2 * n} AVAILABLE 3" for n in range(100)]
    accepted = [f"{2 * n + 1}..{2 * n + 1} ACKNOWLEDGED 1" for n in range(99)]
    others = [*accepted, "199..199 AVAILABLE 4"]
    share_partition = partition(*(run for pair in zip(released, others, strict=True) for run in pair))
    limits = SharePartitionLimits()
    ranges, _ = share_partition.acquire(AcquireRequest("m1", 500), limits, 200, 0)
    assert sum(run.size for run in ranges) == 100
    ranges, _ = share_partition.acquire(AcquireRequest("m1", 500), limits, 200, 0)
    assert shown_ranges(ranges) == ["199..199 #5"]
