"""Metrics of the groups: counters from committed rows, gauges from the folded state and the logs.

A processor updates them with each commit; `table_metrics` makes them from the state table, without a processor.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.core.cause_rules import ANSWER_CAUSE
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionLimits
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import LogError
from sharegroup.logs.log_clock import wall_ms
from sharegroup.logs.port import Log
from sharegroup.logs.topic_offsets import TopicOffsets, topic_offsets
from sharegroup.metrics.catalogue import (
    ACQUISITION_LOCK_TIMEOUT,
    ARCHIVING_RECORDS,
    COMMITS,
    DEAD_LETTERS_FAILING,
    DELIVERY_LIMIT_REACHED,
    EVENT_QUEUE_SIZE,
    GROUP_COUNT,
    IN_FLIGHT_BATCH_COUNT,
    IN_FLIGHT_BATCH_MESSAGE_COUNT,
    IN_FLIGHT_MESSAGE_COUNT,
    LAG,
    LEADER_EPOCH,
    LOCKED_RECORDS,
    MEMBERS,
    NUM_PARTITIONS,
    OLDEST_WRITE_IN_DOUBT_SECONDS,
    OPEN_WRITES,
    PAUSED,
    QUARANTINED,
    RECORD_ACKNOWLEDGEMENTS,
    REDELIVERIES,
    RESOLVING_RECORDS,
    SHARE_GROUP_COUNT,
    SHARE_GROUP_REBALANCE_COUNT,
    SPAN_FULL,
    SUSPECT_RECORDS,
    TRANSITIONS,
    WINDOW_RECORDS,
    WRITE_TOTAL,
    WRITES_IN_DOUBT,
)
from sharegroup.metrics.registry import Gauge, Increment, Labels, MetricsRegistry
from sharegroup.protocol.group_description import GroupStateName
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.described_writes import described_sinks, described_writes
from sharegroup.state.fold import (
    SHARE_PARTITION_TYPES,
    FoldedGroup,
    FoldedState,
    advance,
    fold,
    fold_order,
)
from sharegroup.state.reader import StateTableReader

_TYPE_OF_CAUSE = {cause: kind.name.capitalize() for kind, cause in ANSWER_CAUSE.items()}
"""Cause → its name in Kafka's tag. Kafka counts these types: a gap does not come from the application."""
ACKNOWLEDGE_TYPES = tuple(_TYPE_OF_CAUSE.values())
WRITES = frozenset({RecordType.SHARE_SNAPSHOT, RecordType.SHARE_UPDATE})
"""Rows of what Kafka would persist."""

NO_ROWS_YET: tuple[Increment, ...] = (
    *(Increment(RECORD_ACKNOWLEDGEMENTS, (name,), 0) for name in ACKNOWLEDGE_TYPES),
    *(Increment(metric, (), 0) for metric in (WRITE_TOTAL, SHARE_GROUP_REBALANCE_COUNT, COMMITS)),
)
"""Counters that are there from the start, so that their first step is seen."""


def row_increments(row: StateRow) -> Iterator[Increment]:
    """Yield the increments of the counters by a row of the state table."""
    if row.transitions:
        yield from _transition_increments(row)
    elif row.record_type in WRITES:
        yield Increment(ACQUISITION_LOCK_TIMEOUT, share_partition_labels(row), 0)
    if row.record_type in WRITES:
        yield Increment(WRITE_TOTAL, (), 1)
    elif row.record_type is RecordType.GROUP_METADATA:
        yield Increment(SHARE_GROUP_REBALANCE_COUNT, (), group_epoch_count(row))
    elif row.record_type is RecordType.COMMIT_MARKER:
        yield Increment(COMMITS, (), 1)


def group_epoch_count(row: StateRow) -> int:
    """Count the rises of the group epoch in a row."""
    return sum(record["type"] == "ShareGroupMetadata" for record in row.payload.get("records", ()))


def new_batch_sizes(row: StateRow) -> list[int]:
    """Return the number of records of each range that came in flight with a row."""
    return [
        entry.last_offset - entry.first_offset + 1
        for entry in row.transitions
        if entry.cause is Cause.ACQUIRE and entry.from_state is None
    ]


def share_partition_labels(row: StateRow) -> tuple[str, str, str]:
    """Group, topic and partition of a row."""
    return row.group_id, row.topic, str(row.partition)


