"""The time of request partitions."""

from __future__ import annotations

import pytest

from sharegroup.processor.clocks import PartitionClocks


class Monotonic:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


@pytest.fixture
def clocks(monotonic: Monotonic) -> PartitionClocks:
    return PartitionClocks(monotonic)


def test_time_begins_with_the_first_stamp_and_goes_on(clocks: PartitionClocks, monotonic: Monotonic) -> None:
    assert clocks.observe(0, 5_000) == 5_000
    monotonic.now_s += 0.25
    assert clocks.now_ms(0) == 5_250


def test_a_later_stamp_puts_the_clock_forward(clocks: PartitionClocks, monotonic: Monotonic) -> None:
    clocks.observe(0, 5_000)
    monotonic.now_s += 1
    assert clocks.observe(0, 9_000) == 9_000
    monotonic.now_s += 1
    assert clocks.now_ms(0) == 10_000


def test_an_earlier_stamp_does_not_put_it_back(clocks: PartitionClocks, monotonic: Monotonic) -> None:
    clocks.observe(0, 5_000)
    monotonic.now_s += 1
    assert clocks.observe(0, 5_500) == 6_000
    assert clocks.observe(0, 100) == 6_000
    monotonic.now_s += 1
    assert clocks.now_ms(0) == 7_000


def test_each_partition_has_its_own_time(clocks: PartitionClocks, monotonic: Monotonic) -> None:
    clocks.observe(0, 5_000)
    monotonic.now_s += 1
    clocks.observe(1, 1_000)
    monotonic.now_s += 1
    assert (clocks.now_ms(0), clocks.now_ms(1)) == (7_000, 2_000)


def test_a_partition_without_a_stamp_has_no_time(clocks: PartitionClocks) -> None:
    with pytest.raises(KeyError):
        clocks.now_ms(0)
