"""Which spans of offsets are read for acquired ranges."""

from __future__ import annotations

import pytest

from sharegroup.client.held_records import HeldRange
from sharegroup.spark.acquired_records import MAX_READS, SKIPPED_OFFSETS, spans_of

FAR = SKIPPED_OFFSETS + 1


def held(*bounds: tuple[int, int], partition: int = 0) -> list[HeldRange]:
    return [HeldRange("id", "t", partition, first, last, 1) for first, last in bounds]


@pytest.mark.parametrize(
    ("ranges", "spans"),
    [
        ([(5, 5)], [(5, 6)]),
        ([(0, 9), (10, 19)], [(0, 20)]),
        ([(10, 19), (0, 9)], [(0, 20)]),
        ([(0, 9), (10 + SKIPPED_OFFSETS, 20 + SKIPPED_OFFSETS)], [(0, 21 + SKIPPED_OFFSETS)]),
        ([(0, 9), (10 + FAR, 20 + FAR)], [(0, 10), (10 + FAR, 21 + FAR)]),
        ([(n * FAR * 2, n * FAR * 2) for n in range(3)], [(n * FAR * 2, n * FAR * 2 + 1) for n in range(3)]),
    ],
)
def test_near_ranges_are_read_together(ranges: list[tuple[int, int]], spans: list[tuple[int, int]]) -> None:
    assert spans_of(held(*ranges)) == {("t", 0): spans}


def test_partitions_are_apart() -> None:
    ranges = [*held((0, 9)), *held((0, 4), partition=1)]
    assert spans_of(ranges) == {("t", 0): [(0, 10)], ("t", 1): [(0, 5)]}


def test_the_narrowest_gaps_are_read_along_when_there_are_too_many() -> None:
    starts = [sum(FAR + step for step in range(number)) + number for number in range(MAX_READS + 3)]
    ((_, spans),) = spans_of(held(*((start, start) for start in starts))).items()
    assert len(spans) == MAX_READS
    assert spans[0] == (0, starts[3] + 1)
    assert spans[1:] == [(start, start + 1) for start in starts[4:]]
