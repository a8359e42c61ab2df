"""The runs of a long history are those of a RunMap, however many of them are on the disk."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.audit.statistics.record_runs import RecordRuns
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap

_MOST = 60

offsets = st.integers(0, _MOST)
runs = st.builds(
    lambda first, size, state, count: Run(first, first + size, state, count),
    offsets,
    st.integers(0, 6),
    st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED]),
    st.integers(1, 3),
)
changes = st.lists(st.one_of(runs, offsets), max_size=60)
"""Runs that are set, and start offsets, which may move back."""


@given(changes, offsets, offsets, st.integers(1, 4))
def test_the_runs_are_those_in_memory(
    changed: list[Run | int], first_offset: int, last_offset: int, runs_per_block: int
) -> None:
    expected = RunMap([Run(3, 9, RecordState.AVAILABLE, 1)])
    actual = RecordRuns(expected, runs_per_block)
    for change in changed:
        if isinstance(change, Run):
            expected.assign(change)
            actual.assign(change)
        else:
            actual.move_start(change)
    assert list(actual) == list(expected)
    assert actual.overlapping(first_offset, last_offset) == expected.overlapping(first_offset, last_offset)
    assert list(actual) == list(expected)
    actual.close()
    assert list(actual) == []


def _delivered_alternately(record_runs: RecordRuns, start_offset: int) -> None:
    """Finish records one by one; neighbours have other counts, so that their runs never merge."""
    for offset in range(start_offset, 20_000):
        record_runs.assign(Run(offset, offset, RecordState.ACKNOWLEDGED, 1 + (offset + start_offset // 2) % 2))
        record_runs.move_start(offset + 1)


@pytest.mark.slow
@pytest.mark.parametrize("start_offset", [20_000, 0, 7_001])
def test_memory_does_not_grow_with_the_runs(start_offset: int) -> None:
    """Also not after the start offset was moved back, and some of the records were delivered again."""
    tracemalloc.start()
    record_runs = RecordRuns(runs_per_block=64)
    _delivered_alternately(record_runs, 0)
    record_runs.move_start(start_offset)
    _delivered_alternately(record_runs, start_offset)
    assert sum(run.size for run in record_runs) == 20_000
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    record_runs.close()
    assert peak_bytes < 400_000
