"""Statistics of a share-partition by the minute, from its transitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from sharegroup.core.cause_rules import RETURNS, UNDELIVERED
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import StateRow, TransitionEntry

MINUTE_MS = 60_000
_MOST_MINUTES = 60
"""Minutes of a silence that are written."""


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """A row of statistics: one minute of one share-partition. Times are log time.

    Attributes:
        minute_ms: start of the minute; epoch ms.
        commit_id: last commit that is in it.
        start_offset: the SPSO at its end.
        deliveries: records acquired; each delivery counts.
        redeliveries: those of them that had been delivered before.
        released: records released by their members.
        returned: records that went back since their session closed, or their member was silent or ended.
        unread: records returned unread, which takes the delivery back.
        gaps: offsets without a record.
        given_up: records whose deliveries were used up.
        redriven: archived records that an administrator made available again.
        ended_deliveries: deliveries that ended, in any way but unread.
        in_flight_ms: time from acquisition to end, of all of them together.
        longest_in_flight_ms: the longest of these times.
        in_flight_records: records that were delivered and are not finished, at the end of the minute.
        locked_records: those of them that members hold.
        resolving_records: those of them whose write into a sink is in doubt.
        oldest_in_flight_ms: time since the first delivery of the oldest one; 0 without any.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    minute_ms: int
    commit_id: int
    start_offset: int
    deliveries: int
    redeliveries: int
    accepted: int
    rejected: int
    released: int
    lock_timeouts: int
    returned: int
    unread: int
    gaps: int
    given_up: int
    redriven: int
    ended_deliveries: int
    in_flight_ms: int
    longest_in_flight_ms: int
    in_flight_records: int
    locked_records: int
    resolving_records: int
    oldest_in_flight_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return asdict(self)


class _Times(NamedTuple):
    """Times of a record in flight.

    Attributes:
        first_ms: its first delivery; epoch ms.
        held_ms: its present delivery; 0 while no member holds it.
        is_resolving: True while its write is in doubt.
    """

    first_ms: int
    held_ms: int
    is_resolving: bool = False


COUNTED: dict[Cause, str] = {
    **dict.fromkeys(RETURNS, "returned"),
    Cause.ACQUIRE: "deliveries",
    Cause.ACCEPT: "accepted",
    Cause.REJECT: "rejected",
    Cause.RELEASE: "released",
    Cause.LOCK_TIMEOUT: "lock_timeouts",
    Cause.UNREAD: "unread",
    Cause.GAP: "gaps",
    Cause.REDRIVE: "redriven",
}
"""Cause → the column that counts its records."""
_COUNTS = (*dict.fromkeys(COUNTED.values()), "redeliveries", "given_up", "ended_deliveries", "in_flight_ms")


