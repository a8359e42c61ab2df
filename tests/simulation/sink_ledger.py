"""The guarantee of groups with a sink, by the sink and the state table alone.

A record is accepted if and only if its result is in the sink, and it is there once. Where the state of a
share-partition begins again, for an administrator or since its topic is gone, its records may have results again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.core.record_state import Cause
from sharegroup.protocol.rows import StateRow, TransitionEntry
from tests.simulation.administered import ShareKey
from tests.simulation.sink import SimulatedSink


class _Record(NamedTuple):
    """A record within one state of its share-partition."""

    share_key: ShareKey
    state_epoch: int
    offset: int


class SinkLedger:
    """Compares sinks with the committed rows, at each commit and at the end."""

    def __init__(self) -> None:
        self.sinks: dict[str, SimulatedSink] = {}
        """Group → its sink."""
        self._epochs: dict[tuple[ShareKey, int], int] = {}
        """Share-partition and version of a write → the epoch of the state that acquired its records."""
        self._accepted: Counter[_Record] = Counter()
        self._violations: list[str] = []

    def __contains__(self, group_id: object) -> bool:
        return group_id in self.sinks

    def committed(self, row: StateRow) -> None:
        """Take a row in: what it accepts is in the sink by then, and what it delivers is not."""
        sink = self.sinks.get(row.group_id)
        if sink is None:
            return
        share_key = (row.group_id, row.topic_id, row.partition)
        for entry in row.transitions:
            if entry.cause is Cause.ACQUIRE:
                self._epochs[share_key, entry.write_version] = row.state_epoch
        results: defaultdict[_Record, int] = defaultdict(int, self._results(share_key, sink))
        for entry in row.transitions:
            for record in _records(share_key, row.state_epoch, entry):
                if entry.cause is Cause.ACQUIRE and results[record]:
                    self._violated(f"{record} is delivered by write {entry.write_version}, and has a result")
                if entry.cause is Cause.ACCEPT:
                    self._accepted[record] += 1
                    if not results[record]:
                        self._violated(f"{record} is accepted at {entry.request_offset} without a result")

    def findings(self) -> list[str]:
        """Return what is wrong once all writers have woken up, and everything is drained."""
        results: Counter[_Record] = Counter()
        for group_id, sink in self.sinks.items():
            sink.wake_all()
            self._violations += sink.undecided
            for share_key in {key for key, _ in self._epochs if key[0] == group_id}:
                results.update(self._results(share_key, sink))
        for record, count in results.items():
            if count > 1:
                self._violated(f"{record} has {count} results")
            if not self._accepted[record]:
                self._violated(f"{record} has a result and is not accepted")
        for record in self._accepted - results:
            self._violated(f"{record} is accepted, and its result is not in the sink")
        return self._violations

    def _results(self, share_key: ShareKey, sink: SimulatedSink) -> Counter[_Record]:
        counts: Counter[_Record] = Counter()
        for (version, (topic_id, partition, offset)), count in sink.results.items():
            epoch = self._epochs.get((share_key, version))
            if (topic_id, partition) == share_key[1:] and epoch is not None:
                counts[_Record(share_key, epoch, offset)] += count
        return counts

    def _violated(self, text: str) -> None:
        self._violations.append(text)


def _records(share_key: ShareKey, state_epoch: int, entry: TransitionEntry) -> Iterator[_Record]:
    for offset in range(entry.first_offset, entry.last_offset + 1):
        yield _Record(share_key, state_epoch, offset)
