"""The last change of each record that a group ever had in flight: of those below the start offset, too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from sharegroup.actor.effects import DeadLetterReason
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import PartitionKey
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry


class LastChange(NamedTuple):
    """The last change of a record.

    Attributes:
        cause: cause of that state; of an archived record the reason why it was given up, None when that is pruned.
        time_ms: time of the change for that cause; epoch ms.
    """

    state: RecordState
    delivery_count: int
    cause: Cause | None
    time_ms: int

    @property
    def dead_letter_reason(self) -> DeadLetterReason:
        """Return the reason in the words of a dead-letter record."""
        is_rejected = self.cause is Cause.REJECT
        return DeadLetterReason.REJECTED if is_rejected else DeadLetterReason.DELIVERY_COUNT_EXCEEDED


LastChanges = dict[PartitionKey, RangeMap[LastChange]]
"""(Topic id, partition) → offsets → last change."""


def last_changes(rows: Iterable[StateRow]) -> LastChanges:
    """Return the last change of each record from a group's rows, in fold order."""
    changes: LastChanges = defaultdict(RangeMap)
    for row in rows:
        if row.partition < 0:
            continue
        key = (row.topic_id, row.partition)
        if row.record_type is RecordType.TABLE_SNAPSHOT and key not in changes:
            # Earlier rows are pruned; what is in flight of them is here.
            for run in row.runs:
                change = LastChange(run.state, run.delivery_count, None, row.time_ms)
                changes[key].assign(run.first_offset, run.last_offset, change)
        for entry in row.transitions:
            _apply(changes[key], entry)
    return changes


def _apply(changes: RangeMap[LastChange], entry: TransitionEntry) -> None:
    change = LastChange(entry.to_state, entry.delivery_count, entry.cause, entry.time_ms)
    if entry.cause is not Cause.DEAD_LETTER_WRITTEN:
        changes.assign(entry.first_offset, entry.last_offset, change)
        return
    before = changes.overlapping(entry.first_offset, entry.last_offset)
    changes.assign(entry.first_offset, entry.last_offset, change._replace(cause=None))
    for first, last, given_up in before:
        # It was given up before, for another cause than the dead-letter record.
        changes.assign(first, last, given_up._replace(state=entry.to_state))
