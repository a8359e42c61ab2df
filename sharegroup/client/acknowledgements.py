"""Acknowledgements that wait to be sent, as runs of offsets: of two for one offset the later counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from sharegroup.core.record_state import AcknowledgeType

PartitionKey = tuple[str, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One type for a range of offsets.

    Attributes:
        topic_id: topic id.
        partition: partition.
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        acknowledge_type: what is said of each record.
        reason: why, for the audit trail; gaps have one.
        topic: topic name, for whoever reads the result.
        redelivery_delay_ms: how long released records stay away from everybody; None = as the group's back-off says.
    """

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    acknowledge_type: AcknowledgeType
    reason: str = ""
    topic: str = ""
    redelivery_delay_ms: int | None = None

    @property
    def key(self) -> PartitionKey:
        """The partition."""
        return self.topic_id, self.partition

    @property
    def offsets(self) -> range:
        """All offsets."""
        return range(self.first_offset, self.last_offset + 1)

    def is_continued_by(self, other: Acknowledgement) -> bool:
        """Whether the other one says the same of the offsets that follow."""
        return (
            self.last_offset + 1 == other.first_offset
            and self.acknowledge_type is other.acknowledge_type
            and self.reason == other.reason
            and self.redelivery_delay_ms == other.redelivery_delay_ms
        )


class PendingAcknowledgements:
    """An ordered set of runs that do not overlap, by partition; neighbours that say the same are one run."""

    def __init__(self) -> None:
        self._runs: dict[PartitionKey, list[Acknowledgement]] = {}

    def __len__(self) -> int:
        """Number of runs."""
        return sum(map(len, self._runs.values()))

    def __iter__(self) -> Iterator[Acknowledgement]:
        return (run for runs in self._runs.values() for run in runs)

    @property
    def partitions(self) -> Collection[PartitionKey]:
        """Partitions with something to send."""
        return self._runs.keys()

    def put(self, new: Acknowledgement) -> None:
        """Add an acknowledgement; it replaces what was there for its offsets."""
        runs = self._runs.setdefault(new.key, [])
        start, end = _overlap(runs, new)
        placed = [new]
        if start < end:
            before, after = runs[start], runs[end - 1]
            if before.first_offset < new.first_offset:
                placed.insert(0, replace(before, last_offset=new.first_offset - 1))
            if after.last_offset > new.last_offset:
                placed.append(replace(after, first_offset=new.last_offset + 1))
        left, right = max(start - 1, 0), end + 1
        runs[left:right] = _joined([*runs[left:start], *placed, *runs[end:right]])

    def put_back(self, old: Acknowledgement) -> None:
        """Add an acknowledgement again that was taken; what was put since then counts more."""
        position = old.first_offset
        runs = self._runs.get(old.key, [])
        start, end = _overlap(runs, old)
        for newer in runs[start:end]:
            if position < newer.first_offset:
                self.put(replace(old, first_offset=position, last_offset=newer.first_offset - 1))
            position = newer.last_offset + 1
        if position <= old.last_offset:
            self.put(replace(old, first_offset=position))

    def take(self, max_runs: int) -> list[Acknowledgement]:
        """Remove up to `max_runs` runs, partition by partition in the order in which they came."""
        taken: list[Acknowledgement] = []
        while self._runs and len(taken) < max_runs:
            key, runs = next(iter(self._runs.items()))
            room = max_runs - len(taken)
            taken += runs[:room]
            del runs[:room]
            if not runs:
                del self._runs[key]
        return taken


def _overlap(runs: list[Acknowledgement], new: Acknowledgement) -> tuple[int, int]:
    """The slice of runs that share an offset with the new one."""
    start = bisect_left(runs, new.first_offset, key=lambda run: run.last_offset)
    return start, bisect_right(runs, new.last_offset, lo=start, key=lambda run: run.first_offset)


def _joined(runs: list[Acknowledgement]) -> list[Acknowledgement]:
    joined = runs[:1]
    for run in runs[1:]:
        if joined[-1].is_continued_by(run):
            joined[-1] = replace(joined[-1], last_offset=run.last_offset)
        else:
            joined.append(run)
    return joined
