"""Delay on release: who asks for it, how long it is, and when the records are back."""

from __future__ import annotations

import pytest

from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from tests.unit.core.notation import partition, shown, shown_ranges

OFF = SharePartitionLimits(lock_duration_ms=1_000)
BACKOFF = SharePartitionLimits(
    lock_duration_ms=1_000, delivery_count_limit=9, redelivery_backoff_ms=100, redelivery_backoff_max_ms=500
)
NOW_MS = 50
LOG_END = 10


@pytest.mark.parametrize(
    ("limits", "delivery_count", "asked_delay_ms", "becomes"),
    [
        (OFF, 1, None, "AVAILABLE 1"),
        (OFF, 1, 0, "AVAILABLE 1"),
        (OFF, 1, 700, "AVAILABLE 1 @750"),
        (OFF, 5, 700, "ARCHIVED 5"),
        (BACKOFF, 1, None, "AVAILABLE 1 @150"),
        (BACKOFF, 2, None, "AVAILABLE 2 @250"),
        (BACKOFF, 3, None, "AVAILABLE 3 @450"),
        (BACKOFF, 4, None, "AVAILABLE 4 @550"),
        (BACKOFF, 8, None, "AVAILABLE 8 @550"),
        (BACKOFF, 1, 0, "AVAILABLE 1"),
        (BACKOFF, 1, 700, "AVAILABLE 1 @750"),
        (BACKOFF, 9, None, "ARCHIVED 9"),
    ],
)
def test_a_release(limits: SharePartitionLimits, delivery_count: int, asked_delay_ms: int | None, becomes: str) -> None:
    share_partition = partition("0..0 ACQUIRED 1 m2 @99", f"1..3 ACQUIRED {delivery_count} m1 @99")
    batch = AcknowledgementBatch(1, 3, (AcknowledgeType.RELEASE,), asked_delay_ms)
    share_partition.acknowledge("m1", [batch], limits, NOW_MS)
    assert shown(share_partition)[2] == f"1..3 {becomes}"


@pytest.mark.parametrize(
    ("delivery_count", "asked_delay_ms", "becomes"),
    [
        (1, None, "AVAILABLE 0"),
        (1, 0, "AVAILABLE 0"),
        (1, 700, "AVAILABLE 0 @750"),
        (9, 700, "AVAILABLE 8 @750"),
    ],
    ids=["no delay", "none asked for", "a delay", "at the delivery limit"],
)
def test_unread_records_wait_only_if_the_member_asks_for_it(
    delivery_count: int, asked_delay_ms: int | None, becomes: str
) -> None:
    share_partition = partition("0..0 ACQUIRED 1 m2 @99", f"1..3 ACQUIRED {delivery_count} m1 @99")
    batch = AcknowledgementBatch(1, 3, (AcknowledgeType.UNREAD,), asked_delay_ms)
    share_partition.acknowledge("m1", [batch], BACKOFF, NOW_MS)
    assert shown(share_partition)[2] == f"1..3 {becomes}"


def test_a_renewal_does_not_delay() -> None:
    share_partition = partition("0..0 ACQUIRED 1 m2 @99", "1..3 ACQUIRED 1 m1 @99")
    batch = AcknowledgementBatch(1, 3, (AcknowledgeType.RENEW,), 700)
    share_partition.acknowledge("m1", [batch], BACKOFF, NOW_MS)
    assert shown(share_partition)[2] == "1..3 ACQUIRED 1 m1 @1050"


def test_a_lock_that_timed_out_backs_off() -> None:
    share_partition = partition("0..3 ACQUIRED 2 m1 @50")
    share_partition.expire_locks(BACKOFF, NOW_MS)
    assert shown(share_partition)[1:] == ["0..3 AVAILABLE 2! @250"]


def test_a_session_that_closes_gives_back_at_once() -> None:
    share_partition = partition("0..3 ACQUIRED 2 m1 @99")
    share_partition.release_member("m1", BACKOFF, NOW_MS)
    assert shown(share_partition)[1:] == ["0..3 AVAILABLE 2"]


def test_delayed_records_are_passed_over_until_their_time_has_come() -> None:
    share_partition = partition("0..3 AVAILABLE 1 @150", "4..5 AVAILABLE 0", "6..9 AVAILABLE 1 @120")
    assert share_partition.next_available_ms == 120

    def acquired(now_ms: int) -> list[str]:
        return shown_ranges(share_partition.acquire(AcquireRequest("m1", 10), OFF, LOG_END, now_ms)[0])

    assert share_partition.acquirable_count(OFF, LOG_END, 119) == 2
    assert acquired(119) == ["4..5 #1"]
    assert acquired(119) == []
    assert acquired(120) == ["6..9 #2"]
    assert share_partition.next_available_ms == 150
    assert acquired(150) == ["0..3 #2"]
    assert share_partition.next_available_ms is None


def test_delayed_records_hold_the_start_offset() -> None:
    share_partition = partition("0..0 AVAILABLE 1 @150", "1..3 ACQUIRED 1 m1 @99")
    share_partition.acknowledge("m1", [AcknowledgementBatch(1, 3, (AcknowledgeType.ACCEPT,))], OFF, NOW_MS)
    assert shown(share_partition) == ["start 0", "0..0 AVAILABLE 1 @150", "1..3 ACKNOWLEDGED 1"]
