"""The algebra of offset ranges, and an ordered map from ranges to values.

Offsets are inclusive on both ends, as in Kafka's protocol. A bare range is a pair of offsets. An item is a value that
covers a range (a run, a state batch, held records): the functions return parts of it, made by its own `cut`, which
keep everything but the offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, Self, TypeVar

OffsetRange = tuple[int, int]
"""First and last offset."""
Value = TypeVar("Value")


class Ranged(Protocol):
    """A value that covers a range of offsets."""

    @property
    def first_offset(self) -> int:
        """First offset, inclusive."""
        ...

    @property
    def last_offset(self) -> int:
        """Last offset, inclusive."""
        ...

    def cut(self, first_offset: int, last_offset: int, /) -> Self:
        """Return the same value with other offsets."""
        ...


Item = TypeVar("Item", bound=Ranged)


def clip(item: Item, first_offset: int, last_offset: int) -> Item:
    """Return the part of an item inside a range that overlaps it."""
    if first_offset <= item.first_offset and item.last_offset <= last_offset:
        return item
    return item.cut(max(item.first_offset, first_offset), min(item.last_offset, last_offset))


def intersect(items: Iterable[Item], first_offset: int, last_offset: int) -> Iterator[Item]:
    """Yield the parts of items inside a range."""
    for item in items:
        if item.first_offset <= last_offset and first_offset <= item.last_offset:
            yield clip(item, first_offset, last_offset)


def subtract(item: Item, ranges: Iterable[OffsetRange]) -> Iterator[Item]:
    """Yield the parts of an item outside ranges that ascend by their first offsets."""
    for first_offset, last_offset in gaps(item.first_offset, item.last_offset, ranges):
        yield clip(item, first_offset, last_offset)


def split(item: Item, size: int) -> Iterator[Item]:
    """Yield consecutive parts of an item, of at most `size` offsets each."""
    for first_offset in range(item.first_offset, item.last_offset + 1, size):
        yield clip(item, first_offset, first_offset + size - 1)


def _is_alike(item: Item, other: Item) -> bool:
    return item.cut(other.first_offset, other.last_offset) == other


def merge(items: Iterable[Item], is_alike: Callable[[Item, Item], bool] = _is_alike) -> Iterator[Item]:
    """Yield ascending items; neighbours that touch and differ in nothing but their offsets are one item."""
    pending: Item | None = None
    for item in items:
        if pending is None:
            pending = item
        elif pending.last_offset + 1 == item.first_offset and is_alike(pending, item):
            pending = pending.cut(pending.first_offset, item.last_offset)
        else:
            yield pending
            pending = item
    if pending is not None:
        yield pending


def gaps(first_offset: int, last_offset: int, ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the parts of a range outside ranges that ascend by their first offsets."""
    for first, last in ranges:
        if first > last_offset:
            break
        if first_offset < first:
            yield first_offset, first - 1
        first_offset = max(first_offset, last + 1)
    if first_offset <= last_offset:
        yield first_offset, last_offset


def consecutive(offsets: Iterable[int]) -> Iterator[OffsetRange]:
    """Yield the ranges that consist of exactly these ascending offsets, as few as possible."""
    first: int | None = None
    last = 0
    for offset in offsets:
        if first is None:
            first = offset
        elif offset != last + 1:
            yield first, last
            first = offset
        last = offset
    if first is not None:
        yield first, last


class RangeMap(Generic[Value]):
    """An ordered map from ranges of offsets to values, without an entry for each offset.

    Ranges do not overlap, and neighbours with equal values are one range, so the same content has exactly one
    representation. The cost of an operation grows with the ranges that it touches.
    """

    __slots__ = ("_first_offsets", "_last_offsets", "_values")

    def __init__(self) -> None:
        self._first_offsets: list[int] = []
        self._last_offsets: list[int] = []
        self._values: list[Value] = []

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._first_offsets)

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        """Iterate over the ranges by offset: first offset, last offset and value of each."""
        return zip(self._first_offsets, self._last_offsets, self._values, strict=True)

    def assign(self, first_offset: int, last_offset: int, value: Value) -> None:
        """Set the value of a range, and replace the values of its offsets."""
        # Most often ranges come in ascending order.
        if not self._last_offsets or self._last_offsets[-1] < first_offset:
            if self._last_offsets and self._last_offsets[-1] + 1 == first_offset and self._values[-1] == value:
                self._last_offsets[-1] = last_offset
                return
            self._first_offsets.append(first_offset)
            self._last_offsets.append(last_offset)
            self._values.append(value)
        else:
            self._replace(first_offset, last_offset, [(first_offset, last_offset, value)])

    def fill(self, first_offset: int, last_offset: int, value: Value) -> None:
        """Set the value of those offsets of a range that have none."""
        ranges = [(first, last) for first, last, _ in self.overlapping(first_offset, last_offset)]
        for first, last in gaps(first_offset, last_offset, ranges):
            self.assign(first, last, value)

    def remove(self, first_offset: int, last_offset: int) -> None:
        """Remove the values of all offsets of a range."""
        self._replace(first_offset, last_offset, [])

    def drop_below(self, offset: int) -> None:
        """Remove the values of all offsets below this one."""
        if self._first_offsets and self._first_offsets[0] < offset:
            self._replace(self._first_offsets[0], offset - 1, [])

    def holds(self, offset: int) -> bool:
        """Return True if the offset has a value."""
        index = bisect_left(self._last_offsets, offset)
        return index < len(self._first_offsets) and self._first_offsets[index] <= offset

    def overlapping(self, first_offset: int, last_offset: int) -> list[tuple[int, int, Value]]:
        """Return the parts of the ranges that lie within these offsets."""
        if not self._last_offsets or self._last_offsets[-1] < first_offset:
            return []
        start, end = self._overlap(first_offset, last_offset)
        return [
            (max(self._first_offsets[i], first_offset), min(self._last_offsets[i], last_offset), self._values[i])
            for i in range(start, end)
        ]

    def _overlap(self, first_offset: int, last_offset: int) -> tuple[int, int]:
        """Return the slice of ranges that share an offset with these."""
        start = bisect_left(self._last_offsets, first_offset)
        return start, bisect_right(self._first_offsets, last_offset, lo=start)

    def _replace(self, first_offset: int, last_offset: int, new: list[tuple[int, int, Value]]) -> None:
        start, end = self._overlap(first_offset, last_offset)
        if start < end:
            if self._first_offsets[start] < first_offset:
                new.insert(0, (self._first_offsets[start], first_offset - 1, self._values[start]))
            if self._last_offsets[end - 1] > last_offset:
                new.append((last_offset + 1, self._last_offsets[end - 1], self._values[end - 1]))
        if start > 0:
            start -= 1
            new.insert(0, (self._first_offsets[start], self._last_offsets[start], self._values[start]))
        if end < len(self._first_offsets):
            new.append((self._first_offsets[end], self._last_offsets[end], self._values[end]))
            end += 1
        merged = new[:1]
        for first, last, value in new[1:]:
            before = merged[-1]
            if before[1] + 1 == first and before[2] == value:
                merged[-1] = (before[0], last, value)
            else:
                merged.append((first, last, value))
        self._first_offsets[start:end] = [first for first, _, _ in merged]
        self._last_offsets[start:end] = [last for _, last, _ in merged]
        self._values[start:end] = [value for _, _, value in merged]
