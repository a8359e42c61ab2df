"""The AVAILABLE runs of a map: those that can be acquired now, suspects and others apart, and the delayed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from sharegroup.core.run import Run
from sharegroup.core.sorted_keys import SortedKeys


class _ReadyRuns:
    """First offsets of runs that can be acquired now, and their number of records."""

    __slots__ = ("count", "firsts")

    def __init__(self, runs: Iterable[Run]) -> None:
        runs = list(runs)
        self.firsts = SortedKeys([run.first_offset for run in runs])
        self.count = sum(run.size for run in runs)


class AvailableRuns:
    """Index of the AVAILABLE runs of a map. Each is ready or delayed, by the latest time that was given.

    Args:
        by_first: first offset → run, of all runs of the map; it belongs to the map.
        runs: the AVAILABLE ones, ascending. Filling the index at once is several times faster than adding to it.
    """

    __slots__ = ("_by_first", "_delayed", "_ready", "_suspect_counts", "until_ms")

    def __init__(self, by_first: Mapping[int, Run], runs: Iterable[Run]) -> None:
        runs = list(runs)
        self._by_first = by_first
        self.until_ms = 0
        """The latest time that was given: delays up to it are over."""
        self._ready = tuple(
            _ReadyRuns(run for run in runs if not run.deadline_ms and run.is_suspect is kind) for kind in (False, True)
        )
        self._delayed = SortedKeys(sorted((run.deadline_ms, run.first_offset) for run in runs if run.deadline_ms))
        self._suspect_counts: Counter[int] = Counter()
        """Delivery count → suspects, delayed ones too."""
        for run in runs:
            if run.is_suspect:
                self._suspect_counts[run.delivery_count] += run.size

    def add(self, run: Run) -> None:
        """Add an AVAILABLE run."""
        if run.is_suspect:
            self._suspect_counts[run.delivery_count] += run.size
        if run.deadline_ms <= self.until_ms:
            self._add_ready(run)
        else:
            self._delayed.add((run.deadline_ms, run.first_offset))

    def remove(self, run: Run) -> None:
        """Remove an AVAILABLE run."""
        if run.is_suspect:
            self._suspect_counts[run.delivery_count] -= run.size
        if run.deadline_ms <= self.until_ms:
            ready = self._ready[run.is_suspect]
            ready.firsts.remove(run.first_offset)
            ready.count -= run.size
        else:
            self._delayed.remove((run.deadline_ms, run.first_offset))

    def let_pass(self, now_ms: int) -> None:
        """Make the delayed runs ready whose "not before" has passed; time never goes back here."""
        self.until_ms = max(self.until_ms, now_ms)
        while self._delayed and self._delayed[0][0] <= self.until_ms:
            self._add_ready(self._by_first[self._delayed.pop()[1]])

    def ready(self, *, are_suspects: bool) -> Iterator[Run]:
        """Iterate over the runs that can be acquired now, by offset; the map must not change meanwhile."""
        return (self._by_first[first] for first in self._ready[are_suspects].firsts)

    def ready_count(self, *, are_suspects: bool) -> int:
        """Return the number of records that can be acquired now."""
        return self._ready[are_suspects].count

    def delayed(self) -> Iterator[Run]:
        """Iterate over the delayed runs, earliest end first; the map must not change meanwhile."""
        return (self._by_first[first] for _, first in self._delayed)

    @property
    def next_ms(self) -> int | None:
        """The earliest "not before" of a delayed run, None when there is none."""
        return self._delayed[0][0] if self._delayed else None

    def suspect_count(self, delivery_count: int) -> int:
        """Return the number of suspects with a delivery count, delayed ones too."""
        return self._suspect_counts[delivery_count]

    def _add_ready(self, run: Run) -> None:
        ready = self._ready[run.is_suspect]
        ready.firsts.add(run.first_offset)
        ready.count += run.size
