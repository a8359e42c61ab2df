"""Delivery counts over offset x time, in a bounded number of cells."""

from __future__ import annotations

from collections.abc import Iterator

MAX_TIME_BINS = 120
MAX_OFFSET_BINS = 50
"""Cells must be large enough on a screen for a single redelivery to be seen."""


class DeliveryMap:
    """The highest delivery count in each cell of time bins and offset bins.

    The range of offsets is not known before the last row: a bin of offsets becomes twice as wide, and pairs of cells
    become one, as soon as there would be too many.

    Args:
        max_offset_bins: the highest number of offset bins.
    """

    def __init__(self, max_offset_bins: int = MAX_OFFSET_BINS) -> None:
        self._max_offset_bins = max_offset_bins
        self._cells: dict[tuple[int, int], int] = {}
        self._first_bin: int | None = None
        self._last_bin = 0
        self.offsets_per_bin = 1

    def add(self, time_bin: int, first_offset: int, last_offset: int, delivery_count: int) -> None:
        """Add a delivery of a range of records.

        Args:
            time_bin: bin of its time.
            first_offset: first offset, inclusive.
            last_offset: last offset, inclusive.
            delivery_count: deliveries of each record, this one included.
        """
        self._cover(first_offset, last_offset)
        for offset_bin in range(first_offset // self.offsets_per_bin, last_offset // self.offsets_per_bin + 1):
            cell = (time_bin, offset_bin)
            self._cells[cell] = max(delivery_count, self._cells.get(cell, 0))

    @property
    def offset_bins(self) -> range:
        """All bins of offsets; a bin begins at its number times `offsets_per_bin`."""
        return range(0) if self._first_bin is None else range(self._first_bin, self._last_bin + 1)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Iterate over the cells with a delivery: time bin, offset bin, highest delivery count."""
        return ((time_bin, offset_bin, count) for (time_bin, offset_bin), count in sorted(self._cells.items()))

    def _cover(self, first_offset: int, last_offset: int) -> None:
        first, last = first_offset // self.offsets_per_bin, last_offset // self.offsets_per_bin
        self._first_bin = first if self._first_bin is None else min(self._first_bin, first)
        self._last_bin = max(self._last_bin, last)
        while self._last_bin - self._first_bin >= self._max_offset_bins:
            self._first_bin //= 2
            self._last_bin //= 2
            self.offsets_per_bin *= 2
            cells: dict[tuple[int, int], int] = {}
            for (time_bin, offset_bin), count in self._cells.items():
                cell = (time_bin, offset_bin // 2)
                cells[cell] = max(count, cells.get(cell, 0))
            self._cells = cells
