"""The ends of a member's locks, which it knows by a clock of its own that is never set."""

from __future__ import annotations

import pytest

from tests.client.test_member_protocol import EPOCH_MS, LOCK_MS, SETTINGS, Driver


def lock_end_ms(driver: Driver) -> int:
    """When the locks of the waiting records end."""
    waiting = driver.protocol.waiting.after(0)
    assert waiting is not None
    return waiting.lock_deadline_ms


def test_locks_end_when_what_was_left_of_them_at_publishing_is_over() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    # A response that is kept for repeated requests, or is in the outbox of an earlier processor.
    driver.brings("orders", lock_ms=20_000)
    assert lock_end_ms(driver) == 20_000


@pytest.mark.parametrize("lock_ms", [0, -60_000])
def test_locks_that_were_over_at_publishing_bring_no_records(lock_ms: int) -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders", lock_ms=lock_ms)
    assert driver.protocol.take(driver.now_ms) is None


def test_a_deadline_that_is_too_far_ends_with_the_duration_of_the_locks() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders", lock_ms=3_600_000)
    assert lock_end_ms(driver) == LOCK_MS


def test_a_response_without_the_time_of_its_publishing_brings_whole_locks() -> None:
    driver = Driver(publishes_time=False).subscribed("orders")
    driver.sends()
    driver.brings("orders", lock_ms=-EPOCH_MS)
    assert lock_end_ms(driver) == LOCK_MS


def test_a_response_that_was_on_its_way_for_long_brings_locks_no_longer_than_the_request_allows() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.now_ms = 2_500
    # Sent again: the response may be to the first sending.
    driver.sends()
    driver.now_ms = 10_000
    driver.brings("orders")
    assert lock_end_ms(driver) == SETTINGS.fetch.max_wait_ms + LOCK_MS


def test_a_sending_that_did_not_reach_the_log_does_not_count() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.protocol.send_failed(driver.now_ms)
    driver.now_ms = 60_000
    driver.sends()
    driver.brings("orders")
    assert lock_end_ms(driver) == 60_000 + LOCK_MS
