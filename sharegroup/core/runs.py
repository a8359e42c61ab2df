"""Maps of runs: the one run-length representation of offsets → all else that a `Run` has.

Neighbouring runs that are equal in everything but their offsets are always merged, so the same content has exactly
one representation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from sharegroup.core.available_runs import AvailableRuns
from sharegroup.core.due_times import DueTimes
from sharegroup.core.offset_ranges import clip, merge
from sharegroup.core.record_state import TERMINAL_STATES, RecordState
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.sorted_keys import SortedKeys

# A lookup in an enumeration takes 60 ns, as long as one in a dictionary.
_AVAILABLE, _ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
_RESOLVING = RecordState.RESOLVING

PAST_ALL_OFFSETS = 1 << 63
"""Greater than any offset: Kafka's offsets have 63 bits."""


class RunMap:
    """An ordered map of runs that do not overlap, with an index for each query of the engine.

    The cost of an operation grows with the runs it touches, times the logarithm of all. The indexes and the counts
    change in `_index`, `_unindex`, `_begin_later` and `make_available` only, so they cannot drift from the runs.

    Args:
        runs: ascending runs that do not overlap.
    """

    __slots__ = (
        "_available",
        "_first_by_last",
        "_firsts",
        "_held",
        "_last_offset",
        "_locked_count",
        "_locks",
        "_resolving_counts",
        "_runs",
        "_suspects_held",
        "_terminal_count",
        "_write_counts",
    )

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: dict[int, Run] = {}
        self._first_by_last: dict[int, int] = {}
        """Last offset of a run → its first."""
        available: list[Run] = []
        locks: dict[int, int] = {}
        held: defaultdict[str, list[int]] = defaultdict(list)
        self._last_offset: int | None = None
        self._terminal_count = self._locked_count = 0
        self._suspects_held: Counter[str] = Counter()
        """Member → runs of suspects that it holds."""
        self._write_counts: Counter[int] = Counter()
        """Version of an open write → runs with it."""
        self._resolving_counts: Counter[int] = Counter()
        """Version of an open write → RESOLVING runs with it."""
        # Filling the ordered collections at once is several times faster than adding to them one by one.
        for run in merge(runs, Run.is_alike):
            first = run.first_offset
            self._runs[first] = run
            self._first_by_last[run.last_offset] = first
            self._last_offset = run.last_offset
            if run.state is _AVAILABLE:
                available.append(run)
            elif run.state is _ACQUIRED:
                locks[first] = run.deadline_ms
                held[run.member_id].append(first)
                self._locked_count += run.size
                if run.is_suspect:
                    self._suspects_held[run.member_id] += 1
                if run.write_version != NO_WRITE:
                    self._count_write(run, 1)
            elif run.state in TERMINAL_STATES:
                self._terminal_count += run.size
            elif run.state is _RESOLVING:
                self._count_write(run, 1)
        self._firsts = SortedKeys(list(self._runs))
        self._available = AvailableRuns(self._runs, available)
        self._locks = DueTimes(locks)
        self._held = {member_id: SortedKeys(firsts) for member_id, firsts in held.items()}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return (self._runs[first] for first in self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunMap) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def first_offset(self) -> int | None:
        """Lowest offset in the map, None when empty."""
        return self._firsts[0] if self._firsts else None

    @property
    def last_offset(self) -> int | None:
        """Highest offset in the map, None when empty."""
        return self._last_offset

    @property
    def terminal_count(self) -> int:
        """Number of offsets in a terminal state."""
        return self._terminal_count

    @property
    def locked_count(self) -> int:
        """Number of records that members hold."""
        return self._locked_count

    def window_count(self, now_ms: int) -> int:
        """Return the number of records that are acquired, or available and not delayed at `now_ms`."""
        self.make_available(now_ms)
        count = self._locked_count
        for are_suspects in (False, True):
            count += self._available.ready_count(are_suspects=are_suspects)
            if now_ms < self._available.until_ms:
                ready = self.available(are_suspects=are_suspects)
                count -= sum(run.size for run in ready if run.deadline_ms > now_ms)
        return count

    @property
    def member_ids(self) -> list[str]:
        """Members that hold records, sorted."""
        return sorted(self._held)

    def overlapping(self, first_offset: int, last_offset: int) -> list[Run]:
        """Return the runs inside a range, in order, clipped to it."""
        # Most often a range is acknowledged as it was acquired, or from its beginning.
        whole = self._runs.get(first_offset)
        if whole is not None and whole.last_offset >= last_offset >= first_offset:
            return [whole if whole.last_offset == last_offset else whole.cut(first_offset, last_offset)]
        return [clip(run, first_offset, last_offset) for run in self._whole_overlapping(first_offset, last_offset)]

    def _whole_overlapping(self, first_offset: int, last_offset: int) -> list[Run]:
        if first_offset > last_offset or not self._runs:
            return []
        index = max(self._firsts.bisect_right(first_offset) - 1, 0)
        touched: list[Run] = []
        for key in self._firsts.from_index(index):
            if key > last_offset:
                break
            run = self._runs[key]
            if run.last_offset >= first_offset:
                touched.append(run)
        return touched

    def first_from(self, offset: int, most: int) -> list[Run]:
        """Return at most `most` runs at or above an offset, in order; the first one is clipped to it."""
        runs: list[Run] = []
        for key in self._firsts.from_index(max(self._firsts.bisect_right(offset) - 1, 0)):
            run = self._runs[key]
            if run.last_offset >= offset:
                runs.append(clip(run, offset, run.last_offset))
            if len(runs) >= most:
                break
        return runs

    def contains(self, run: Run) -> bool:
        """Return True if exactly this content is in the map at the run's offsets."""
        return self.overlapping(run.first_offset, run.last_offset) == [run]

    def make_available(self, now_ms: int) -> None:
        """Move AVAILABLE runs whose "not before" has passed to the available ones; time never goes back here."""
        self._available.let_pass(now_ms)

    def available(self, *, are_suspects: bool) -> Iterator[Run]:
        """Iterate over the AVAILABLE runs whose delay is over, by offset; the map must not change meanwhile.

        Args:
            are_suspects: True for the suspects, False for all others.
        """
        return self._available.ready(are_suspects=are_suspects)

    def available_below(self, end_offset: int, *, are_suspects: bool) -> Iterator[Run]:
        """Iterate as `available` does, over the runs below an offset only."""
        for run in self.available(are_suspects=are_suspects):
            if run.first_offset >= end_offset:
                break
            yield clip(run, run.first_offset, end_offset - 1)

    def available_count_below(self, end_offset: int, *, are_suspects: bool) -> int:
        """Count the records of `available_below`; the cost grows with the runs at or above the offset."""
        count = self._available.ready_count(are_suspects=are_suspects)
        last_offset = self.last_offset
        if last_offset is None or last_offset < end_offset:
            return count
        above = (run for run in self.overlapping(end_offset, PAST_ALL_OFFSETS) if run.state is _AVAILABLE)
        until_ms = self._available.until_ms
        return count - sum(run.size for run in above if run.is_suspect is are_suspects and run.deadline_ms <= until_ms)

    def suspect_count(self, delivery_count: int) -> int:
        """Return the number of AVAILABLE suspects with a delivery count, delayed ones too."""
        return self._available.suspect_count(delivery_count)

    def delayed(self) -> Iterator[Run]:
        """Iterate over the delayed AVAILABLE runs, earliest end first; the map must not change meanwhile."""
        return self._available.delayed()

    @property
    def next_available_ms(self) -> int | None:
        """The earliest "not before" of a delayed run, None when there is none."""
        return self._available.next_ms

    def held_by(self, member_id: str) -> list[Run]:
        """Return the runs ACQUIRED by a member, by offset."""
        return [self._runs[first] for first in self._held.get(member_id, ())]

    def is_held_by(self, member_id: str) -> bool:
        """Return True if a member has ACQUIRED a run."""
        return member_id in self._held

    def are_suspects_held_by(self, member_id: str) -> bool:
        """Return True if a member has ACQUIRED suspects."""
        return self._suspects_held[member_id] > 0

    def has_write(self, write_version: int) -> bool:
        """Return True if a run has an open write."""
        return self._write_counts[write_version] > 0

    def is_resolving(self, write_version: int) -> bool:
        """Return True if a run with an open write is RESOLVING."""
        return self._resolving_counts[write_version] > 0

    @property
    def write_versions(self) -> list[int]:
        """Versions of the open writes of all runs, sorted."""
        return sorted(self._write_counts)

    def due(self, now_ms: int) -> list[Run]:
        """Return the ACQUIRED runs whose lock ends at or before `now_ms`, earliest lock first."""
        return [self._runs[first] for first in self._locks.due(now_ms)]

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest end of a lock, None when no run is locked."""
        return self._locks.earliest_ms

    def terminal_from(self, first_offset: int) -> list[Run]:
        """Return the terminal runs that begin at an offset, up to the first that is not terminal or not adjacent."""
        terminal: list[Run] = []
        run = self._runs.get(first_offset)
        while run is not None and run.state in TERMINAL_STATES:
            terminal.append(run)
            run = self._runs.get(run.last_offset + 1)
        return terminal

    def assign(self, run: Run) -> None:
        """Set a run: cut or drop the runs that it overlaps, merge it with equal neighbours."""
        first, last = run.first_offset, run.last_offset
        if self._last_offset is None or self._last_offset < last:
            self._last_offset = last
        # 1. Make room. A run that begins at the same offset leaves its key for this one.
        replaced = self._runs.get(first)
        if replaced is not None and replaced.last_offset >= last:
            if replaced.last_offset > last:
                self._begin_later(replaced, last + 1)
            else:
                self._unindex(replaced)
        else:
            replaced = None
            self._cut_out(first, last)
        # 2. Merge.
        before = self._run_ending_at(first - 1)
        after = self._runs.get(last + 1)
        if after is not None and after.is_alike(run):
            self._remove(after)
            last = after.last_offset
        if before is not None and before.is_alike(run):
            self._unindex(before)
            if replaced is not None:
                self._firsts.remove(first)
            first = before.first_offset
        elif replaced is None:
            self._firsts.add(first)
        # 3. Set it.
        is_merged = first < run.first_offset or last > run.last_offset
        self._index(run.cut(first, last) if is_merged else run)

    def drop_below(self, offset: int) -> None:
        """Drop all offsets below `offset`."""
        dropped = self._firsts.take_below(offset)
        for first in dropped:
            run = self._runs[first]
            self._unindex(run)
            if run.last_offset >= offset:
                self._insert(run.cut(offset, run.last_offset))
        if not self._firsts:
            self._last_offset = None

    def _cut_out(self, first_offset: int, last_offset: int) -> None:
        for whole in self._whole_overlapping(first_offset, last_offset):
            self._remove(whole)
            if whole.first_offset < first_offset:
                self._insert(whole.cut(whole.first_offset, first_offset - 1))
            if whole.last_offset > last_offset:
                self._insert(whole.cut(last_offset + 1, whole.last_offset))

    def _begin_later(self, run: Run, first_offset: int) -> None:
        """Let a run begin at a later offset. Its former key stays, for the run that takes its place."""
        later = run.cut(first_offset, run.last_offset)
        if run.state is not _ACQUIRED:
            self._unindex(run)
            self._insert(later)
            return
        # Most acknowledgements are of the first records of a range: its indexes keep their entries.
        self._firsts.add(first_offset)
        del self._runs[run.first_offset]
        self._runs[first_offset] = later
        self._first_by_last[run.last_offset] = first_offset
        self._locks.set(run.first_offset, None)
        self._locks.set(first_offset, run.deadline_ms)
        self._held[run.member_id].replace(run.first_offset, first_offset)
        self._locked_count -= first_offset - run.first_offset

    def _run_ending_at(self, offset: int) -> Run | None:
        first = self._first_by_last.get(offset)
        return None if first is None else self._runs[first]

    def _insert(self, run: Run) -> None:
        self._firsts.add(run.first_offset)
        self._index(run)

    def _remove(self, run: Run) -> None:
        self._firsts.remove(run.first_offset)
        self._unindex(run)

    def _index(self, run: Run) -> None:
        """Add a run whose key is there."""
        first = run.first_offset
        self._runs[first] = run
        self._first_by_last[run.last_offset] = first
        if run.state is _ACQUIRED:
            self._locks.set(first, run.deadline_ms)
            self._locked_count += run.size
            if run.is_suspect:
                self._suspects_held[run.member_id] += 1
            held = self._held.get(run.member_id)
            if held is None:
                self._held[run.member_id] = SortedKeys([first])
            else:
                held.add(first)
            if run.write_version != NO_WRITE:
                self._count_write(run, 1)
        elif run.state is _AVAILABLE:
            self._available.add(run)
        elif run.state in TERMINAL_STATES:
            self._terminal_count += run.size
        elif run.state is _RESOLVING:
            self._count_write(run, 1)

    def _unindex(self, run: Run) -> None:
        """Remove a run, but not its key."""
        first = run.first_offset
        del self._runs[first], self._first_by_last[run.last_offset]
        if run.state is _ACQUIRED:
            self._locks.set(first, None)
            self._locked_count -= run.size
            if run.is_suspect:
                self._suspects_held[run.member_id] -= 1
            held = self._held[run.member_id]
            held.remove(first)
            if not held:
                # With its last run its last suspects go.
                del self._held[run.member_id], self._suspects_held[run.member_id]
            if run.write_version != NO_WRITE:
                self._count_write(run, -1)
        elif run.state is _AVAILABLE:
            self._available.remove(run)
        elif run.state in TERMINAL_STATES:
            self._terminal_count -= run.size
        elif run.state is _RESOLVING:
            self._count_write(run, -1)

    def _count_write(self, run: Run, change: int) -> None:
        counts = [self._write_counts]
        if run.state is _RESOLVING:
            counts.append(self._resolving_counts)
        for count_by_version in counts:
            count_by_version[run.write_version] += change
            if not count_by_version[run.write_version]:
                del count_by_version[run.write_version]
