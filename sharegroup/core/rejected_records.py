"""Which of the ARCHIVING records a member has rejected: their dead letters say so (KIP-1191)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionRecord, Transition
from sharegroup.core.runs import Run, RunMap


class RejectedRecords:
    """What members rejected of one share-partition; all else that is ARCHIVING has used up its deliveries.

    Args:
        ranges: (first, last) offsets, ascending.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        content = [Run(first, last, RecordState.ARCHIVING, 0) for first, last in ranges]
        # Most share-partitions have none: a map is made when it is needed.
        self._ranges = RunMap(content) if content else None

    def note(self, record: SharePartitionRecord) -> None:
        """Follow what happens to the share-partition."""
        if not isinstance(record, Transition):
            if self._ranges is not None:
                self._ranges.drop_below(record.start_offset)
        elif record.to_state is RecordState.ARCHIVING and record.cause is Cause.REJECT:
            self._ranges = self._ranges if self._ranges is not None else RunMap()
            self._ranges.assign(Run(record.first_offset, record.last_offset, RecordState.ARCHIVING, 0))

    def ranges(self, runs: Iterable[Run]) -> list[tuple[int, int]]:
        """The (first, last) offsets of what is rejected, and ARCHIVING still by these runs."""
        return [(run.first_offset, run.last_offset) for run, is_rejected in self.split(runs) if is_rejected]

    def split(self, runs: Iterable[Run]) -> Iterator[tuple[Run, bool]]:
        """The ARCHIVING ones of some runs in pieces, each with whether it was rejected."""
        for run in runs:
            if run.state is not RecordState.ARCHIVING:
                continue
            first_offset = run.first_offset
            ranges = self._ranges.overlapping(run.first_offset, run.last_offset) if self._ranges is not None else []
            for rejected in ranges:
                if first_offset < rejected.first_offset:
                    yield run.clipped(first_offset, rejected.first_offset - 1), False
                yield run.clipped(rejected.first_offset, rejected.last_offset), True
                first_offset = rejected.last_offset + 1
            if first_offset <= run.last_offset:
                yield run.clipped(first_offset, run.last_offset), False
