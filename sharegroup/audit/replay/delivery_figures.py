"""Figures of deliveries, from rows: how often records were delivered, what ended their locks, and after how long."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sharegroup.core.cause_rules import CAUSE_RULES
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry

_ENDED = -1
"""Instead of the time of an acquisition: the lock has ended."""

_Key = tuple[str, str, int]


@dataclass
class _State:
    """A state of a share-partition: its epoch, and when its records were acquired."""

    state_epoch: int
    acquired_ms: RangeMap[int] = field(default_factory=RangeMap)

    @property
    def locked_count(self) -> int:
        return sum(last - first + 1 for first, last, time_ms in self.acquired_ms if time_ms != _ENDED)


@dataclass
class DeliveryFigures:
    """Figures of the rows so far.

    Attributes:
        delivery_count: records delivered, each delivery counted; those returned unread are taken off.
        redelivery_count: deliveries after the first of a record.
        lock_timeout_count: locks of records that ended by time.
        archived_at_limit_count: records given up because their deliveries were used up.
        in_flight_peak: most records locked at once, over all share-partitions.
    """

    delivery_count: int = 0
    redelivery_count: int = 0
    lock_timeout_count: int = 0
    archived_at_limit_count: int = 0
    in_flight_peak: int = 0
    accepted_count: int = 0
    _in_flight: int = 0
    _states: dict[_Key, _State] = field(default_factory=dict, compare=False, repr=False)
    _time_counts: Counter[int] = field(default_factory=Counter, repr=False)

    def forget_locks(self) -> None:
        """Begin from the start after rows that are not known."""
        self._states, self._in_flight = {}, 0

    def apply(self, row: StateRow) -> None:
        """Count the transitions of the next row."""
        key = row.group_id, row.topic_id, row.partition
        state = self._states.get(key)
        is_ended = row.record_type is RecordType.SHARE_TOMBSTONE
        if state is not None and (is_ended or row.replaces_state(state.state_epoch)):
            # The locks of a state end with it, without transitions.
            self._in_flight -= state.locked_count
            del self._states[key]
            state = None
        if not row.transitions:
            return
        if state is None:
            state = self._states[key] = _State(row.state_epoch)
        for entry in row.transitions:
            self._apply_entry(entry, state.acquired_ms)
        state.acquired_ms.drop_below(row.start_offset)
        self.in_flight_peak = max(self.in_flight_peak, self._in_flight)

    def time_to_acknowledge_ms(self, share: float) -> int | None:
        """Return the time from its delivery within which this share of the records was acknowledged; None of none."""
        total = self._time_counts.total()
        counted = 0
        for time_ms, count in sorted(self._time_counts.items()):
            counted += count
            if counted >= share * total:
                return time_ms
        return None

    def _apply_entry(self, entry: TransitionEntry, acquired_ms: RangeMap[int]) -> None:
        size = entry.last_offset - entry.first_offset + 1
        if entry.to_state is RecordState.ACQUIRED and entry.from_state is not RecordState.ACQUIRED:
            self._in_flight += size
            self.delivery_count += size
            self.redelivery_count += size if entry.delivery_count > 1 else 0
            acquired_ms.assign(entry.first_offset, entry.last_offset, entry.time_ms)
            return
        if entry.to_state is not RecordState.ACQUIRED:
            for first, last, time_ms in acquired_ms.overlapping(entry.first_offset, entry.last_offset):
                if time_ms != _ENDED:
                    self._in_flight -= last - first + 1
                    if CAUSE_RULES[entry.cause].is_answer:
                        self._time_counts[max(entry.time_ms - time_ms, 0)] += last - first + 1
            acquired_ms.assign(entry.first_offset, entry.last_offset, _ENDED)
        match entry.cause:
            case Cause.UNREAD:
                self.delivery_count -= size
                # The delivery that is taken back was one after the first.
                self.redelivery_count -= size if entry.delivery_count > 0 else 0
            case Cause.LOCK_TIMEOUT:
                self.lock_timeout_count += size
            case Cause.ACCEPT:
                self.accepted_count += size
        if entry.is_archived_at_limit:
            self.archived_at_limit_count += size
