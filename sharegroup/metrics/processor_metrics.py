"""Metrics that only a processor has: requests, share sessions, latencies and rates, and the loop's own figures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace

from sharegroup.actor.effects import Effect, Respond, ShareSessionsCounted
from sharegroup.metrics.catalogue import (
    BATCH_FLUSH_RATE,
    BATCH_FLUSH_TIME,
    EVENT_PROCESSING_TIME,
    EVENT_QUEUE_TIME,
    EXPIRED_SHARE_FETCHES,
    FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    FAILED_SHARE_FETCH_REQUESTS,
    LATENCIES,
    LATENCY_METRICS,
    PARTITION_LOAD_TIME,
    PARTITION_LOAD_TIME_AVG,
    PARTITION_LOAD_TIME_MAX,
    QUANTILES,
    SHARE_GROUP_REBALANCE_RATE,
    SHARE_PARTITIONS_COUNT,
    SHARE_SESSION_EVICTIONS,
    SHARE_SESSIONS_COUNT,
    THREAD_IDLE_RATIO_AVG,
    TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    TOTAL_SHARE_FETCH_REQUESTS,
    WRITE_LATENCY_AVG,
    WRITE_LATENCY_MAX,
    WRITE_RATE,
)
from sharegroup.metrics.group_metrics import WRITES, group_epoch_count
from sharegroup.metrics.registry import Gauge, Increment, MetricsRegistry, quantile
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import ErrorResponse
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.share_fetch import PartitionResponse, ShareFetchResponse

OBSERVATION = "sharegroup"
"""Name of the observed metrics in the progress of the streaming query."""

RESPONSE_COUNTERS = (
    TOTAL_SHARE_FETCH_REQUESTS,
    FAILED_SHARE_FETCH_REQUESTS,
    EXPIRED_SHARE_FETCHES,
    TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    SHARE_SESSION_EVICTIONS,
)


TopicName = Callable[[str, str], str | None]
"""Function: group id, topic id → topic name; None if the group does not know the topic."""


class ResponseMetrics:
    """Metrics of requests and share sessions; only a processor has them, since no row holds either."""

    def __init__(self, registry: MetricsRegistry, topic_name: TopicName) -> None:
        self._registry = registry
        self._topic_name = topic_name
        self._sessions: dict[str, ShareSessionsCounted] = {}
        self._lock = threading.Lock()
        registry.add(Increment(metric, metric.total, 0) for metric in RESPONSE_COUNTERS)
        registry.add_gauges(self._gauges)

    def published(self, effects: Iterable[Effect]) -> None:
        """Update from the effects of a published commit."""
        effects = list(effects)
        self._registry.add(response_increments(effects, self._topic_name))
        with self._lock:
            for effect in effects:
                if isinstance(effect, ShareSessionsCounted):
                    self._sessions[effect.group_id] = effect
                    if not effect.session_count:
                        del self._sessions[effect.group_id]

    def _gauges(self) -> list[Gauge]:
        with self._lock:
            counted = list(self._sessions.values())
        return [
            Gauge(SHARE_SESSIONS_COUNT, (), sum(effect.session_count for effect in counted)),
            Gauge(SHARE_PARTITIONS_COUNT, (), sum(effect.share_partition_count for effect in counted)),
        ]


def response_increments(effects: Iterable[Effect], topic_name: TopicName) -> Iterator[Increment]:
    """Return what the responses of a commit add to the counters."""
    for effect in effects:
        match effect:
            case Respond():
                yield from _increments(effect, topic_name)
            case ShareSessionsCounted():
                yield Increment(SHARE_SESSION_EVICTIONS, (), effect.eviction_count)
                yield Increment(EXPIRED_SHARE_FETCHES, (), effect.expired_fetch_count)


def _increments(response: Respond, topic_name: TopicName) -> Iterator[Increment]:
    api_key, body = response.address.api_key, response.body
    if api_key not in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE) or not isinstance(body, ErrorResponse):
        return
    if isinstance(body, ShareFetchResponse) and body.other_member_waits:
        # A notice, not a response to a request.
        return
    topics = body.responses if isinstance(body, ShareFetchResponse) else ()
    partitions = [partition for topic in topics for partition in topic.partitions]
    is_refused = bool(body.error_code)
    if api_key == ApiKey.SHARE_FETCH:
        yield from _fetch_increments("", partitions, is_refused)
    if api_key == ApiKey.SHARE_ACKNOWLEDGE or any(partition.is_acknowledged for partition in partitions):
        yield from _acknowledgement_increments("", partitions, is_refused)
    for topic in topics:
        name = topic_name(response.address.group_id, topic.topic_id)
        if not name:
            continue
        if any(partition.acquired_records or partition.error_code for partition in topic.partitions):
            yield from _fetch_increments(name, topic.partitions)
        if any(partition.is_acknowledged for partition in topic.partitions):
            yield from _acknowledgement_increments(name, topic.partitions)


def _fetch_increments(
    topic: str, partitions: Iterable[PartitionResponse], is_refused: bool = False
) -> Iterator[Increment]:
    is_failed = is_refused or any(partition.error_code for partition in partitions)
    yield Increment(TOTAL_SHARE_FETCH_REQUESTS, (topic,), 1)
    yield Increment(FAILED_SHARE_FETCH_REQUESTS, (topic,), int(is_failed))


def _acknowledgement_increments(
    topic: str, partitions: Iterable[PartitionResponse], is_refused: bool = False
) -> Iterator[Increment]:
    is_failed = is_refused or any(partition.acknowledge_error_code for partition in partitions)
    yield Increment(TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS, (topic,), 1)
    yield Increment(FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS, (topic,), int(is_failed))


class ProcessorMetrics:
    """Latencies and rates of one processor.

    Args:
        load_ms: how long it took to load all share-partitions.
    """

    def __init__(self, registry: MetricsRegistry, load_ms: float) -> None:
        self._registry = registry
        self._load_ms = load_ms
        self._latencies = {name: registry.recent_values() for name in LATENCIES}
        self._writes = registry.recent_values()
        self._rebalances = registry.recent_values()
        self._lock = threading.Lock()
        registry.observe(PARTITION_LOAD_TIME, (), load_ms)
        registry.add_gauges(self._gauges)

    def published(
        self, rows: Iterable[StateRow], waited_ms: Iterable[float], commit_ms: float | None, processing_ms: float
    ) -> None:
        """Update from a published commit.

        Args:
            waited_ms: for each group and cut, the time that its oldest message had waited for the cut.
            commit_ms: duration of the commit to the state table; None when nothing durable happened.
            processing_ms: duration from taking the first message to the end of publishing.
        """
        rows = list(rows)
        with self._lock:
            for value_ms in waited_ms:
                self._latencies[EVENT_QUEUE_TIME].add(value_ms)
            if commit_ms is not None:
                self._latencies[BATCH_FLUSH_TIME].add(commit_ms)
            self._latencies[EVENT_PROCESSING_TIME].add(processing_ms)
            self._writes.add(sum(row.record_type in WRITES for row in rows))
            self._rebalances.add(sum(map(group_epoch_count, rows)))

    def _gauges(self) -> list[Gauge]:
        with self._lock:
            commits = self._latencies[BATCH_FLUSH_TIME]
            busy_share = self._latencies[EVENT_PROCESSING_TIME].rate() / 1000
            figures = [
                Gauge(LATENCY_METRICS[name, suffix], (), quantile(values, share))
                for name, recent in self._latencies.items()
                for values in [recent.of_window()]
                for suffix, share in QUANTILES.items()
            ]
            return [
                *figures,
                Gauge(WRITE_LATENCY_AVG, (), commits.average()),
                Gauge(WRITE_LATENCY_MAX, (), quantile(commits.of_window(), 1.0)),
                Gauge(BATCH_FLUSH_RATE, (), commits.frequency()),
                Gauge(WRITE_RATE, (), self._writes.rate()),
                Gauge(SHARE_GROUP_REBALANCE_RATE, (), self._rebalances.rate()),
                Gauge(THREAD_IDLE_RATIO_AVG, (), max(0.0, 1.0 - busy_share)),
                Gauge(PARTITION_LOAD_TIME_AVG, (), self._load_ms),
                Gauge(PARTITION_LOAD_TIME_MAX, (), self._load_ms),
            ]


def _count(meaning: str) -> int:
    return field(default=0, metadata={"meaning": meaning})


def _time_ms(meaning: str) -> float:
    return field(default=0.0, metadata={"meaning": meaning})


@dataclass(slots=True)
class LoopFigures:
    """Sums since the processor's start; the loop's threads write them, other threads may read them at any time."""

    messages: int = _count("Messages of the request log that were applied.")
    commits: int = _count("Commits to the state table.")
    responses: int = _count("Responses that were published.")
    take_ms: float = _time_ms("Age of the first message of each cut when the cut was taken, added up.")
    apply_ms: float = _time_ms("Time spent in applying messages.")
    commit_ms: float = _time_ms("Time spent in commits to the state table.")
    publish_ms: float = _time_ms("Time spent in publishing responses and internal messages.")
    cuts: int = _count("Cuts that were applied: messages that were taken together.")
    undecodable_messages: int = _count("Messages that could not be read, and did not name whom to respond to.")
    unaddressed_responses: int = _count("Responses to a partition that the response log does not have.")
    upkeep_failures: int = _count("Runs of the state table's upkeep that failed.")
    failed_followers: int = _count("Followers of published commits that failed, and were left out from then on.")

    def copy(self) -> LoopFigures:
        """Return a copy of the present figures."""
        return replace(self)

    def since(self, earlier: LoopFigures) -> LoopFigures:
        """Return the increase since an earlier copy."""
        return LoopFigures(
            **{figure.name: getattr(self, figure.name) - getattr(earlier, figure.name) for figure in fields(self)}
        )

    def named(self) -> dict[str, float]:
        """Return name → value."""
        return asdict(self)


LOOP_FIGURES: Mapping[str, str] = {figure.name: figure.metadata["meaning"] for figure in fields(LoopFigures)}
"""Name → meaning of each figure; the progress of the streaming query has them as sums over one micro-batch."""
