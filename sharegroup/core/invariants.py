"""Violations of invariants of a share-partition and of its records (spec 002, "Invariants & guarantees").

Tests check invariants at every step; an audit checks them while it folds stored records. Each is one function,
registered by its name in `state_invariants.STATE_INVARIANTS` or `record_invariants.RECORD_INVARIANTS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.core.run import Run


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold.

    Attributes:
        invariant: its name in the registry.
        detail: the offsets, the actual values, and the values that contradict them.
    """

    invariant: str
    detail: str


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The limits and the time at which a record was made.

    Attributes:
        now_ms: the time at which it was made; epoch ms.
        highest_delivery_count_limit: the highest delivery count limit that applied to any record in flight;
            deliveries made under a higher limit stay counted. None = the one of `limits`.
    """

    limits: SharePartitionLimits
    now_ms: int
    highest_delivery_count_limit: int | None = None


def shown(item: Run | Transition) -> str:
    """Return a run or a transition as text for a detail."""
    state = item.to_state if isinstance(item, Transition) else item.state
    by_cause = f" by {item.cause.value}" if isinstance(item, Transition) else ""
    return f"{item.first_offset}..{item.last_offset} {state.name} with count {item.delivery_count}{by_cause}"
