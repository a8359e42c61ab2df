"""The records of a share-partition that were delivered more than once: given up, suspects, and others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import TransitionEntry

MAX_REDELIVERED_RANGES = 50
"""Ranges of records that are kept for each share-partition."""


class LastTransition(NamedTuple):
    """The last transition of records that were delivered more than once.

    Attributes:
        delivery_count: deliveries of each record.
        is_archived_at_limit: True if the records were archived because their deliveries were used up.
        is_suspect: True if they wait for a delivery, or are in one, after one that ended without an acknowledgement.
        cause: the cause of the last change, the writing of a dead-letter record apart.
        member_id: the member that holds or held the records.
        reason: the reason that it gave.
        time_ms: time of that change; epoch ms.
    """

    delivery_count: int
    is_archived_at_limit: bool
    is_suspect: bool
    state: RecordState
    cause: Cause
    member_id: str
    reason: str
    time_ms: int

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Return the place in a list: records that the group gave up, suspects, then others; each by delivery count."""
        is_given_up = self.is_archived_at_limit or self.cause is Cause.REJECT
        return not is_given_up, not self.is_suspect, -self.delivery_count


class RedeliveredRecords:
    """The records that were delivered more than once so far, the first ones by rank, in bounded memory."""

    def __init__(self, max_ranges: int = MAX_REDELIVERED_RANGES) -> None:
        self._max_ranges = max_ranges
        self._records: RangeMap[LastTransition | None] = RangeMap()

    def apply(self, entry: TransitionEntry) -> None:
        """Apply one transition of the share-partition."""
        if entry.cause is Cause.DEAD_LETTER_WRITTEN:
            # The table is to show why the records were archived.
            for first, last, before in self._records.overlapping(entry.first_offset, entry.last_offset):
                if before is not None:
                    self._records.assign(first, last, before._replace(state=entry.to_state))
            return
        if entry.delivery_count > 1:
            self._records.assign(entry.first_offset, entry.last_offset, _last_transition(entry))
        elif entry.cause in (Cause.UNREAD, Cause.REDRIVE):
            self._records.assign(entry.first_offset, entry.last_offset, None)
        # Not at each addition: that would sort for each.
        if len(self._records) > 4 * self._max_ranges:
            self._keep_first()

    def __iter__(self) -> Iterator[tuple[int, int, LastTransition]]:
        """Iterate over the records by rank: first offset, last offset, last transition."""
        return iter(self._ranked())

    def _ranked(self) -> list[tuple[int, int, LastTransition]]:
        records = [(first, last, transition) for first, last, transition in self._records if transition is not None]
        records.sort(key=lambda record: (record[2].rank, record[0]))
        return records[: self._max_ranges]

    def _keep_first(self) -> None:
        kept = sorted(self._ranked(), key=lambda record: record[0])
        self._records = RangeMap()
        for first, last, transition in kept:
            self._records.assign(first, last, transition)


def _last_transition(entry: TransitionEntry) -> LastTransition:
    return LastTransition(
        entry.delivery_count,
        entry.is_archived_at_limit,
        entry.is_suspect,
        entry.to_state,
        entry.cause,
        entry.member_id,
        entry.reason,
        entry.time_ms,
    )
