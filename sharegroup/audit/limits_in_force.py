"""Which of a group's configurations a transition was made under, as far as the rows tell.

The rows say when a configuration was decided, not when the leader heard of it; but it hears of them in their order. So
each one that was decided may be in force until something was done that is right only under a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sharegroup.core.invariants import Violation
from sharegroup.core.records import SharePartitionLimits


@dataclass(slots=True)
class _Known:
    """A configuration, and the time of the batch in which a later one was in force already."""

    limits: SharePartitionLimits
    superseded_ms: int | None = None


class LimitsInForce:
    """The limits that a group's leader may go by.

    Args:
        first: those of a group that has configured nothing.
    """

    def __init__(self, first: SharePartitionLimits) -> None:
        self._known = [_Known(first)]
        self.highest_delivery_count_limit = first.delivery_count_limit
        """Deliveries that were made under a higher limit stay counted."""

    def add(self, limits: SharePartitionLimits) -> None:
        """From here on these may be in force, too."""
        if self._known[-1].limits != limits:
            self._known.append(_Known(limits))
        self.highest_delivery_count_limit = max(self.highest_delivery_count_limit, limits.delivery_count_limit)

    def violations(self, check: Callable[[SharePartitionLimits], list[Violation]], batch_ms: int) -> list[Violation]:
        """What does not hold under any of the limits, by the latest of them; nothing when one allows it.

        Args:
            check: limits → what does not hold under them.
            batch_ms: time of the batch. Rows of one batch do not tell which of them was first.
        """
        self._known = [k for k in self._known if k.superseded_ms is None or batch_ms <= k.superseded_ms]
        found: list[Violation] = []
        for index, known in enumerate(self._known):
            if not (found := check(known.limits)):
                for earlier in self._known[:index]:
                    earlier.superseded_ms = batch_ms if earlier.superseded_ms is None else earlier.superseded_ms
                break
        return found
