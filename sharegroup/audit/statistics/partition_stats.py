"""Statistics of one share-partition, row by row, in memory that does not grow with its history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sharegroup.audit.history.group_history import PartitionCounts, last_run
from sharegroup.audit.statistics.durations import Durations
from sharegroup.audit.statistics.head_of_line import HeadOfLine
from sharegroup.audit.statistics.highest import Highest
from sharegroup.audit.statistics.record_runs import RecordRuns
from sharegroup.core.cause_rules import ACKNOWLEDGE_CAUSE, ENDS_OF_DELIVERIES, UNDELIVERED
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry

MEASURED_STATES = (RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVING, RecordState.RESOLVING)
"""A finished record stays in its state."""

_ACKNOWLEDGED_BY = frozenset(ACKNOWLEDGE_CAUSE.values()) & ENDS_OF_DELIVERIES - UNDELIVERED


class _Since(NamedTuple):
    """A state, and the time at which records entered it."""

    state: RecordState
    time_ms: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Records that were given up because their deliveries were used up.

    Attributes:
        delivery_count: deliveries of each record.
        state: state after the last delivery.
        cause: cause of the end of the last delivery.
        member_id: member of the last delivery.
        time_ms: its end; epoch ms.
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    state: str
    cause: str
    member_id: str
    time_ms: int


def partition_stats(rows: Iterable[StateRow], limit: int) -> PartitionStats:
    """Return the statistics of a share-partition from its rows, at least one, in fold order."""
    iterator = iter(rows)
    first = next(iterator)
    stats = PartitionStats(first, limit)
    for row in chain((first,), iterator):
        stats.apply(row)
    stats.finish()
    return stats


class PartitionStats:
    """Follows the rows of a share-partition.

    Attributes:
        time_in_state: state → times from a change to it until the next one.
        record_counts_by_state: (last state, delivery count) → records; after `finish`.
        most_delivered: the records that were delivered most often, and more than once; after `finish`.

    Args:
        row: its first row.
        limit: how many ranges to keep of each kind that may have any number.
    """

    def __init__(self, row: StateRow, limit: int) -> None:
        self.group_id = row.group_id
        self.counts = PartitionCounts(row.topic, row.topic_id, row.partition)
        self.time_in_state: dict[RecordState, Durations] = {state: Durations() for state in MEASURED_STATES}
        self.time_to_acknowledge: dict[str, Durations] = defaultdict(Durations)
        """Member id → time from acquisition to acknowledgement."""
        self.record_counts: Counter[tuple[str, Cause]] = Counter()
        """(Member id, cause) → records; a record counts each time."""
        self.given_up: Highest[GivenUp] = Highest(limit)
        self.head_of_line = HeadOfLine(limit)
        self.gaps: RangeMap[str] = RangeMap()
        """The reason of each gap that a member reported."""
        self.record_counts_by_state: Counter[tuple[RecordState, int]] = Counter()
        self.most_delivered: Highest[Run] = Highest(limit)
        self._records = RecordRuns()
        self._since: RangeMap[_Since | None] = RangeMap()
        self._state_epoch = row.state_epoch

    def apply(self, row: StateRow) -> None:
        """Follow one row of the share-partition, in fold order."""
        if row.record_type is RecordType.TABLE_SNAPSHOT:
            # When the records entered their states is not in the table any more.
            self._records.close()
            self._records = RecordRuns(entry.run for entry in row.runs)
        if row.record_type is RecordType.SHARE_TOMBSTONE or row.state_epoch != self._state_epoch:
            self._since = RangeMap()
            self._state_epoch = row.state_epoch
        for entry in row.transitions:
            self._apply(entry)
        self._since.drop_below(row.start_offset)
        self.counts.apply(row)
        for entry in row.transitions:
            self._records.assign(last_run(entry))
        if row.record_type is not RecordType.SHARE_TOMBSTONE:
            self._records.move_start(row.start_offset)
        self.head_of_line.apply(row, self._records)

    def finish(self) -> None:
        """Sum up the records; no row follows."""
        for run in self._records:
            self.record_counts_by_state[run.state, run.delivery_count] += run.size
            if run.delivery_count > 1:
                self.most_delivered.add((run.delivery_count, run.size), run)
        self._records.close()
        self._since = RangeMap()

    def _apply(self, entry: TransitionEntry) -> None:
        size = entry.last_offset - entry.first_offset + 1
        self.record_counts[entry.member_id, entry.cause] += size
        if entry.cause is Cause.GAP:
            self.gaps.assign(entry.first_offset, entry.last_offset, entry.reason)
        if entry.is_archived_at_limit:
            self.given_up.add((entry.delivery_count, size), _given_up(entry))
        if entry.from_state is entry.to_state:
            # A renewal: the lock is longer, the delivery is the same.
            return
        for first, last, since in self._since.overlapping(entry.first_offset, entry.last_offset):
            if since is not None and since.state in self.time_in_state:
                duration_ms, record_count = entry.time_ms - since.time_ms, last - first + 1
                self.time_in_state[since.state].add(duration_ms, record_count)
                if entry.cause in _ACKNOWLEDGED_BY and since.state is RecordState.ACQUIRED:
                    self.time_to_acknowledge[entry.member_id].add(duration_ms, record_count)
        entered = None if entry.to_state.is_terminal else _Since(entry.to_state, entry.time_ms)
        self._since.assign(entry.first_offset, entry.last_offset, entered)


def _given_up(entry: TransitionEntry) -> GivenUp:
    return GivenUp(
        entry.first_offset,
        entry.last_offset,
        entry.delivery_count,
        entry.to_state.name,
        entry.cause.value,
        entry.member_id,
        entry.time_ms,
    )
