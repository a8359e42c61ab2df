"""Keys in ascending order: a list while they are few, as most often, and a SortedList when that is faster."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

from sortedcontainers import SortedList

_MANY = 1_000
"""Keys from which on a SortedList is faster. An empty one takes 10 µs to make, and 0.7 KB."""

_Key = TypeVar("_Key", int, tuple[int, int])


class SortedKeys(Generic[_Key]):
    """A sorted collection.

    Args:
        keys: ascending keys; the list belongs to the collection from now on.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: list[_Key]) -> None:
        self._keys: list[_Key] | SortedList[_Key] = keys if len(keys) < _MANY else SortedList(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> _Key:
        return self._keys[index]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._keys)

    def add(self, key: _Key) -> None:
        """Add a key."""
        keys = self._keys
        if not isinstance(keys, list):
            keys.add(key)
            return
        insort(keys, key)
        if len(keys) >= _MANY:
            self._keys = SortedList(keys)

    def remove(self, key: _Key) -> None:
        """Remove an existing key."""
        keys = self._keys
        if isinstance(keys, list):
            del keys[bisect_left(keys, key)]
        else:
            keys.remove(key)

    def replace(self, key: _Key, by: _Key) -> None:
        """Replace an existing key by one that has the same place in the order."""
        keys = self._keys
        if isinstance(keys, list):
            keys[bisect_left(keys, key)] = by
        else:
            keys.remove(key)
            keys.add(by)

    def pop(self, index: int = 0) -> _Key:
        """Remove and return the key at an index."""
        return self._keys.pop(index)

    def take_below(self, key: _Key) -> list[_Key]:
        """Remove and return the keys below one."""
        keys = self._keys
        index = bisect_left(keys, key) if isinstance(keys, list) else keys.bisect_left(key)
        below = list(keys[:index])
        del keys[:index]
        return below

    def bisect_right(self, key: _Key) -> int:
        """Return the index after all keys up to this one."""
        keys = self._keys
        return bisect_right(keys, key) if isinstance(keys, list) else keys.bisect_right(key)

    def from_index(self, index: int) -> Iterator[_Key]:
        """Iterate over the keys from an index on; the collection must not change meanwhile."""
        keys = self._keys
        return islice(keys, index, None) if isinstance(keys, list) else keys.islice(index)
