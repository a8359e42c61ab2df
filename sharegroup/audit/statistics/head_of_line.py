"""Head-of-line pins: one unfinished record holds the start offset, while records behind it are finished."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.audit.statistics.highest import Highest
from sharegroup.audit.statistics.record_runs import RecordRuns
from sharegroup.core.record_state import RecordState
from sharegroup.protocol.rows import RecordType, StateRow


@dataclass(slots=True)
class Pin:
    """A record that held the start offset.

    Attributes:
        offset: the start offset, and the record.
        since_ms: time at which the first record behind it was finished; epoch ms.
        until_ms: time at which the start offset moved on; None if it has not.
        finished_behind_count: the most records that waited, finished, behind it.
        member_id: the last member that held it; "" for none.
        ended_by: cause of its end; None if it has not ended, or its state has.
    """

    offset: int
    since_ms: int
    finished_behind_count: int
    state: str
    delivery_count: int
    member_id: str
    until_ms: int | None = None
    ended_by: str | None = None


class HeadOfLine:
    """Follows the start offset of a share-partition.

    Args:
        limit: how many pins to keep, the longest ones.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._longest: Highest[Pin] = Highest(limit)
        self._pin: Pin | None = None

    def apply(self, row: StateRow, records: RecordRuns) -> None:
        """Follow one row.

        Args:
            row: the next row of the share-partition.
            records: the state of its records after the row.
        """
        pin = self._pin
        if pin is not None:
            self._note_transitions(pin, row)
            is_over = row.record_type is RecordType.SHARE_TOMBSTONE or row.start_offset != pin.offset
            if is_over or not row.delivery_complete_count:
                pin.until_ms = row.time_ms
                self._longest.add((row.time_ms - pin.since_ms,), pin)
                self._pin = None
            else:
                pin.finished_behind_count = max(pin.finished_behind_count, row.delivery_complete_count)
        if self._pin is None and row.delivery_complete_count > 0:
            self.count += 1
            self._pin = _begun(row, records)

    def pins(self, now_ms: int) -> list[Pin]:
        """Return the longest pins, the longest first.

        Args:
            now_ms: end of the history, up to which a pin that is not over counts; epoch ms.
        """
        pins = list(self._longest)
        if self._pin is not None:
            pins.append(self._pin)
        return sorted(pins, key=lambda pin: pin.since_ms - (now_ms if pin.until_ms is None else pin.until_ms))

    def _note_transitions(self, pin: Pin, row: StateRow) -> None:
        for entry in row.transitions:
            if entry.first_offset <= pin.offset <= entry.last_offset:
                pin.state, pin.delivery_count = entry.to_state.name, entry.delivery_count
                pin.member_id = entry.member_id or pin.member_id
                pin.ended_by = entry.cause.value if entry.to_state.is_terminal else None


def _begun(row: StateRow, records: RecordRuns) -> Pin:
    head = next(iter(records.overlapping(row.start_offset, row.start_offset)), None)
    return Pin(
        offset=row.start_offset,
        since_ms=row.time_ms,
        finished_behind_count=row.delivery_complete_count,
        state=RecordState.AVAILABLE.name if head is None else head.state.name,
        delivery_count=0 if head is None else head.delivery_count,
        member_id="" if head is None else head.member_id,
    )
