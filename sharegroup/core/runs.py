"""Runs: the one run-length representation of offsets → (state, delivery count, member, deadline).

Offsets are inclusive on both ends, as in Kafka's protocol. Neighbouring runs that are equal in everything
but their offsets are always merged, so the same content has exactly one representation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sortedcontainers import SortedDict, SortedList

from sharegroup.core.record_state import RecordState

_PAST_ALL_OFFSETS = 1 << 63
"""Greater than any offset: Kafka's offsets have 63 bits."""


@dataclass(frozen=True, slots=True)
class Run:
    """Touching offsets that share one state.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        state: the delivery state of each of its records.
        delivery_count: how often each of its records was delivered.
        member_id: the member that holds the records; "" unless ACQUIRED.
        deadline_ms: "locked until" when ACQUIRED, "not before" when AVAILABLE, else 0.
    """

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    member_id: str = ""
    deadline_ms: int = 0

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1

    def clipped(self, first_offset: int, last_offset: int) -> Run:
        """The part of this run inside a range that overlaps it."""
        if first_offset <= self.first_offset and self.last_offset <= last_offset:
            return self
        return Run(
            max(self.first_offset, first_offset),
            min(self.last_offset, last_offset),
            self.state,
            self.delivery_count,
            self.member_id,
            self.deadline_ms,
        )

    def is_alike(self, other: Run) -> bool:
        """Return True if the two differ in nothing but their offsets."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
        )


def _merged(runs: Iterable[Run]) -> Iterator[Run]:
    pending: Run | None = None
    for run in runs:
        if pending and pending.last_offset + 1 == run.first_offset and pending.is_alike(run):
            pending = replace(pending, last_offset=run.last_offset)
            continue
        if pending:
            yield pending
        pending = run
    if pending:
        yield pending


class RunMap:
    """An ordered map of runs that do not overlap, with an index for each question the engine asks.

    Every operation costs with the runs it touches, times the logarithm of all. The indexes and the counts
    change in `_insert`, `_remove` and `make_available` only, so they cannot drift from the runs.

    Args:
        runs: ascending runs that do not overlap.
    """

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        content = list(_merged(runs))
        # Filling the ordered collections at once is several times faster than adding to them one by one.
        self._runs: SortedDict[int, Run] = SortedDict((run.first_offset, run) for run in content)
        available = [run for run in content if run.state is RecordState.AVAILABLE]
        # An AVAILABLE run is in one of the two, by the latest time that `make_available` was called with.
        self._available_until_ms = 0
        self._available: SortedList[int] = SortedList(run.first_offset for run in available if not run.deadline_ms)
        self._delayed: SortedList[tuple[int, int]] = SortedList(
            (run.deadline_ms, run.first_offset) for run in available if run.deadline_ms
        )
        self._locks: SortedList[tuple[int, int]] = SortedList(
            (run.deadline_ms, run.first_offset) for run in content if run.state is RecordState.ACQUIRED
        )
        self._held: SortedList[tuple[str, int]] = SortedList(
            (run.member_id, run.first_offset) for run in content if run.state is RecordState.ACQUIRED
        )
        self._terminal_count = sum(run.size for run in content if run.state.is_terminal)
        self._available_count = sum(run.size for run in available if not run.deadline_ms)

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunMap) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def first_offset(self) -> int | None:
        """Lowest offset in the map, None when empty."""
        return int(self._runs.peekitem(0)[0]) if self._runs else None

    @property
    def last_offset(self) -> int | None:
        """Highest offset in the map, None when empty."""
        return self._runs.peekitem(-1)[1].last_offset if self._runs else None

    @property
    def terminal_count(self) -> int:
        """Number of offsets in a terminal state."""
        return self._terminal_count

    @property
    def available_count(self) -> int:
        """Number of AVAILABLE offsets that need not wait any more."""
        return self._available_count

    @property
    def member_ids(self) -> list[str]:
        """Members that hold records, sorted."""
        members: list[str] = []
        index = 0
        while index < len(self._held):
            members.append(self._held[index][0])
            index = self._held.bisect_right((members[-1], _PAST_ALL_OFFSETS))
        return members

    def overlapping(self, first_offset: int, last_offset: int) -> list[Run]:
        """The runs inside a range, in order, clipped to it."""
        if first_offset > last_offset or not self._runs:
            return []
        index = max(self._runs.bisect_right(first_offset) - 1, 0)
        inside: list[Run] = []
        for key in self._runs.islice(index):
            run = self._runs[key]
            if run.first_offset > last_offset:
                break
            if run.last_offset >= first_offset:
                inside.append(run.clipped(first_offset, last_offset))
        return inside

    def contains(self, run: Run) -> bool:
        """Return True if exactly this content is in the map at the run's offsets."""
        return self.overlapping(run.first_offset, run.last_offset) == [run]

    def make_available(self, now_ms: int) -> None:
        """Take AVAILABLE runs whose "not before" has come among the available ones; time never goes back here."""
        self._available_until_ms = max(self._available_until_ms, now_ms)
        while self._delayed and self._delayed[0][0] <= self._available_until_ms:
            first = self._delayed.pop(0)[1]
            self._available.add(first)
            self._available_count += self._runs[first].size

    def available(self) -> Iterator[Run]:
        """AVAILABLE runs that need not wait any more, by offset; the map must not change meanwhile."""
        return (self._runs[first] for first in self._available)

    def available_below(self, end_offset: int) -> Iterator[Run]:
        """As `available`, without what lies at or above an offset."""
        for run in self.available():
            if run.first_offset >= end_offset:
                break
            yield run.clipped(run.first_offset, end_offset - 1)

    def available_count_below(self, end_offset: int) -> int:
        """As `available_count`, without what lies at or above an offset; costs with the runs there."""
        above = self.overlapping(end_offset, _PAST_ALL_OFFSETS)
        return self._available_count - sum(run.size for run in above if self._is_available(run))

    def delayed(self) -> Iterator[Run]:
        """AVAILABLE runs whose "not before" has not come, the earliest first; the map must not change meanwhile."""
        return (self._runs[first] for _, first in self._delayed)

    @property
    def next_available_ms(self) -> int | None:
        """The earliest "not before" to come, None when nothing waits."""
        return self._delayed[0][0] if self._delayed else None

    def held_by(self, member_id: str) -> list[Run]:
        """Runs ACQUIRED by a member, by offset."""
        return [self._runs[first] for _, first in self._held.irange((member_id, 0), (member_id, _PAST_ALL_OFFSETS))]

    def is_held_by(self, member_id: str) -> bool:
        """Return True if a member has ACQUIRED a run."""
        return next(self._held.irange((member_id, 0), (member_id, _PAST_ALL_OFFSETS)), None) is not None

    def due(self, now_ms: int) -> list[Run]:
        """ACQUIRED runs whose lock ends at or before `now_ms`, earliest lock first."""
        due = []
        for deadline_ms, first in self._locks:
            if deadline_ms > now_ms:
                break
            due.append(self._runs[first])
        return due

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest end of a lock, None when nothing is locked."""
        return self._locks[0][0] if self._locks else None

    def terminal_prefix(self) -> list[Run]:
        """The terminal runs at the front, up to the first that is not terminal or not touching."""
        prefix: list[Run] = []
        for run in self._runs.values():
            if not run.state.is_terminal or (prefix and run.first_offset != prefix[-1].last_offset + 1):
                break
            prefix.append(run)
        return prefix

    def assign(self, run: Run) -> None:
        """Put a run over whatever was there; cut or drop what it overlaps, merge it with equal neighbours."""
        self._cut_out(run.first_offset, run.last_offset)
        before = self._run_ending_at(run.first_offset - 1)
        after = self._runs.get(run.last_offset + 1)
        first, last = run.first_offset, run.last_offset
        if before is not None and before.is_alike(run):
            self._remove(before)
            first = before.first_offset
        if after is not None and after.is_alike(run):
            self._remove(after)
            last = after.last_offset
        self._insert(Run(first, last, run.state, run.delivery_count, run.member_id, run.deadline_ms))

    def drop_below(self, offset: int) -> None:
        """Forget all offsets below `offset`."""
        first = self.first_offset
        if first is not None and first < offset:
            self._cut_out(first, offset - 1)

    def _cut_out(self, first_offset: int, last_offset: int) -> None:
        for part in self.overlapping(first_offset, last_offset):
            whole = self._runs.peekitem(self._runs.bisect_right(part.first_offset) - 1)[1]
            self._remove(whole)
            if whole.first_offset < first_offset:
                self._insert(whole.clipped(whole.first_offset, first_offset - 1))
            if whole.last_offset > last_offset:
                self._insert(whole.clipped(last_offset + 1, whole.last_offset))

    def _run_ending_at(self, offset: int) -> Run | None:
        index = self._runs.bisect_right(offset) - 1
        if index < 0:
            return None
        run = self._runs.peekitem(index)[1]
        return run if run.last_offset == offset else None

    def _is_available(self, run: Run) -> bool:
        return run.state is RecordState.AVAILABLE and run.deadline_ms <= self._available_until_ms

    def _insert(self, run: Run) -> None:
        self._runs[run.first_offset] = run
        if self._is_available(run):
            self._available.add(run.first_offset)
            self._available_count += run.size
        elif run.state is RecordState.AVAILABLE:
            self._delayed.add((run.deadline_ms, run.first_offset))
        elif run.state is RecordState.ACQUIRED:
            self._locks.add((run.deadline_ms, run.first_offset))
            self._held.add((run.member_id, run.first_offset))
        elif run.state.is_terminal:
            self._terminal_count += run.size

    def _remove(self, run: Run) -> None:
        del self._runs[run.first_offset]
        if self._is_available(run):
            self._available.remove(run.first_offset)
            self._available_count -= run.size
        elif run.state is RecordState.AVAILABLE:
            self._delayed.remove((run.deadline_ms, run.first_offset))
        elif run.state is RecordState.ACQUIRED:
            self._locks.remove((run.deadline_ms, run.first_offset))
            self._held.remove((run.member_id, run.first_offset))
        elif run.state.is_terminal:
            self._terminal_count -= run.size
