"""The algebra of offset ranges against sets of offsets, and the map of ranges against a dictionary of offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.offset_ranges import RangeMap, consecutive, gaps, intersect, merge, split, subtract
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run

OFFSETS = st.sets(st.integers(0, 30))
BOUNDS = st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def run(first: int, last: int, count: int = 1) -> Run:
    return Run(first, last, RecordState.AVAILABLE, count)


def offsets_of(runs: list[Run]) -> list[int]:
    return [offset for item in runs for offset in range(item.first_offset, item.last_offset + 1)]


@given(OFFSETS, BOUNDS)
def test_gaps_and_ranges_together_are_the_whole_range(offsets: set[int], bounds: tuple[int, int]) -> None:
    ranges = list(consecutive(sorted(offsets)))
    assert [offset for first, last in ranges for offset in range(first, last + 1)] == sorted(offsets)
    assert all(before + 1 < after for (_, before), (after, _) in pairwise(ranges))
    whole = set(range(bounds[0], bounds[1] + 1))
    outside = list(gaps(*bounds, ranges))
    assert [offset for first, last in outside for offset in range(first, last + 1)] == sorted(whole - offsets)
    assert offsets_of(list(subtract(run(*bounds), ranges))) == sorted(whole - offsets)
    inside = intersect((run(*pair) for pair in ranges), *bounds)
    assert offsets_of(list(inside)) == sorted(whole & offsets)


@given(BOUNDS, st.integers(1, 7))
def test_parts_are_even_but_for_the_last_one(bounds: tuple[int, int], size: int) -> None:
    whole = run(*bounds)
    parts = list(split(whole, size))
    assert offsets_of(parts) == offsets_of([whole])
    assert all(part.size == size for part in parts[:-1])
    assert 1 <= parts[-1].size <= size
    assert list(merge(parts)) == list(merge(parts, Run.is_alike)) == [whole]


def test_only_neighbours_that_touch_and_are_alike_are_merged() -> None:
    apart = [run(0, 1), run(3, 4), run(5, 5, count=2), run(6, 6)]
    assert list(merge(apart)) == apart
    assert list(merge([])) == []


changes = st.lists(
    st.tuples(
        st.sampled_from(["assign", "fill", "drop_below"]),
        st.integers(0, 30),
        st.integers(0, 12),
        st.sampled_from("abc"),
    ),
    max_size=25,
)


@given(changes, st.integers(0, 30), st.integers(0, 30))
def test_it_holds_what_a_dictionary_would(changes: list[tuple[str, int, int, str]], first: int, size: int) -> None:
    ranges: RangeMap[str] = RangeMap()
    model: dict[int, str] = {}
    for kind, start, length, value in changes:
        end = start + length
        new = dict.fromkeys(range(start, end + 1), value)
        if kind == "assign":
            ranges.assign(start, end, value)
            model |= new
        elif kind == "fill":
            ranges.fill(start, end, value)
            model = new | model
        else:
            ranges.drop_below(start)
            model = {offset: value for offset, value in model.items() if offset >= start}
    assert {offset: value for low, high, value in ranges for offset in range(low, high + 1)} == model
    assert [offset for offset in range(50) if ranges.holds(offset)] == sorted(model)
    for (_, before, value), (after, _, other) in pairwise(ranges):
        assert before < after
        assert before + 1 < after or value != other
    within = ranges.overlapping(first, first + size)
    assert {offset: value for low, high, value in within for offset in range(low, high + 1)} == {
        offset: value for offset, value in model.items() if first <= offset <= first + size
    }
