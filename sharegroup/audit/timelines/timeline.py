"""A share group over time, as the series and bins of its pictures.

The rows are read once, in fold order. All that is kept has a bounded resolution, so that the pictures of a long
history stay small: time has at most 240 bins, each share-partition at most 50 bins of offsets and 50 ranges of
redelivered records, and locks of a member that begin in one bin and end alike are one bar. Within a bin, series keep
the last start offset and the highest number of records in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sharegroup.audit.timelines.lock_timeline import STATE_REMOVED, LockTimeline
from sharegroup.audit.timelines.redelivered_records import RedeliveredRecords
from sharegroup.audit.timelines.time_axis import TimeAxis
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.state.described_writes import SinkDescription, described_sinks, described_writes
from sharegroup.state.fold import SHARE_PARTITION_TYPES, FoldedState, advance

MAX_DELIVERY_TIME_BINS = 120
MAX_DELIVERY_OFFSET_BINS = 50
"""Cells must be large enough on a screen for a single redelivery to be seen."""


class DeliveryMap:
    """The highest delivery count in each cell of time bins and offset bins.

    The range of offsets is not known before the last row: a bin of offsets becomes twice as wide, and pairs of cells
    become one, as soon as there would be too many.
    """

    def __init__(self, max_offset_bins: int = MAX_DELIVERY_OFFSET_BINS) -> None:
        self._max_offset_bins = max_offset_bins
        self._cells: dict[tuple[int, int], int] = {}
        self._first_bin: int | None = None
        self._last_bin = 0
        self.offsets_per_bin = 1

    def add(self, time_bin: int, first_offset: int, last_offset: int, delivery_count: int) -> None:
        """Add a delivery of a range of records.

        Args:
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


@dataclass(slots=True)
class Point:
    """A share-partition within one time bin.

    Attributes:
        start_offset: the SPSO at its end.
        next_offset: the lowest offset that was never in flight, at its end.
        delivery_complete_count: finished records at or above the SPSO, at its end.
        in_flight_count: highest number of offsets from the SPSO to the last one in flight.
        locked_count: highest number of records that members held.
    """

    start_offset: int
    next_offset: int
    delivery_complete_count: int
    in_flight_count: int
    locked_count: int

    def lag(self, log_end_offset: int) -> int:
        """Return the number of unfinished records below the end of the log (KIP-1226)."""
        return max(log_end_offset - self.start_offset - self.delivery_complete_count, 0)


@dataclass
class PartitionTimeline:
    """A share-partition over time.

    Attributes:
        points: time bin → point, for bins in which the share-partition changed.
        deliveries: delivery counts over offset x time.
        redelivered: the records that were delivered more than once.
        record_count_by_cause: cause → records that changed for it; a record counts each time.
        record_count_by_delivery: delivery count → records that were acquired with it.
        archived_at_limit_count: records archived because their deliveries were used up.
    """

    topic: str
    topic_id: str
    partition: int
    points: dict[int, Point] = field(default_factory=dict)
    deliveries: DeliveryMap = field(default_factory=DeliveryMap)
    redelivered: RedeliveredRecords = field(default_factory=RedeliveredRecords)
    record_count_by_cause: Counter[Cause] = field(default_factory=Counter)
    record_count_by_delivery: Counter[int] = field(default_factory=Counter)
    archived_at_limit_count: int = 0

    @property
    def name(self) -> str:
        """Topic and partition, as Kafka writes them."""
        return f"{self.topic}-{self.partition}"

    def add_point(self, time_bin: int, share_partition: SharePartition, locked_count: int) -> None:
        """Add the state after a row."""
        in_flight_count = share_partition.next_offset - share_partition.start_offset
        before = self.points.get(time_bin)
        self.points[time_bin] = Point(
            share_partition.start_offset,
            share_partition.next_offset,
            share_partition.delivery_complete_count,
            max(in_flight_count, before.in_flight_count if before else 0),
            max(locked_count, before.locked_count if before else 0),
        )

    def add_transition(self, time_bin: int, entry: TransitionEntry) -> None:
        """Add one transition, in a bin of the deliveries' own axis."""
        size = entry.last_offset - entry.first_offset + 1
        self.record_count_by_cause[entry.cause] += size
        self.redelivered.apply(entry)
        if entry.is_archived_at_limit:
            self.archived_at_limit_count += size
        if entry.cause is Cause.ACQUIRE:
            self.record_count_by_delivery[entry.delivery_count] += size
            self.deliveries.add(time_bin, entry.first_offset, entry.last_offset, entry.delivery_count)


