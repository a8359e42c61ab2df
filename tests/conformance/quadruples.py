"""State batches as the recordings write them: `[first offset, last offset, state, delivery count]`."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch

Quadruple = list[int]


def state_batches(quadruples: Iterable[Quadruple]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(first, last, count, RecordState(state)) for first, last, state, count in quadruples)


def quadruples(batches: Iterable[StateBatch]) -> list[Quadruple]:
    return [[b.first_offset, b.last_offset, int(b.delivery_state), b.delivery_count] for b in batches]
