"""The time that a thread waits in polls: counted for this thread only, also when the poll fails."""

from __future__ import annotations

import threading

import pytest

from sharegroup.client.waiting_polls import waited_ms, waiting_poll
from sharegroup.logs.log_clock import monotonic_ms
from tests.support.eventually import eventually


def wait(duration_ms: int) -> None:
    until_ms = monotonic_ms() + duration_ms
    eventually(lambda: monotonic_ms() >= until_ms, "some time")


def test_the_time_in_the_context_counts_and_no_other() -> None:
    before_ms = waited_ms()
    wait(20)
    assert waited_ms() == before_ms
    with waiting_poll():
        wait(20)
    assert waited_ms() >= before_ms + 20


def test_a_poll_that_fails_has_waited() -> None:
    before_ms = waited_ms()

    def fail() -> None:
        wait(20)
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"), waiting_poll():
        fail()
    assert waited_ms() >= before_ms + 20


def test_another_thread_has_waited_for_nothing() -> None:
    waited: list[int] = []
    with waiting_poll():
        wait(20)
    thread = threading.Thread(target=lambda: waited.append(waited_ms()))
    thread.start()
    thread.join()
    assert waited == [0]
