"""Metrics of the groups: counters from committed rows, gauges from the state that the rows add up to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from sharegroup.core.record_state import RecordState
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import LogError
from sharegroup.logs.end_offsets import EndOffsets
from sharegroup.metrics.catalogue import (
    ACQUISITION_LOCK_TIMEOUT,
    ARCHIVING_RECORDS,
    DEAD_LETTERS_FAILING,
    GROUP_COUNT,
    IN_FLIGHT_BATCH_COUNT,
    IN_FLIGHT_BATCH_MESSAGE_COUNT,
    IN_FLIGHT_MESSAGE_COUNT,
    LAG,
    LOCKED_RECORDS,
    MEMBERS,
    NUM_PARTITIONS,
    QUARANTINED,
    SHARE_GROUP_COUNT,
)
from sharegroup.metrics.registry import Gauge, Increment, Labels, MetricsRegistry
from sharegroup.metrics.row_increments import NO_ROWS_YET, new_batch_sizes, row_increments, share_partition_labels
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedGroup, FoldedState, advance, fold_order

_PROTOCOL = "share"
_STATES = ("Empty", "Stable", "Dead")


class GroupMetrics:
    """Metrics of all groups.

    Costs with the ranges that a commit changed, and when somebody asks for the metrics with what is in flight.

    Args:
        registry: where they are kept.
        state: the groups' state, which is this object's from now on.
        end_offsets: topic names → where their logs end.
    """

    def __init__(
        self, registry: MetricsRegistry, state: FoldedState, end_offsets: Callable[[Iterable[str]], EndOffsets]
    ) -> None:
        self._registry = registry
        self._state = state
        self._end_offsets = end_offsets
        self._lock = threading.Lock()
        registry.add(NO_ROWS_YET)
        registry.add(
            Increment(ACQUISITION_LOCK_TIMEOUT, (group.group_id, folded.topic, str(folded.partition)), 0)
            for group in state.groups.values()
            for folded in group.partitions.values()
        )
        registry.add_gauges(self._gauges)

    def count(self, rows: Iterable[StateRow]) -> None:
        """Let the counters go up by rows whose outcome is in the state already."""
        for row in rows:
            self._registry.add(row_increments(row))
            for size in new_batch_sizes(row):
                self._registry.observe(IN_FLIGHT_BATCH_MESSAGE_COUNT, share_partition_labels(row), size)

    def committed(self, rows: Iterable[StateRow]) -> None:
        """Update from the rows of a commit that follows the state."""
        rows = sorted(rows, key=fold_order)
        self.count(rows)
        with self._lock:
            for row in rows:
                if row.group_id:
                    advance(self._state, row)
            known = self._state.groups.keys()
            gone = {row.group_id for row in rows if row.group_id and row.group_id not in known}
        for row in rows:
            if row.record_type is RecordType.SHARE_TOMBSTONE:
                self._registry.forget(share_partition_labels(row))
        for group_id in gone:
            self._registry.forget((group_id,))

    def _gauges(self) -> list[Gauge]:
        with self._lock:
            topics = {topic.topic for group in self._state.groups.values() for topic in group.metadata.topics.values()}
        ends = self._known_ends(topics)
        with self._lock:
            groups = list(self._state.groups.values())
            gauges = [gauge for group in groups for gauge in _group_gauges(group, ends)]
            states = Counter(group.metadata.name for group in groups)
            partition_count = sum(len(group.partitions) for group in groups)
        return [
            *gauges,
            Gauge(GROUP_COUNT, (_PROTOCOL,), len(groups)),
            *(Gauge(SHARE_GROUP_COUNT, (state,), states[state]) for state in _STATES),
            Gauge(NUM_PARTITIONS, (_PROTOCOL,), partition_count),
        ]

    def _known_ends(self, topics: Iterable[str]) -> EndOffsets:
        try:
            return self._end_offsets(topics)
        except LogError:
            # Without the ends only the lag is unknown.
            return {}


def _group_gauges(group: FoldedGroup, ends: EndOffsets) -> Iterator[Gauge]:
    labels = (group.group_id,)
    yield Gauge(MEMBERS, labels, len(group.metadata.members))
    yield Gauge(QUARANTINED, labels, bool(group.failures))
    yield Gauge(DEAD_LETTERS_FAILING, labels, bool(group.dead_letter_failure))
    for key, folded in group.partitions.items():
        end_offset = ends.get(key)
        yield from _partition_gauges((*labels, folded.topic, str(folded.partition)), folded.share_partition, end_offset)


def _partition_gauges(labels: Labels, engine: SharePartition, end_offset: int | None) -> Iterator[Gauge]:
    sizes: Counter[RecordState] = Counter()
    for run in engine.runs:
        sizes[run.state] += run.size
    yield Gauge(IN_FLIGHT_MESSAGE_COUNT, labels, engine.next_offset - engine.start_offset)
    yield Gauge(IN_FLIGHT_BATCH_COUNT, labels, len(engine.runs))
    yield Gauge(LOCKED_RECORDS, labels, sizes[RecordState.ACQUIRED])
    yield Gauge(ARCHIVING_RECORDS, labels, sizes[RecordState.ARCHIVING])
    if end_offset is not None:
        yield Gauge(LAG, labels, engine.lag(end_offset))