@dataclass
class MinuteStatistics:
    """The statistics of the present minute, and the times of the records in flight.

    Attributes:
        minute_ms: start of the present minute; 0 before the first row.
        commit_id: the last commit.
    """

    minute_ms: int = 0
    start_offset: int = 0
    commit_id: int = -1
    _counts: Counter[str] = field(default_factory=Counter)
    _longest_ms: int = 0
    _times: RangeMap[_Times] = field(default_factory=RangeMap)

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to write: no count, and nothing in flight."""
        return not self._counts and not len(self._times)

    def begin(self, row: StateRow) -> None:
        """Begin with the state of a table snapshot: times that it does not have begin with it."""
        self._times = RangeMap()
        for entry in row.runs:
            if entry.delivery_count and entry.state not in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED):
                held_ms = row.time_ms if entry.state is RecordState.ACQUIRED else 0
                times = _Times(row.time_ms, held_ms, entry.state is RecordState.RESOLVING)
                self._times.assign(entry.first_offset, entry.last_offset, times)
        self.start_offset, self.commit_id = row.start_offset, row.commit_id
        self.minute_ms = self.minute_ms or _minute(row.time_ms)

    def apply(self, row: StateRow) -> Iterator[MinuteRow]:
        """Apply a row of the share-partition; yield the minutes that ended before it."""
        for entry in row.transitions:
            yield from self.close(row, entry.time_ms)
            self._apply(entry)
        yield from self.close(row, row.time_ms)
        self._times.drop_below(row.start_offset)
        self.start_offset, self.commit_id = row.start_offset, row.commit_id

    def end(self) -> None:
        """Forget the records in flight: the state has ended."""
        self._times = RangeMap()

    def close(self, named: StateRow, now_ms: int) -> Iterator[MinuteRow]:
        """Yield the minutes that have ended: the present one, and while records are in flight those after it.

        After a long silence they are the last ones only. A minute in which nothing happened and nothing is in flight is
        left out.

        Args:
            named: a row of the share-partition.
            now_ms: the time; epoch ms.
        """
        minute_ms = _minute(now_ms)
        if not self.minute_ms:
            self.minute_ms = minute_ms
        if minute_ms <= self.minute_ms:
            return
        if self._counts:
            yield self._row(named, self.minute_ms)
            self._counts.clear()
            self._longest_ms, self.minute_ms = 0, self.minute_ms + MINUTE_MS
        if len(self._times):
            first_ms = max(self.minute_ms, minute_ms - _MOST_MINUTES * MINUTE_MS)
            yield from (self._row(named, silent_ms) for silent_ms in range(first_ms, minute_ms, MINUTE_MS))
        self.minute_ms = minute_ms

    def _apply(self, entry: TransitionEntry) -> None:
        first, last = entry.first_offset, entry.last_offset
        size = last - first + 1
        if entry.cause in COUNTED:
            self._counts[COUNTED[entry.cause]] += size
        if entry.cause is Cause.ACQUIRE:
            self._counts["redeliveries"] += size if entry.delivery_count > 1 else 0
            before = self._times.overlapping(first, last)
            self._times.assign(first, last, _Times(entry.time_ms, entry.time_ms))
            for known_first, known_last, times in before:
                self._times.assign(known_first, known_last, times._replace(held_ms=entry.time_ms))
            return
        if entry.is_archived_at_limit:
            self._counts["given_up"] += size
        if entry.from_state is RecordState.ACQUIRED and entry.to_state is not RecordState.ACQUIRED:
            self._end_delivery(entry)
        elif entry.from_state is RecordState.RESOLVING:
            self._leave_in_flight(entry)
        elif entry.to_state.is_terminal:
            self._times.remove(first, last)

    def _end_delivery(self, entry: TransitionEntry) -> None:
        for first, last, times in self._times.overlapping(entry.first_offset, entry.last_offset):
            if entry.cause not in UNDELIVERED:
                duration_ms = max(entry.time_ms - times.held_ms, 0)
                self._counts["ended_deliveries"] += last - first + 1
                self._counts["in_flight_ms"] += duration_ms * (last - first + 1)
                self._longest_ms = max(self._longest_ms, duration_ms)
        self._leave_in_flight(entry)

    def _leave_in_flight(self, entry: TransitionEntry) -> None:
        """Note that records are held no more: they are finished, in doubt, or wait for their next delivery."""
        if entry.to_state.is_terminal or (entry.cause in UNDELIVERED and not entry.delivery_count):
            self._times.remove(entry.first_offset, entry.last_offset)
            return
        is_resolving = entry.to_state is RecordState.RESOLVING
        for first, last, times in self._times.overlapping(entry.first_offset, entry.last_offset):
            self._times.assign(first, last, times._replace(held_ms=0, is_resolving=is_resolving))

    def _row(self, named: StateRow, minute_ms: int) -> MinuteRow:
        times = list(self._times)
        oldest_ms = min((value.first_ms for _, _, value in times), default=minute_ms + MINUTE_MS)
        counts = {name: self._counts[name] for name in _COUNTS}
        return MinuteRow(
            group_id=named.group_id,
            topic=named.topic,
            topic_id=named.topic_id,
            partition=named.partition,
            minute_ms=minute_ms,
            commit_id=self.commit_id,
            start_offset=self.start_offset,
            **counts,
            longest_in_flight_ms=self._longest_ms,
            in_flight_records=sum(last - first + 1 for first, last, _ in times),
            locked_records=sum(last - first + 1 for first, last, value in times if value.held_ms),
            resolving_records=sum(last - first + 1 for first, last, value in times if value.is_resolving),
            oldest_in_flight_ms=max(minute_ms + MINUTE_MS - oldest_ms, 0),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as a JSON object."""
        return {
            "minute_ms": self.minute_ms,
            "start_offset": self.start_offset,
            "commit_id": self.commit_id,
            "counts": dict(self._counts),
            "longest_ms": self._longest_ms,
            "times": [[first, last, *times] for first, last, times in self._times],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the statistics of a JSON object."""
        statistics = cls(fields["minute_ms"], fields["start_offset"], fields["commit_id"], Counter(fields["counts"]))
        statistics._longest_ms = fields["longest_ms"]
        for first, last, *times in fields["times"]:
            statistics._times.assign(first, last, _Times(*times))
        return statistics


def _minute(time_ms: int) -> int:
    return time_ms - time_ms % MINUTE_MS
