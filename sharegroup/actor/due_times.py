"""An index of due times: the earliest one, and what is due by now, without a scan."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", str, tuple[str, int])


class DueTimes(Generic[Key]):
    """At most one due time for each key.

    A time that is replaced or removed stays in the heap until it comes to the front, or until such entries are the
    greater part of the heap.
    """

    def __init__(self) -> None:
        self._due_ms: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._due_ms)

    def set(self, key: Key, due_ms: int | None) -> None:
        """Give a key its due time in place of the one before; None removes the key."""
        if due_ms is None:
            self._due_ms.pop(key, None)
        elif self._due_ms.get(key) != due_ms:
            self._due_ms[key] = due_ms
            heappush(self._heap, (due_ms, key))
        if len(self._heap) > 2 * len(self._due_ms) + 64:
            self._heap = [(due_ms, key) for key, due_ms in self._due_ms.items()]
            heapify(self._heap)

    @property
    def earliest_ms(self) -> int | None:
        """The earliest due time, None when there is none."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[Key]:
        """Remove the keys that are due at or before `now_ms`; returns them, the earliest first."""
        due: list[Key] = []
        while (earliest_ms := self.earliest_ms) is not None and earliest_ms <= now_ms:
            key = heappop(self._heap)[1]
            del self._due_ms[key]
            due.append(key)
        return due