class TransitionCounts(NamedTuple):
    """Records that changed their state with a row.

    Attributes:
        by_cause: cause → records.
        redelivered: records acquired that had been delivered before.
        given_up: records that have reached the delivery limit.
    """

    by_cause: Counter[Cause]
    redelivered: int
    given_up: int


def transition_counts(row: StateRow) -> TransitionCounts:
    """Count the records that changed their state with a row."""
    causes: Counter[Cause] = Counter()
    redeliveries = given_up = 0
    for entry in row.transitions:
        size = entry.last_offset - entry.first_offset + 1
        causes[entry.cause] += size
        if entry.cause is Cause.ACQUIRE and entry.delivery_count > 1:
            redeliveries += size
        if entry.is_archived_at_limit:
            given_up += size
    return TransitionCounts(causes, redeliveries, given_up)


def _transition_increments(row: StateRow) -> Iterator[Increment]:
    topic = (row.group_id, row.topic)
    counts = transition_counts(row)
    for cause, count in counts.by_cause.items():
        yield Increment(TRANSITIONS, (*topic, cause.value), count)
        if cause in _TYPE_OF_CAUSE:
            yield Increment(RECORD_ACKNOWLEDGEMENTS, (_TYPE_OF_CAUSE[cause],), count)
    yield Increment(REDELIVERIES, topic, counts.redelivered)
    yield Increment(DELIVERY_LIMIT_REACHED, topic, counts.given_up)
    yield Increment(ACQUISITION_LOCK_TIMEOUT, share_partition_labels(row), counts.by_cause[Cause.LOCK_TIMEOUT])


_PROTOCOL = "share"
_STATES = (GroupStateName.EMPTY, GroupStateName.STABLE, GroupStateName.DEAD)


