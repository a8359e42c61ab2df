"""Records in flight of another system, as requests and rows carry them: what a share-partition begins with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch

_Offset = Annotated[int, Field(ge=0, lt=2**63 - 1)]
"""Below the highest number of 64 bits: the start offset after the last record is a number of 64 bits, too."""
_DeliveryCount = Annotated[int, Field(ge=0, lt=2**15)]
ImportedBatch = tuple[_Offset, _Offset, RecordState, _DeliveryCount]
"""First and last offset, delivery state, delivery count. As a list it takes a third of the bytes of an object."""
MAX_IMPORTED_BATCHES = 10_000
"""Batches of one share-partition: Kafka's largest window has as many records."""


def check_batches(start_offset: int, batches: Sequence[ImportedBatch]) -> None:
    """Check that batches are a state that Kafka could have stored.

    Raises:
        ValueError: one is reversed, below the start offset, ACQUIRED, or not above the one before it.
    """
    free_from = start_offset
    for first, last, state, _ in batches:
        if not free_from <= first <= last:
            raise ValueError(f"the batch {first}..{last} is not an ascending range at or above offset {free_from}")
        if not state.is_persisted:
            raise ValueError(f"the batch {first}..{last} is {state.name}: locks cannot be imported")
        free_from = last + 1


def imported_batch(batch: StateBatch) -> ImportedBatch:
    """Return a state batch in the form of a message."""
    return batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count


def state_batches(batches: Iterable[ImportedBatch]) -> tuple[StateBatch, ...]:
    """Return the state batches of a message."""
    return tuple(StateBatch(first, last, count, state) for first, last, state, count in batches)
