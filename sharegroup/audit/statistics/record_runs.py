"""The last state of each record of a share-partition, in memory that does not grow with the history.

Rows change records from the start offset on, and few of them are in flight. So the runs are in three places, by their
offsets:

- **Near** the start offset, in memory: the runs that rows change.
- **Below** it: the runs that it has passed, on a stack.
- **Above**: after the start offset was moved back, the runs that no row has reached since, on a second stack whose top
  is the lowest one.

A stack has its newest blocks in memory, and all others in a temporary file.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from typing import IO

from sharegroup.core.offset_ranges import merge
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap

RUNS_PER_BLOCK = 4_096


class RecordRuns:
    """The runs of a share-partition; closed, it has none.

    Args:
        runs: the runs that it begins with, ascending.
        runs_per_block: runs that go to the disk at once.
    """

    def __init__(self, runs: Iterable[Run] = (), runs_per_block: int = RUNS_PER_BLOCK) -> None:
        self._near = RunMap(runs)
        self._below = _RunStack(runs_per_block)
        self._above = _RunStack(runs_per_block)

    def assign(self, run: Run) -> None:
        """Set a run, as `RunMap.assign`."""
        self._reach(run.first_offset, run.last_offset)
        self._near.assign(run)

    def overlapping(self, first_offset: int, last_offset: int) -> list[Run]:
        """Return the runs inside a range, in order, clipped to it."""
        self._reach(first_offset, last_offset)
        return self._near.overlapping(first_offset, last_offset)

    def move_start(self, start_offset: int) -> None:
        """Note the start offset, below which no record changes until it is moved back."""
        first_offset = self._near.first_offset
        if first_offset is not None and first_offset < start_offset:
            for run in self._near.overlapping(first_offset, start_offset - 1):
                self._below.push(run)
            self._near.drop_below(start_offset)
        self._move_back(start_offset)

    def __iter__(self) -> Iterator[Run]:
        """Iterate over all runs, ascending; nothing may change meanwhile."""
        return merge(chain(self._below, self._near, reversed(self._above)), Run.is_alike)

    def close(self) -> None:
        """Drop all runs, and what is on the disk."""
        self._near = RunMap()
        self._below.close()
        self._above.close()

    def _reach(self, first_offset: int, last_offset: int) -> None:
        """Take into memory what a range needs."""
        self._move_back(first_offset)
        while (above := self._above.top) is not None and above.first_offset <= last_offset:
            self._near.assign(self._above.pop())

    def _move_back(self, offset: int) -> None:
        """Put what begins at an offset above, if it was below; what is near is above all of it."""
        below = self._below.top
        if below is None or below.last_offset < offset:
            return
        for run in reversed(list(self._near)):
            self._above.push(run)
        self._near = RunMap()
        while (below := self._below.top) is not None and below.last_offset >= offset:
            run = self._below.pop()
            if run.first_offset < offset:
                self._below.push(run.cut(run.first_offset, offset - 1))
            self._above.push(run.cut(max(run.first_offset, offset), run.last_offset))


class _RunStack:
    """A stack of runs, of which two blocks are in memory at most."""

    def __init__(self, runs_per_block: int) -> None:
        self._runs_per_block = runs_per_block
        self._newest: list[Run] = []
        self._ends: list[int] = []
        """End of each block in the file."""
        self._file: IO[bytes] | None = None
        self._open_files = ExitStack()

    @property
    def top(self) -> Run | None:
        """The run that was pushed last; None when there is none."""
        if not self._newest and self._ends:
            self._newest = self._block(len(self._ends) - 1)
            self._ends.pop()
        return self._newest[-1] if self._newest else None

    def push(self, run: Run) -> None:
        """Add a run."""
        self._newest.append(run)
        if len(self._newest) == 2 * self._runs_per_block:
            self._write(self._newest[: self._runs_per_block])
            del self._newest[: self._runs_per_block]

    def pop(self) -> Run:
        """Take the run that was pushed last; there is one, see `top`."""
        return self._newest.pop()

    def __iter__(self) -> Iterator[Run]:
        for index in range(len(self._ends)):
            yield from self._block(index)
        yield from self._newest

    def __reversed__(self) -> Iterator[Run]:
        yield from reversed(self._newest)
        for index in reversed(range(len(self._ends))):
            yield from reversed(self._block(index))

    def close(self) -> None:
        """Drop all runs."""
        self._newest, self._ends, self._file = [], [], None
        self._open_files.close()

    def _write(self, block: list[Run]) -> None:
        if self._file is None:
            with ExitStack() as opened:
                self._file = opened.enter_context(tempfile.TemporaryFile(prefix="sharegroup-audit-"))
                self._open_files = opened.pop_all()
        content = pickle.dumps(list(map(tuple, block)))
        begin = self._ends[-1] if self._ends else 0
        self._file.seek(begin)
        self._file.write(content)
        self._ends.append(begin + len(content))

    def _block(self, index: int) -> list[Run]:
        begin = self._ends[index - 1] if index else 0
        if self._file is None:
            return []
        self._file.seek(begin)
        return [Run(*run) for run in pickle.loads(self._file.read(self._ends[index] - begin))]