class GroupMetrics:
    """Metrics of all groups.

    A commit costs with the ranges that it changed, a collection with the runs in flight.

    Args:
        state: the groups' state; only this object may use it from now on.
        offsets: topic names → their offsets in the log.
        broker: defaults and bounds of the groups' configurations.
        now_ms: returns the time, to tell which delays are over.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        state: FoldedState,
        offsets: Callable[[Iterable[str]], TopicOffsets],
        broker: BrokerConfig,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._registry = registry
        self._state = state
        self._offsets = offsets
        self._broker = broker
        self._now_ms = now_ms
        self._lock = threading.Lock()
        registry.add(NO_ROWS_YET)
        registry.add(
            Increment(ACQUISITION_LOCK_TIMEOUT, (group.group_id, folded.topic, str(folded.partition)), 0)
            for group in state.groups.values()
            for folded in group.partitions.values()
        )
        registry.add_gauges(self._gauges)

    def count(self, rows: Iterable[StateRow]) -> None:
        """Increase the counters by rows whose outcome is in the state already."""
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

    def topic_name(self, group_id: str, topic_id: str) -> str | None:
        """Return the name of a topic that a group reads; None if it does not."""
        with self._lock:
            group = self._state.groups.get(group_id)
            topic = group.metadata.topics.get(topic_id) if group is not None else None
            return topic.topic if topic is not None else None

    def _gauges(self) -> list[Gauge]:
        with self._lock:
            topics = {topic.topic for group in self._state.groups.values() for topic in group.metadata.topics.values()}
        offsets = self._known_offsets(topics)
        with self._lock:
            groups = list(self._state.groups.values())
            now_ms = self._now_ms()
            gauges = [gauge for group in groups for gauge in _group_gauges(group, offsets, self._broker, now_ms)]
            states = Counter(group.metadata.name for group in groups)
            partition_count = sum(len(group.partitions) for group in groups)
        return [
            *gauges,
            Gauge(GROUP_COUNT, (_PROTOCOL,), len(groups)),
            *(Gauge(SHARE_GROUP_COUNT, (state,), states[state]) for state in _STATES),
            Gauge(NUM_PARTITIONS, (_PROTOCOL,), partition_count),
        ]

    def _known_offsets(self, topics: Iterable[str]) -> TopicOffsets:
        try:
            return self._offsets(topics)
        except LogError:
            # Without them only the lag is unknown.
            return {}


def _group_gauges(group: FoldedGroup, offsets: TopicOffsets, broker: BrokerConfig, now_ms: int) -> Iterator[Gauge]:
    labels = (group.group_id,)
    yield Gauge(MEMBERS, labels, len(group.metadata.members))
    yield Gauge(QUARANTINED, labels, bool(group.failures))
    yield Gauge(PAUSED, labels, group.metadata.pause is not None)
    yield Gauge(DEAD_LETTERS_FAILING, labels, bool(group.dead_letter_failure))
    for sink in described_sinks(described_writes(group, now_ms)):
        of_sink = (*labels, sink.address)
        yield Gauge(OPEN_WRITES, of_sink, sink.open_count)
        yield Gauge(WRITES_IN_DOUBT, of_sink, sink.in_doubt_count)
        yield Gauge(OLDEST_WRITE_IN_DOUBT_SECONDS, of_sink, (sink.oldest_in_doubt_ms or 0) / 1_000)
    limits = effective_group_config(broker, group.metadata.config_overrides).share_partition_limits
    for key, folded in group.partitions.items():
        of_partition, engine = (*labels, folded.topic, str(folded.partition)), folded.share_partition
        yield from _partition_gauges(of_partition, engine, limits, now_ms)
        if (in_log := offsets.get(key)) is not None:
            yield Gauge(LAG, of_partition, engine.lag(in_log.end_offset, in_log.start_offset))


def _partition_gauges(
    labels: Labels, engine: SharePartition, limits: SharePartitionLimits, now_ms: int
) -> Iterator[Gauge]:
    sizes: Counter[RecordState] = Counter()
    suspect_count = 0
    for run in engine.runs:
        sizes[run.state] += run.size
        suspect_count += run.size if run.is_suspect else 0
    yield Gauge(IN_FLIGHT_MESSAGE_COUNT, labels, engine.next_offset - engine.start_offset)
    yield Gauge(IN_FLIGHT_BATCH_COUNT, labels, len(engine.runs))
    yield Gauge(LOCKED_RECORDS, labels, sizes[RecordState.ACQUIRED])
    yield Gauge(WINDOW_RECORDS, labels, engine.runs.window_count(now_ms))
    yield Gauge(SPAN_FULL, labels, engine.is_span_full(limits))
    yield Gauge(SUSPECT_RECORDS, labels, suspect_count)
    yield Gauge(ARCHIVING_RECORDS, labels, sizes[RecordState.ARCHIVING])
    yield Gauge(RESOLVING_RECORDS, labels, sizes[RecordState.RESOLVING])


def request_backlog(log: Log, topic: str, end_offsets: Mapping[int, int]) -> int | None:
    """Return the number of messages of the request log that wait; None when the log does not respond.

    Args:
        end_offsets: partition → offset after the last message that was applied.
    """
    try:
        offsets = log.offsets(topic)
    except LogError:
        return None
    waiting = (seen.end_offset - max(end_offsets.get(p, 0), seen.start_offset) for p, seen in offsets.items())
    return sum(max(count, 0) for count in waiting)


_COUNTED_ROWS = SHARE_PARTITION_TYPES | {RecordType.GROUP_METADATA, RecordType.COMMIT_MARKER}


def table_metrics(
    log: Log,
    state_table_path: str,
    request_topic: str,
    broker: BrokerConfig,
    max_series: int,
    since_ms: int,
    domain: str = "",
) -> MetricsRegistry:
    """Return a registry of the metrics that need no processor: neither requests, sessions nor latencies.

    Args:
        log: the log of requests and records, for the backlog and the lag.
        broker: defaults and bounds of the groups' configurations.
        max_series: label sets of one metric.
        since_ms: counters count what happened from here on; epoch ms.
        domain: value of a label `domain` of all metrics; "" is no such label.

    Raises:
        StateTableError: there is no state table, or it cannot be read.
    """
    table = StateTableReader(state_table_path)
    recovery = table.recovery()
    ends = recovery.last_marker.end_offsets if recovery.last_marker else {}
    registry = MetricsRegistry(max_series, domain=domain)
    groups = GroupMetrics(registry, fold(recovery.rows), lambda topics: topic_offsets(log, topics), broker)
    groups.count(table.rows(record_types=_COUNTED_ROWS, since_ms=since_ms))
    backlog = request_backlog(log, request_topic, ends)
    gauges = [Gauge(LEADER_EPOCH, (), table.leader_epoch())]
    if backlog is not None:
        gauges.append(Gauge(EVENT_QUEUE_SIZE, (), backlog))
    registry.add_gauges(lambda: gauges)
    return registry
