"""The few items with the highest rank among many, in constant memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

Ranked = TypeVar("Ranked")
Rank = tuple[int, ...]


class Highest(Generic[Ranked]):
    """Keeps the items of highest rank; of equal ones the first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[Rank, int, Ranked]] = []
        self._added_count = 0

    def add(self, rank: Rank, item: Ranked) -> None:
        """Add an item, and drop the lowest one when there are too many."""
        self._added_count += 1
        entry = (rank, -self._added_count, item)
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, entry)
        elif self._limit and entry[:2] > self._heap[0][:2]:
            heapq.heapreplace(self._heap, entry)

    def __iter__(self) -> Iterator[Ranked]:
        """Iterate over the items, highest rank first."""
        return (item for _, _, item in sorted(self._heap, key=lambda entry: entry[:2], reverse=True))
