"""The metrics that come from the state table and the log, with or without a running processor."""

from __future__ import annotations

from sharegroup.logs.end_offsets import end_offsets
from sharegroup.logs.port import Log
from sharegroup.metrics.catalogue import EVENT_QUEUE_SIZE, LEADER_EPOCH
from sharegroup.metrics.group_metrics import GroupMetrics
from sharegroup.metrics.registry import Gauge, MetricsRegistry
from sharegroup.metrics.request_backlog import RequestBacklog
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import SHARE_PARTITION_TYPES, fold
from sharegroup.state.reader import StateTableReader

_COUNTED_TYPES = SHARE_PARTITION_TYPES | {RecordType.GROUP_METADATA, RecordType.COMMIT_MARKER}


def table_metrics(
    log: Log, state_table_path: str, request_topic: str, max_series: int, since_ms: int
) -> MetricsRegistry:
    """Return a registry of the metrics that need no processor: neither requests, sessions nor latencies.

    Args:
        log: the log of requests and records, for the backlog and the lag.
        state_table_path: the state table.
        request_topic: topic of the request log.
        max_series: label sets of one metric.
        since_ms: counters count what happened from here on; epoch ms.

    Raises:
        StateTableError: there is no state table, or it cannot be read.
    """
    table = StateTableReader(state_table_path)
    recovery = table.recovery()
    ends = recovery.last_marker.end_offsets if recovery.last_marker else {}
    registry = MetricsRegistry(max_series)
    groups = GroupMetrics(registry, fold(recovery.rows), lambda topics: end_offsets(log, topics))
    groups.count(table.rows(record_types=_COUNTED_TYPES, since_ms=since_ms))
    backlog = RequestBacklog(log, request_topic, ends).size()
    gauges = [Gauge(LEADER_EPOCH, (), table.leader_epoch())]
    if backlog is not None:
        gauges.append(Gauge(EVENT_QUEUE_SIZE, (), backlog))
    registry.add_gauges(lambda: gauges)
    return registry
