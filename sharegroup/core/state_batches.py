"""State batches: a share-partition's offsets as Kafka persists them, and the combiner that keeps them few.

Kafka stores neither members nor deadlines, and nothing for a record that was never delivered or is on its first
delivery. For a record that is acquired again it stores the state before that acquisition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from sharegroup.core.offset_ranges import subtract
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run

NO_START_OFFSET = -1
"""A start offset that is not known, or not to be changed: it lies below all offsets, so nothing is cut at it."""


class StateBatch(NamedTuple):
    """Offsets of one delivery state and count (Kafka's `PersisterStateBatch`).

    Batches sort by their fields in this order, as in Kafka.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        delivery_state: state of each record; never ACQUIRED when Kafka wrote it.
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: RecordState

    @property
    def rank(self) -> tuple[int, RecordState]:
        """Rank of the batch: where two batches disagree on a record, the one of higher rank applies."""
        return self.delivery_count, self.delivery_state

    def cut(self, first_offset: int, last_offset: int) -> StateBatch:
        """Return the batch with other offsets."""
        return StateBatch(first_offset, last_offset, self.delivery_count, self.delivery_state)


def persisted_batches(runs: Iterable[Run]) -> list[StateBatch]:
    """Return the batches that Kafka stores for records in these states, as few as possible."""
    return combined((), (batch for run in runs if (batch := _persisted(run)) is not None), NO_START_OFFSET)


def combined(existing: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Merge batches into ascending ones that do not overlap (Kafka's `PersisterStateBatchCombiner`).

    For each record the batch of the highest rank applies: a count never falls, and the age of a batch does not
    matter. Like Kafka's, the pass goes from left to right and does not come back, so that two equal batches that
    touch may stay apart where a third one lay between them; the bytes of Kafka's records depend on it.

    Args:
        existing: batches so far, in any order.
        new: further batches, in any order.
        start_offset: offsets below it are left out; NO_START_OFFSET leaves none out.
    """
    waiting = list(_from([*existing, *new], start_offset))
    if len(waiting) < 2:
        return waiting
    heapify(waiting)
    finished: list[StateBatch] = []
    while waiting:
        batch = heappop(waiting)
        if waiting and _belongs_with(batch, waiting[0]):
            for part in _reconciled(batch, heappop(waiting)):
                heappush(waiting, part)
        else:
            finished.append(batch)
    return finished


def _persisted(run: Run) -> StateBatch | None:
    state, count = run.state, run.delivery_count
    if not state.is_persisted:
        state, count = RecordState.AVAILABLE, count - 1
    if state is RecordState.AVAILABLE and count == 0:
        return None
    return StateBatch(run.first_offset, run.last_offset, count, state)


def _from(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    for batch in batches:
        if batch.last_offset < batch.first_offset:
            # Only a damaged row has such a batch. It is of no record, and the pass over it would not end.
            continue
        if batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch.cut(start_offset, batch.last_offset)


def _belongs_with(batch: StateBatch, after: StateBatch) -> bool:
    """Return True if a batch and the next one overlap, or touch and have equal rank."""
    if batch.rank == after.rank:
        return after.first_offset <= batch.last_offset + 1
    return after.first_offset <= batch.last_offset


def _reconciled(batch: StateBatch, after: StateBatch) -> Iterator[StateBatch]:
    """Yield the batch of higher rank and the rest of the other one; merge both if their ranks are equal."""
    if batch.rank == after.rank:
        yield batch.cut(batch.first_offset, max(batch.last_offset, after.last_offset))
        return
    higher, lower = (batch, after) if batch.rank > after.rank else (after, batch)
    yield higher
    yield from subtract(lower, [(higher.first_offset, higher.last_offset)])