class GroupTimeline:
    """A group over time; `apply` its rows, then `finish`.

    Args:
        axis: the time axis. Rows before it decide the state at its start.
        topic: only this topic; None for all.
        partition: only this partition; None for all.
    """

    def __init__(self, group_id: str, axis: TimeAxis, topic: str | None = None, partition: int | None = None) -> None:
        self.group_id = group_id
        self.axis = axis
        self.delivery_axis = TimeAxis(axis.since_ms, axis.until_ms, MAX_DELIVERY_TIME_BINS)
        self.partitions: dict[tuple[str, int], PartitionTimeline] = {}
        self.locks = LockTimeline(axis)
        self.client_ids: dict[str, str] = {}
        self.row_count = 0
        self._time_ms = axis.since_ms
        self._topic = topic
        self._partition = partition
        self._state = FoldedState()
        self._state_epochs: dict[tuple[str, int], int] = {}
        self._locked_counts: Counter[tuple[str, int]] = Counter()

    def apply(self, row: StateRow) -> None:
        """Apply the next row; rows of other groups are ignored.

        Raises:
            StateTableError: the row contradicts the rows before it.
        """
        if row.group_id != self.group_id:
            return
        self.row_count += 1
        self._time_ms = max(self._time_ms, row.time_ms)
        for record in row.payload.get("records", ()):
            if record["type"] == "ShareGroupMemberMetadata":
                self.client_ids[record["member_id"]] = record.get("client_id", "")
        is_first = (row.topic_id, row.partition) not in self._state_epochs
        advance(self._state, row)
        if row.partition >= 0 and self._is_selected(row):
            if row.record_type in SHARE_PARTITION_TYPES:
                self._apply_change(row)
            elif is_first:
                self._begin(row)
            self._add_point(row)

    @property
    def config_overrides(self) -> Mapping[str, str]:
        """The group's own configuration at the end; empty when there is no group any more."""
        group = self._state.groups.get(self.group_id)
        return group.metadata.config_overrides if group is not None else {}

    @property
    def sinks(self) -> tuple[SinkDescription, ...]:
        """The sinks into which writes are open after the last row."""
        group = self._state.groups.get(self.group_id)
        return described_sinks(described_writes(group, self._time_ms)) if group is not None else ()

    def finish(self) -> None:
        """Complete the picture after the last row."""
        self.locks.finish()

    def points(self, key: tuple[str, int]) -> Iterator[tuple[int, Point]]:
        """Yield time and point of a share-partition, and its last point again at the end of the axis."""
        points = sorted(self.partitions[key].points.items())
        for time_bin, point in points:
            yield self.axis.start_ms(time_bin), point
        if points and self.axis.start_ms(points[-1][0]) < self.axis.until_ms:
            yield self.axis.until_ms, points[-1][1]

    def _is_selected(self, row: StateRow) -> bool:
        return self._topic in (None, row.topic) and self._partition in (None, row.partition)

    def _begin(self, row: StateRow) -> None:
        """Begin with a table snapshot: the rows before it are pruned."""
        for entry in row.runs:
            if entry.state is RecordState.ACQUIRED:
                self._locked_counts[row.topic_id, row.partition] += entry.run.size
                self.locks.hold(
                    row.topic_id,
                    row.topic,
                    row.partition,
                    entry.first_offset,
                    entry.last_offset,
                    entry.member_id,
                    row.time_ms,
                )

    def _apply_change(self, row: StateRow) -> None:
        key = (row.topic_id, row.partition)
        is_new_state = row.record_type is RecordType.SHARE_SNAPSHOT and row.state_epoch > self._state_epochs.get(key, 0)
        for entry in row.transitions:
            self.locks.apply(row.topic_id, row.topic, row.partition, entry)
            self._locked_counts[key] += _locked_change(entry)
            if self.axis.contains(entry.time_ms):
                self._of(row).add_transition(self.delivery_axis.bin_of(entry.time_ms), entry)
        self.locks.pass_below(*key, row.start_offset)
        if row.record_type is RecordType.SHARE_TOMBSTONE or is_new_state:
            self.locks.end_all(*key, row.time_ms, STATE_REMOVED)
            self._locked_counts.pop(key, None)

    def _add_point(self, row: StateRow) -> None:
        key = (row.topic_id, row.partition)
        group = self._state.groups.get(self.group_id)
        folded = group.partitions.get(key) if group is not None else None
        if folded is None:
            self._state_epochs.pop(key, None)
            return
        self._state_epochs[key] = row.state_epoch
        if row.time_ms <= self.axis.until_ms:
            # The state before the axis is that at its start.
            time_bin = self.axis.bin_of(row.time_ms)
            timeline = self._of(row)
            if row.time_ms < self.axis.since_ms:
                timeline.points.pop(time_bin, None)
            timeline.add_point(time_bin, folded.share_partition, self._locked_counts[key])

    def _of(self, row: StateRow) -> PartitionTimeline:
        key = (row.topic_id, row.partition)
        if key not in self.partitions:
            self.partitions[key] = PartitionTimeline(row.topic, row.topic_id, row.partition)
        return self.partitions[key]


def group_timeline(
    group_id: str, rows: Iterable[StateRow], axis: TimeAxis, topic: str | None = None, partition: int | None = None
) -> GroupTimeline:
    """Return a group over time, from all its rows in fold order.

    Raises:
        StateTableError: a row contradicts the rows before it.
    """
    timeline = GroupTimeline(group_id, axis, topic, partition)
    for row in rows:
        timeline.apply(row)
    timeline.finish()
    return timeline


def _locked_change(entry: TransitionEntry) -> int:
    was_locked, is_locked = (state is RecordState.ACQUIRED for state in (entry.from_state, entry.to_state))
    return (is_locked - was_locked) * (entry.last_offset - entry.first_offset + 1)
