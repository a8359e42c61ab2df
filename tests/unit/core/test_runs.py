from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, _ = RecordState
LAST = 40
Content = tuple[RecordState, int, str, int, bool]

offsets = st.integers(0, LAST)
contents = st.one_of(
    st.tuples(st.just(ACQUIRED), st.integers(1, 2), st.sampled_from(["a", "b"]), st.integers(1, 3), st.booleans()),
    st.tuples(st.just(AVAILABLE), st.integers(0, 2), st.just(""), st.integers(0, 5), st.booleans()),
    st.tuples(
        st.sampled_from([ACKNOWLEDGED, ARCHIVING, ARCHIVED]),
        st.integers(0, 2),
        st.just(""),
        st.just(0),
        st.just(False),
    ),
)
ranges = st.tuples(offsets, offsets).map(lambda ends: (min(ends), max(ends)))
assignments = st.tuples(ranges, contents)


class OffsetByOffset:
    """The content of a RunMap, as one dictionary entry for each offset."""

    def __init__(self) -> None:
        self.content: dict[int, Content] = {}

    def assign(self, first: int, last: int, content: Content) -> None:
        self.content.update(dict.fromkeys(range(first, last + 1), content))

    def drop_below(self, offset: int) -> None:
        self.content = {at: content for at, content in self.content.items() if at >= offset}

    def runs(self, first: int = 0, last: int = LAST) -> list[Run]:
        runs: list[Run] = []
        for offset in range(first, last + 1):
            content = self.content.get(offset)
            if content is None:
                continue
            run = Run(offset, offset, *content)
            if runs and runs[-1].last_offset == offset - 1 and runs[-1].is_alike(run):
                runs[-1] = runs[-1]._replace(last_offset=offset)
            else:
                runs.append(run)
        return runs


@given(st.lists(assignments, max_size=25), offsets, ranges, st.integers(0, 4))
def test_a_run_map_behaves_as_a_dictionary_of_offsets_would(
    steps: list[tuple[tuple[int, int], Content]], dropped_below: int, read_range: tuple[int, int], now_ms: int
) -> None:
    runs, model = RunMap(), OffsetByOffset()
    for (first, last), content in steps:
        runs.assign(Run(first, last, *content))
        model.assign(first, last, content)
    runs.drop_below(dropped_below)
    model.drop_below(dropped_below)
    expected = model.runs()
    locks = sorted((run.deadline_ms, run.first_offset) for run in expected if run.state is ACQUIRED)

    assert list(runs) == expected
    assert len(runs) == len(expected)
    assert runs == RunMap(expected)
    assert runs.overlapping(*read_range) == model.runs(*read_range)
    assert runs.first_offset == (expected[0].first_offset if expected else None)
    assert runs.last_offset == (expected[-1].last_offset if expected else None)
    runs.make_available(now_ms)
    available = [run for run in expected if run.state is AVAILABLE]
    delayed = sorted((run.deadline_ms, run.first_offset) for run in available if run.deadline_ms > now_ms)
    for kind in (False, True):
        ready = [run for run in available if run.deadline_ms <= now_ms and run.is_suspect is kind]
        assert list(runs.available(are_suspects=kind)) == ready
        assert runs.available_count_below(1_000, are_suspects=kind) == sum(run.size for run in ready)
    for count in {run.delivery_count for run in expected}:
        suspects = [run.size for run in available if run.is_suspect and run.delivery_count == count]
        assert runs.suspect_count(count) == sum(suspects)
    assert [(run.deadline_ms, run.first_offset) for run in runs.delayed()] == delayed
    assert runs.next_available_ms == (delayed[0][0] if delayed else None)
    assert runs.terminal_count == sum(content[0].is_terminal for content in model.content.values())
    assert runs.member_ids == sorted({content[2] for content in model.content.values()} - {""})
    for member_id in ("a", "b"):
        held = [run for run in expected if run.member_id == member_id]
        assert runs.held_by(member_id) == held
        assert runs.are_suspects_held_by(member_id) is any(run.is_suspect for run in held)
    assert [run.first_offset for run in runs.due(now_ms)] == [first for deadline, first in locks if deadline <= now_ms]
    assert runs.next_deadline_ms == (locks[0][0] if locks else None)


