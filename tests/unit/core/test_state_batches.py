"""The combiner against one entry for each offset, and what Kafka has stored of a share-partition's runs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.core.state_batches import NO_START_OFFSET, StateBatch, combined, persisted_batches

PERSISTED_STATES = [state for state in RecordState if state.is_persisted]


@st.composite
def state_batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 40))
    last = first + draw(st.integers(0, 12))
    return StateBatch(first, last, draw(st.integers(0, 4)), draw(st.sampled_from(PERSISTED_STATES)))


BATCHES = st.lists(state_batches(), max_size=12)
START_OFFSETS = st.just(NO_START_OFFSET) | st.integers(0, 50)


def ranks(batches: list[StateBatch], start_offset: int = NO_START_OFFSET) -> dict[int, tuple[int, RecordState]]:
    """Offset → the highest rank of all batches that hold it."""
    highest: dict[int, tuple[int, RecordState]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            highest[offset] = max(highest.get(offset, batch.rank), batch.rank)
    return highest


@given(existing=BATCHES, new=BATCHES, start_offset=START_OFFSETS)
def test_each_offset_has_the_highest_rank_that_was_given_for_it(
    existing: list[StateBatch], new: list[StateBatch], start_offset: int
) -> None:
    result = combined(existing, new, start_offset)
    assert ranks(result) == ranks([*existing, *new], start_offset)
    assert all(before.last_offset < after.first_offset for before, after in pairwise(result))


@given(existing=BATCHES, new=BATCHES, start_offset=START_OFFSETS, data=st.data())
def test_the_result_does_not_hang_on_order_side_or_repetition(
    existing: list[StateBatch], new: list[StateBatch], start_offset: int, data: st.DataObject
) -> None:
    result = combined(existing, new, start_offset)
    mixed = data.draw(st.permutations([*existing, *new, *new]))
    assert combined(mixed, (), start_offset) == result


def test_a_batch_of_no_record_is_left_out() -> None:
    before, after = StateBatch(1, 3, 1, RecordState.AVAILABLE), StateBatch(6, 10, 1, RecordState.ARCHIVED)
    assert combined([before, StateBatch(8, 5, 2, RecordState.AVAILABLE)], [after], 0) == [before, after]


@given(batches=BATCHES)
def test_batches_that_do_not_overlap_become_as_few_as_they_can_be(batches: list[StateBatch]) -> None:
    apart = combined(combined(batches, (), NO_START_OFFSET), (), NO_START_OFFSET)
    assert not [
        (before, after)
        for before, after in pairwise(apart)
        if before.last_offset + 1 == after.first_offset and before.rank == after.rank
    ]


def batch(text: str) -> StateBatch:
    """A batch written `0..4 AVAILABLE 1`."""
    offsets, state, count = text.split()
    first, last = offsets.split("..")
    return StateBatch(int(first), int(last), int(count), RecordState[state])


@pytest.mark.parametrize(
    ("run", "stored"),
    [
        (Run(0, 4, RecordState.AVAILABLE, 0), []),
        (Run(0, 4, RecordState.AVAILABLE, 2), ["0..4 AVAILABLE 2"]),
        (Run(0, 4, RecordState.ACQUIRED, 1, "anna", 90), []),
        (Run(0, 4, RecordState.ACQUIRED, 3, "anna", 90), ["0..4 AVAILABLE 2"]),
        (Run(0, 4, RecordState.ACKNOWLEDGED, 1), ["0..4 ACKNOWLEDGED 1"]),
        (Run(0, 4, RecordState.ARCHIVING, 5), ["0..4 ARCHIVING 5"]),
        (Run(0, 4, RecordState.ARCHIVED, 0), ["0..4 ARCHIVED 0"]),
    ],
)
def test_kafka_stores_states_other_than_locks(run: Run, stored: list[str]) -> None:
    assert persisted_batches([run]) == [batch(text) for text in stored]


def test_runs_that_differ_in_what_kafka_does_not_store_are_one_batch() -> None:
    runs = [
        Run(0, 4, RecordState.ACQUIRED, 2, "anna", 90),
        Run(5, 9, RecordState.ACQUIRED, 2, "ben", 95),
        Run(10, 14, RecordState.AVAILABLE, 1, deadline_ms=70),
        Run(15, 19, RecordState.AVAILABLE, 1),
        Run(20, 24, RecordState.ACKNOWLEDGED, 1),
    ]
    assert persisted_batches(runs) == [batch("0..19 AVAILABLE 1"), batch("20..24 ACKNOWLEDGED 1")]
