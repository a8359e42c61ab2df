"""Items in order, more than fit into memory: sorted runs in temporary files, merged while they are read."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RUN_BYTES = 32 * 1024 * 1024
"""Bytes of a run."""


class SortedItems:
    """Takes tuples in any order, and returns them in theirs; no two may be equal up to a field without an order.

    Args:
        run_bytes: bytes of the items that are in memory.
    """

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._run: list[tuple[Any, ...]] = []
        self._size_bytes = 0
        self._paths: list[Path] = []
        self._folder: TemporaryDirectory[str] | None = None

    def add(self, item: tuple[Any, ...], size_bytes: int) -> None:
        """Take an item, and how many bytes it counts for."""
        self._run.append(item)
        self._size_bytes += size_bytes
        if self._size_bytes >= self._run_bytes:
            self._spill()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield all items in their order; may be called again, also meanwhile."""
        return heapq.merge(*map(_stored, self._paths), sorted(self._run))

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="sharegroup-import-")
        path = Path(self._folder.name) / str(len(self._paths))
        with path.open("wb") as file:
            for item in sorted(self._run):
                pickle.dump(item, file, pickle.HIGHEST_PROTOCOL)
        self._paths.append(path)
        self._run, self._size_bytes = [], 0


def _stored(path: Path) -> Iterator[tuple[Any, ...]]:
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)
