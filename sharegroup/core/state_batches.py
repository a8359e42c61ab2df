"""State batches: a share-partition's offsets as Kafka persists them, and the combiner that keeps them few.

Kafka stores neither members nor deadlines, and nothing of a record that was never delivered or is on its first
delivery. What it stores of a record that is acquired again is the state that the record had before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from sharegroup.core.record_state import RecordState
from sharegroup.core.runs import Run

NO_START_OFFSET = -1
"""A start offset that is not known, or not to be changed: nothing is cut at it."""


@dataclass(frozen=True, slots=True, order=True)
class StateBatch:
    """Offsets of one delivery state and count (Kafka's `PersisterStateBatch`).

    Batches sort by their fields in this order, as in Kafka.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        delivery_count: delivery count of each record.
        delivery_state: state of each record; never ACQUIRED when Kafka wrote it.
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: RecordState

    @property
    def rank(self) -> tuple[int, RecordState]:
        """Of two batches that say different things of one record, the one of higher rank holds."""
        return self.delivery_count, self.delivery_state


def persisted_batches(runs: Iterable[Run]) -> list[StateBatch]:
    """What Kafka has stored of records that are in these states, as few batches as possible.

    Args:
        runs: ascending runs that do not overlap.
    """
    return combined((), (batch for run in runs if (batch := _persisted(run)) is not None), NO_START_OFFSET)


def combined(existing: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Merge batches into ascending ones that do not overlap (Kafka's `PersisterStateBatchCombiner`).

    For each record the batch of the highest rank holds: a count never falls, and which batch is the newer one plays
    no part. Like Kafka's, the pass goes from left to right and does not come back, so that two equal batches that
    touch may stay apart where a third one lay between them; the bytes of Kafka's records depend on it.

    Args:
        existing: batches so far, in any order.
        new: further batches, in any order.
        start_offset: what lies below is left out; NO_START_OFFSET leaves nothing out.
    """
    waiting = list(_cut([*existing, *new], start_offset))
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


def _cut(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    for batch in batches:
        if start_offset == NO_START_OFFSET or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield replace(batch, first_offset=start_offset)


def _belongs_with(batch: StateBatch, after: StateBatch) -> bool:
    """Whether a batch and the next one overlap, or touch and say the same."""
    if batch.rank == after.rank:
        return after.first_offset <= batch.last_offset + 1
    return after.first_offset <= batch.last_offset


def _reconciled(batch: StateBatch, after: StateBatch) -> Iterator[StateBatch]:
    """The one of higher rank whole, and what it leaves of the other; both in one when they say the same."""
    if batch.rank == after.rank:
        yield replace(batch, last_offset=max(batch.last_offset, after.last_offset))
        return
    higher, lower = (batch, after) if batch.rank > after.rank else (after, batch)
    yield higher
    if lower.first_offset < higher.first_offset:
        yield replace(lower, last_offset=higher.first_offset - 1)
    if lower.last_offset > higher.last_offset:
        yield replace(lower, first_offset=higher.last_offset + 1)