@given(st.lists(assignments, max_size=25))
def test_filling_at_once_gives_what_assigning_one_by_one_gives(steps: list[tuple[tuple[int, int], Content]]) -> None:
    one_by_one = RunMap()
    for (first, last), content in steps:
        one_by_one.assign(Run(first, last, *content))
    halves = [
        half
        for run in one_by_one
        for half in (run._replace(last_offset=run.first_offset), run._replace(first_offset=run.first_offset + 1))
        if half.first_offset <= half.last_offset
    ]

    at_once = RunMap(halves)

    assert at_once == one_by_one
    assert at_once.held_by("a") == one_by_one.held_by("a")
    assert at_once.due(3) == one_by_one.due(3)
    for kind in (False, True):
        assert list(at_once.available(are_suspects=kind)) == list(one_by_one.available(are_suspects=kind))
        count = one_by_one.available_count_below(1_000, are_suspects=kind)
        assert at_once.available_count_below(1_000, are_suspects=kind) == count
    for count in {run.delivery_count for run in one_by_one}:
        assert at_once.suspect_count(count) == one_by_one.suspect_count(count)
    for member_id in ("a", "b"):
        assert at_once.are_suspects_held_by(member_id) is one_by_one.are_suspects_held_by(member_id)
    assert list(at_once.delayed()) == list(one_by_one.delayed())
    assert at_once.terminal_count == one_by_one.terminal_count


BASE = (Run(0, 9, ACQUIRED, 1, "a", 5), Run(10, 19, AVAILABLE, 1))


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        (Run(0, 9, ACKNOWLEDGED, 1), [Run(0, 9, ACKNOWLEDGED, 1), BASE[1]]),
        (Run(0, 3, ACKNOWLEDGED, 1), [Run(0, 3, ACKNOWLEDGED, 1), Run(4, 9, ACQUIRED, 1, "a", 5), BASE[1]]),
        (
            Run(4, 5, ACKNOWLEDGED, 1),
            [Run(0, 3, ACQUIRED, 1, "a", 5), Run(4, 5, ACKNOWLEDGED, 1), Run(6, 9, ACQUIRED, 1, "a", 5), BASE[1]],
        ),
        (Run(8, 9, AVAILABLE, 1), [Run(0, 7, ACQUIRED, 1, "a", 5), Run(8, 19, AVAILABLE, 1)]),
        (Run(8, 12, AVAILABLE, 1), [Run(0, 7, ACQUIRED, 1, "a", 5), Run(8, 19, AVAILABLE, 1)]),
        (Run(0, 19, ARCHIVED, 1), [Run(0, 19, ARCHIVED, 1)]),
        (Run(20, 24, AVAILABLE, 1), [BASE[0], Run(10, 24, AVAILABLE, 1)]),
        (Run(20, 24, AVAILABLE, 2), [*BASE, Run(20, 24, AVAILABLE, 2)]),
        (Run(30, 34, AVAILABLE, 1), [*BASE, Run(30, 34, AVAILABLE, 1)]),
    ],
    ids=["whole", "head", "middle", "tail joins", "over a border", "over all", "joins", "other count", "past a hole"],
)
def test_assign_cuts_what_it_overlaps_and_joins_equal_neighbours(assigned: Run, expected: list[Run]) -> None:
    runs = RunMap(BASE)
    runs.assign(assigned)
    assert list(runs) == expected


@pytest.mark.parametrize(
    ("runs", "count"),
    [
        ([], 0),
        ([Run(0, 4, AVAILABLE, 1)], 0),
        ([Run(0, 4, ACKNOWLEDGED, 1), Run(5, 5, ARCHIVED, 2), Run(6, 9, ARCHIVING, 2)], 2),
        ([Run(0, 4, ACKNOWLEDGED, 1), Run(6, 9, ACKNOWLEDGED, 1)], 1),
    ],
    ids=["empty", "open at the front", "up to the first unfinished", "up to a hole"],
)
def test_terminal_runs_from_an_offset_on(runs: list[Run], count: int) -> None:
    assert RunMap(runs).terminal_from(0) == runs[:count]


def test_the_last_offset_is_that_of_the_runs() -> None:
    runs = RunMap(BASE)
    assert runs.last_offset == BASE[-1].last_offset
    runs.assign(Run(30, 34, AVAILABLE, 1))
    assert runs.last_offset == 34
    runs.assign(Run(2, 3, ARCHIVED, 1))
    assert runs.last_offset == 34
    runs.drop_below(34)
    assert runs.last_offset == 34
    runs.drop_below(35)
    assert runs.last_offset is None
    runs.assign(Run(50, 50, AVAILABLE, 0))
    assert runs.last_offset == 50


@pytest.mark.parametrize(
    ("run", "is_there"),
    [
        (BASE[0], True),
        (Run(3, 4, ACQUIRED, 1, "a", 5), True),
        (Run(3, 4, ACQUIRED, 2, "a", 5), False),
        (Run(3, 4, ACQUIRED, 1, "a", 6), False),
        (Run(15, 24, AVAILABLE, 1), False),
    ],
    ids=["whole", "part", "other count", "other deadline", "reaches out"],
)
def test_contains(run: Run, is_there: bool) -> None:
    assert RunMap(BASE).contains(run) is is_there
