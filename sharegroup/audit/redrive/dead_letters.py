"""The dead-letter records of a group in a topic: where they are, and not their content, which may be of any size.

They are read twice. The first time only their positions are noted, some 20 bytes for each; those whose content is
needed, because the original is gone, are read again while the copies are made.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice, pairwise

from sharegroup.audit.redrive.redrive_plan import Candidate
from sharegroup.core.offset_ranges import consecutive
from sharegroup.logs.port import Log, LogRecord
from sharegroup.processor.dead_letters.headers import DeadLetterHeaders, dead_letter_headers_of

_READ_BYTES = 8 * 1024 * 1024
_WINDOW_BYTES = 1_048_576
_MOST_WINDOWS = 8


def records_between(log: Log, topic: str, partition: int, start: int, end: int) -> Iterator[LogRecord]:
    """Yield the records of a partition, a few megabytes of which are in memory at a time."""
    while records := log.read(topic, partition, start, end, max_bytes=_READ_BYTES):
        start = records[-1].offset + 1
        yield from records


class _Positions:
    """The dead-letter records of one partition's records; of several for one record the last one counts."""

    def __init__(self) -> None:
        self.since_ms: int | None = None
        self.offsets = array("q")
        self._partitions = array("i")
        self._positions = array("q")

    def add(self, offset: int, record: LogRecord) -> None:
        """Note the dead-letter record of an offset."""
        self.since_ms = min(record.timestamp_ms, self.since_ms if self.since_ms is not None else record.timestamp_ms)
        self.offsets.append(offset)
        self._partitions.append(record.partition)
        self._positions.append(record.offset)

    def order(self) -> None:
        """Put them in the order of the offsets."""
        offsets = self.offsets
        # The sort is stable: the last one of equal offsets is the one that was added last.
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        last = [at for at, following in pairwise(order) if offsets[at] != offsets[following]]
        last += order[-1:]
        self.offsets = array("q", (offsets[at] for at in last))
        self._partitions = array("i", (self._partitions[at] for at in last))
        self._positions = array("q", (self._positions[at] for at in last))

    def position(self, offset: int) -> tuple[int, int] | None:
        """Return partition and offset of the dead-letter record of an offset."""
        at = bisect_left(self.offsets, offset)
        if at == len(self.offsets) or self.offsets[at] != offset:
            return None
        return self._partitions[at], self._positions[at]


class DeadLetters:
    """The dead-letter records of a group.

    Args:
        since_ms: only dead-letter records of this time or later; epoch ms.

    Raises:
        UnknownTopicError: there is no such topic.
    """

    def __init__(
        self, log: Log, topic: str, group_id: str, since_ms: int | None = None, limit: int | None = None
    ) -> None:
        self._log = log
        self._topic = topic
        self._positions: dict[tuple[str, int], _Positions] = {}
        self._windows: dict[int, dict[int, LogRecord]] = {}
        """Records that were read again, by partition; the partition read last is the last one."""
        self._ends = {partition: offsets.end_offset for partition, offsets in log.offsets(topic).items()}
        for record, origin in islice(self._all(group_id, since_ms), limit):
            self._positions.setdefault((origin.topic, origin.partition), _Positions()).add(origin.offset, record)
        for positions in self._positions.values():
            positions.order()

    def _all(self, group_id: str, since_ms: int | None) -> Iterator[tuple[LogRecord, DeadLetterHeaders]]:
        log, topic = self._log, self._topic
        for partition, offsets in sorted(log.offsets(topic).items()):
            start = offsets.start_offset if since_ms is None else log.offset_for_time(topic, partition, since_ms)
            for record in records_between(log, topic, partition, start, self._ends[partition]):
                origin = dead_letter_headers_of(record.headers)
                if origin is not None and origin.group_id == group_id:
                    yield record, origin

    def candidates(self) -> Iterator[Candidate]:
        """Yield the records to which they lead, by topic, partition and offset; neighbours are one candidate."""
        for (topic, partition), positions in sorted(self._positions.items()):
            for first, last in consecutive(positions.offsets):
                yield Candidate(topic, partition, first, last, positions.since_ms)

    def of(self, topic: str, partition: int, offset: int) -> LogRecord | None:
        """Return the dead-letter record of a record; None when there is none, or it was deleted meanwhile."""
        positions = self._positions.get((topic, partition))
        position = positions.position(offset) if positions is not None else None
        return self._read(*position) if position is not None else None

    def _read(self, partition: int, offset: int) -> LogRecord | None:
        # Neighbours in a partition most often have neighbours as originals.
        window = self._windows.pop(partition, {})
        if offset not in window:
            records = self._log.read(self._topic, partition, offset, self._ends[partition], max_bytes=_WINDOW_BYTES)
            window = {record.offset: record for record in records}
        self._windows[partition] = window
        if len(self._windows) > _MOST_WINDOWS:
            del self._windows[next(iter(self._windows))]
        return window.get(offset)
