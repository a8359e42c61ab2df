"""An index of due times: the earliest one, and the keys that are due, without a scan."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

Key = TypeVar("Key", int, str, tuple[str, int])


class DueTimes(Generic[Key]):
    """At most one due time for each key.

    A key has one entry in the heap, which may be early: a postponed or removed time changes a dictionary only, and the
    entry moves when it comes to the front. Most times are postponed with each request.
    """

    __slots__ = ("_due_ms", "_heap", "_queued_ms")

    def __init__(self, due_ms: Mapping[Key, int] | None = None) -> None:
        self._due_ms: dict[Key, int] = dict(due_ms or {})
        self._queued_ms: dict[Key, int] = {}
        """Key → its entry in the heap, not above its due time; other entries of the heap are void."""
        self._heap: list[tuple[int, Key]] = []
        self._fill_heap()

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: Key) -> bool:
        return key in self._due_ms

    def set(self, key: Key, due_ms: int | None) -> None:
        """Set the due time of a key; None removes the key."""
        if due_ms is None:
            self._due_ms.pop(key, None)
        else:
            self._due_ms[key] = due_ms
            queued_ms = self._queued_ms.get(key)
            if queued_ms is None or due_ms < queued_ms:
                self._queued_ms[key] = due_ms
                heappush(self._heap, (due_ms, key))
                if len(self._heap) > 2 * len(self._due_ms) + 64:
                    self._fill_heap()

    @property
    def earliest_ms(self) -> int | None:
        """The earliest due time, None when there is none."""
        while self._heap:
            queued_ms, key = self._heap[0]
            due_ms = self._due_ms.get(key)
            if self._queued_ms.get(key) != queued_ms:
                heappop(self._heap)
            elif due_ms == queued_ms:
                return due_ms
            elif due_ms is None:
                heappop(self._heap)
                del self._queued_ms[key]
            else:
                heapreplace(self._heap, (due_ms, key))
                self._queued_ms[key] = due_ms
        return None

    def due(self, now_ms: int) -> list[Key]:
        """Return the keys that are due at or before `now_ms`, the earliest first; they stay."""
        entries: list[tuple[int, Key]] = []
        while (earliest_ms := self.earliest_ms) is not None and earliest_ms <= now_ms:
            entries.append(heappop(self._heap))
        for entry in entries:
            heappush(self._heap, entry)
        # A key that was set to an earlier time and back has two equal entries.
        return list(dict.fromkeys(key for _, key in entries))

    def take_due(self, now_ms: int) -> list[Key]:
        """Remove the keys that are due at or before `now_ms`, and return them, the earliest first."""
        due: list[Key] = []
        while self._heap and self._heap[0][0] <= now_ms:
            earliest_ms = self.earliest_ms
            if earliest_ms is None or earliest_ms > now_ms:
                break
            key = heappop(self._heap)[1]
            del self._due_ms[key], self._queued_ms[key]
            due.append(key)
        return due

    def _fill_heap(self) -> None:
        self._heap = [(due_ms, key) for key, due_ms in self._due_ms.items()]
        self._queued_ms = dict(self._due_ms)
        heapify(self._heap)
