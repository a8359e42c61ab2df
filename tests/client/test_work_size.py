"""The size of pieces of work: where it goes for applications of several kinds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.work_size import WorkSize

USUAL_MS, LONGEST_MS = 2_000, 5_000
MOST = 1_000_000
Duration = Callable[[int], float]
"""Time of so many records, in ms."""


def size_of(first: int = 100, most: int = MOST) -> WorkSize:
    return WorkSize(first, 1, most, USUAL_MS, LONGEST_MS)


def work(size: WorkSize, duration_ms: Duration, steps: int) -> list[int]:
    """Work off full pieces; returns their sizes, and the next one."""
    sizes = [size.records]
    for _ in range(steps):
        size.worked_off(size.records, duration_ms(size.records))
        sizes.append(size.records)
    return sizes


@pytest.mark.parametrize(
    ("application", "duration_ms", "sizes"),
    [
        ("fast records", lambda count: 0.001 * count, [100, 800, 6_400, 51_200, 409_600, MOST, MOST]),
        ("as many as 2 s take", lambda count: count, [100, 800, 2_000, 2_000, 4_000, 2_000, 2_000]),
        ("slow records", lambda count: 50 * count, [100, 40, 40, 40]),
        ("a record of an hour", lambda count: 3_600_000 * count, [100, 1, 1, 2, 1]),
        ("a job of 250 ms", lambda count: 250 + 0.001 * count, [100, 799, 6_371, 49_701, 331_670, MOST]),
        ("a job of 3 s", lambda count: 3_000 + 0.01 * count, [100, 66, 100, 166, 1_328, 10_624, 84_992, 199_999]),
        ("a job of 6 s", lambda count: 6_000, [100, 50, 100, 800, 6_400, 51_200]),
    ],
)
def test_sizes(application: str, duration_ms: Duration, sizes: list[int]) -> None:
    assert work(size_of(), duration_ms, len(sizes) - 1) == sizes, application


@pytest.mark.parametrize("slow_record_ms", [1, 50, 3_000])
def test_queue_that_turns_slow_shrinks_within_two_steps(slow_record_ms: int) -> None:
    size = size_of()
    assert work(size, lambda count: 0.001 * count, 6)[-1] == MOST
    assert work(size, lambda count: slow_record_ms * count, 2)[-1] == max(USUAL_MS // slow_record_ms, 1)


def test_queue_that_turns_fast_again_grows() -> None:
    size = size_of()
    work(size, lambda count: 50 * count, 10)
    assert work(size, lambda count: 0.001 * count, 6)[-1] == MOST


def test_size_before_a_change_counts_until_its_work_has_ended() -> None:
    size = size_of(first=100_000)
    size.worked_off(100_000, 5_000_000)
    assert size.records == 40
    size.worked_off(100_000, 5_000_000)
    assert size.records == 40, "a second piece of the old size was in work"
    size.worked_off(40, 2_000)
    assert size.records == 40


def test_delay_that_has_passed_costs_one_small_piece() -> None:
    size = size_of(first=6_400)
    size.worked_off(6_400, 7_000)
    assert size.records == 3_200
    size.worked_off(3_200, 300)
    assert size.records == 6_400


def test_delay_of_several_pieces_at_once_costs_as_little() -> None:
    size = size_of(first=6_400)
    for worked_ms in (7_000, 7_100, 6_900):
        size.worked_off(6_400, worked_ms)
    assert size.records == 3_200
    size.worked_off(3_200, 300)
    assert size.records == 6_400


@pytest.mark.parametrize("first_ms", [6_000, 36_000, 120_000])
def test_jobs_that_take_long_by_themselves_leave_the_size_what_it_was(first_ms: int) -> None:
    """Of a busy machine, for example; the first one is the longest, since it compiles."""
    size = size_of()
    size.worked_off(100, first_ms)
    assert max(work(size, lambda count: 6_000 + count, 12)) >= 800


def test_quick_job_among_slow_ones_does_not_make_them_too_long() -> None:
    size = size_of()
    work(size, lambda count: 6_000 + count, 6)
    before = size.records
    size.worked_off(before, 1_000)
    size.worked_off(size.records, 8_000)
    assert size.records >= before


def test_one_quick_record_does_not_say_that_a_delay_has_passed() -> None:
    size = size_of(first=6_400)
    size.worked_off(6_400, 320_000)
    size.worked_off(1, 10)
    assert size.records == 40
    size.worked_off(40, 1_999)
    size.worked_off(1, 10)
    assert size.records == 40


def test_slow_few_records_never_let_the_size_grow() -> None:
    size = size_of()
    size.worked_off(60, 2_400)
    assert size.records == 100


def test_size_grows_until_a_piece_takes_its_time() -> None:
    size = size_of()
    assert not size.is_growing
    growing = []
    for _ in range(5):
        size.worked_off(size.records, 300)
        growing.append(size.is_growing)
    size.worked_off(size.records, 1_900)
    assert (growing, size.is_growing) == ([True] * 5, False)


@pytest.mark.parametrize("worked_ms", [1, 300, 1_500])
def test_few_records_say_little_about_many(worked_ms: int) -> None:
    size = size_of(first=50_000)
    size.worked_off(3, worked_ms)
    assert size.records == 50_000


def test_few_records_that_take_longer_than_many_did_shrink_the_size() -> None:
    size = size_of(first=50_000)
    size.worked_off(3, 2_500)
    assert size.records == 24


@given(
    st.integers(1, 1_000),
    st.lists(st.tuples(st.integers(1, 2 * MOST), st.floats(0, 10_000_000)), max_size=60),
)
def test_size_stays_within_its_bounds(most: int, pieces: list[tuple[int, float]]) -> None:
    size = size_of(first=min(100, most), most=most)
    for record_count, worked_ms in pieces:
        size.worked_off(record_count, worked_ms)
        assert 1 <= size.records <= most


@given(st.floats(0.0001, 5_000), st.floats(0, 1_900))
def test_pieces_take_at_most_the_longest_time(record_ms: float, job_ms: float) -> None:
    """Whatever a record and a job take, if one record can be done in time."""
    size = size_of()
    sizes = work(size, lambda count: job_ms + record_ms * count, 200)
    settled = sizes[12:]
    assert max(job_ms + record_ms * count for count in settled) <= max(LONGEST_MS, job_ms + 2 * record_ms) + 1
    if job_ms + 2 * record_ms < USUAL_MS:
        usual = min((USUAL_MS - job_ms) / record_ms, MOST)
        assert max(settled) >= 0.4 * usual
