"""ARCHIVING records that a member has rejected: their dead-letter records state this reason (KIP-1191)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharegroup.core.offset_ranges import OffsetRange, RangeMap, clip, gaps
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionRecord, StartOffsetMoved, Transition
from sharegroup.core.run import Run


class RejectedRecords:
    """Records of one share-partition that members rejected; other ARCHIVING records reached the delivery limit.

    Args:
        ranges: (first, last) offsets, ascending.
    """

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        # Most share-partitions have none: the map is created when it is needed.
        self._ranges: RangeMap[None] | None = None
        for first, last in ranges:
            self._add(first, last)

    def note(self, record: SharePartitionRecord) -> None:
        """Update the ranges for a change of the share-partition."""
        if isinstance(record, StartOffsetMoved):
            if self._ranges is not None:
                self._ranges.drop_below(record.start_offset)
        elif not isinstance(record, Transition):
            return
        elif record.to_state is RecordState.ARCHIVING and record.cause is Cause.REJECT:
            self._add(record.first_offset, record.last_offset)
        elif record.cause is Cause.REDRIVE and self._ranges is not None:
            # It may be given up again, for another reason.
            self._ranges.remove(record.first_offset, record.last_offset)

    def ranges(self, runs: Iterable[Run]) -> list[OffsetRange]:
        """Return the (first, last) offsets of rejected records that are still ARCHIVING in these runs."""
        return [(run.first_offset, run.last_offset) for run, is_rejected in self.split(runs) if is_rejected]

    def split(self, runs: Iterable[Run]) -> Iterator[tuple[Run, bool]]:
        """Split the ARCHIVING runs among these, and yield each piece with True if it was rejected."""
        for run in runs:
            if run.state is not RecordState.ARCHIVING:
                continue
            bounds = run.first_offset, run.last_offset
            rejected = [pair[:2] for pair in self._ranges.overlapping(*bounds)] if self._ranges is not None else []
            parts = [(part, True) for part in rejected] + [(part, False) for part in gaps(*bounds, rejected)]
            for part, is_rejected in sorted(parts):
                yield clip(run, *part), is_rejected

    def _add(self, first_offset: int, last_offset: int) -> None:
        if self._ranges is None:
            self._ranges = RangeMap()
        self._ranges.assign(first_offset, last_offset, None)
