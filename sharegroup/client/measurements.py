"""Measurements of a consumer, its polls and its requests: names of the Java client, values of the last minute."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.client.exchange import Request
from sharegroup.client.held_records import ReadRange
from sharegroup.client.pending_acknowledgements import Acknowledged
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message

CONSUMER_GROUP = "consumer-share-metrics"
FETCH_GROUP = "consumer-share-fetch-manager-metrics"
COORDINATOR_GROUP = "consumer-share-coordinator-metrics"
_PENDING_KEPT = 64
"""Maximum number of requests kept that wait for responses: a parked fetch that the next request overtook gets none."""
_WINDOW_S = 30.0
"""`metrics.sample.window.ms`; with `metrics.num.samples`, 2, these are the Java client's defaults."""
_WINDOW_COUNT = 2


class MetricName(NamedTuple):
    """Name of a metric.

    Attributes:
        name: as in `fetch-total`.
        group: as in `consumer-share-fetch-manager-metrics`.
    """

    name: str
    group: str


@dataclass(slots=True)
class _Window:
    start_s: float
    count: int = 0
    sum: float = 0.0
    maximum: float = -math.inf


class WindowedValues:
    """Sum of all values, and average, maximum and rate of those in the last two windows."""

    def __init__(self) -> None:
        self.total = 0.0
        """Sum of all values."""
        self._windows: deque[_Window] = deque(maxlen=_WINDOW_COUNT)

    def add(self, value: float, now_s: float) -> None:
        """Add a present value; the time is in seconds of a clock that does not go back."""
        self.total += value
        if not self._windows or now_s >= self._windows[-1].start_s + _WINDOW_S:
            self._windows.append(_Window(now_s))
        window = self._windows[-1]
        window.count += 1
        window.sum += value
        window.maximum = max(window.maximum, value)

    def average(self, now_s: float) -> float:
        """Return the average value; NaN without values, as in Kafka."""
        windows = self._recent(now_s)
        count = sum(window.count for window in windows)
        return sum(window.sum for window in windows) / count if count else math.nan

    def maximum(self, now_s: float) -> float:
        """Return the highest value; NaN without values, as in Kafka."""
        return max((window.maximum for window in self._recent(now_s)), default=math.nan)

    def rate(self, now_s: float) -> float:
        """Return the sum of the values per second."""
        windows = self._recent(now_s)
        if not windows:
            return 0.0
        return sum(window.sum for window in windows) / max(now_s - windows[0].start_s, _WINDOW_S)

    def _recent(self, now_s: float) -> list[_Window]:
        return [window for window in self._windows if now_s < window.start_s + _WINDOW_COUNT * _WINDOW_S]


class ConsumerMeasurements:
    """Records the calls of a consumer; each time is in seconds, on a monotonic clock."""

    def __init__(self) -> None:
        self._last_poll_s: float | None = None
        self._between_polls_s = 0.0
        self._between_polls_ms = WindowedValues()
        self._idle_ratio = WindowedValues()
        self._records = WindowedValues()
        self._bytes = WindowedValues()
        self._acknowledgements = WindowedValues()
        self._refused_acknowledgements = WindowedValues()

    def poll_started(self, now_s: float) -> None:
        """Record the start of a poll."""
        self._between_polls_s = 0.0 if self._last_poll_s is None else now_s - self._last_poll_s
        self._last_poll_s = now_s
        self._between_polls_ms.add(self._between_polls_s * 1000, now_s)

    def poll_ended(self, now_s: float) -> None:
        """Record the end of a poll: its time counts as idle, the time between polls as the application's."""
        poll_s = now_s - (self._last_poll_s or now_s)
        cycle_s = poll_s + self._between_polls_s
        self._idle_ratio.add(poll_s / cycle_s if cycle_s else 0.0, now_s)

    def delivered(self, ranges: Iterable[ReadRange], now_s: float) -> None:
        """Record the records that a poll returns, and the bytes of their values."""
        ranges = list(ranges)
        self._records.add(sum(len(part.records) for part in ranges), now_s)
        self._bytes.add(sum(sum(map(len, part.records)) for part in ranges), now_s)

    def settled(self, results: Iterable[Acknowledged], now_s: float) -> None:
        """Record responses to acknowledgements; records that are returned unread do not count."""
        for result in results:
            kinds = (ack for ack in result.acknowledgements if ack.acknowledge_type is not AcknowledgeType.UNREAD)
            count = sum(len(acknowledgement.offsets) for acknowledgement in kinds)
            self._acknowledgements.add(count, now_s)
            if result.error is not None:
                self._refused_acknowledgements.add(count, now_s)

    def metrics(self, now_s: float) -> dict[MetricName, float]:
        """Return the current values."""
        refused, last_s = self._refused_acknowledgements, self._last_poll_s
        return {
            MetricName("last-poll-seconds-ago", CONSUMER_GROUP): -1 if last_s is None else now_s - last_s,
            MetricName("time-between-poll-avg", CONSUMER_GROUP): self._between_polls_ms.average(now_s),
            MetricName("time-between-poll-max", CONSUMER_GROUP): self._between_polls_ms.maximum(now_s),
            MetricName("poll-idle-ratio-avg", CONSUMER_GROUP): self._idle_ratio.average(now_s),
            MetricName("records-consumed-total", FETCH_GROUP): self._records.total,
            MetricName("records-consumed-rate", FETCH_GROUP): self._records.rate(now_s),
            MetricName("records-per-request-avg", FETCH_GROUP): self._records.average(now_s),
            MetricName("records-per-request-max", FETCH_GROUP): self._records.maximum(now_s),
            MetricName("bytes-consumed-total", FETCH_GROUP): self._bytes.total,
            MetricName("bytes-consumed-rate", FETCH_GROUP): self._bytes.rate(now_s),
            MetricName("fetch-size-avg", FETCH_GROUP): self._bytes.average(now_s),
            MetricName("fetch-size-max", FETCH_GROUP): self._bytes.maximum(now_s),
            MetricName("acknowledgements-send-total", FETCH_GROUP): self._acknowledgements.total,
            MetricName("acknowledgements-send-rate", FETCH_GROUP): self._acknowledgements.rate(now_s),
            MetricName("acknowledgements-error-total", FETCH_GROUP): refused.total,
            MetricName("acknowledgements-error-rate", FETCH_GROUP): refused.rate(now_s),
        }


class RequestMeasurements:
    """Counts requests and changes of assignment of a member; latencies, in ms, include a fetch's wait for records."""

    def __init__(self) -> None:
        self._sent = {ApiKey.SHARE_FETCH: WindowedValues(), ApiKey.SHARE_GROUP_HEARTBEAT: WindowedValues()}
        self._latencies_ms = {api_key: WindowedValues() for api_key in self._sent}
        self._pending: dict[int, tuple[ApiKey, float]] = {}
        self._last_heartbeat_s: float | None = None
        self._rebalances = WindowedValues()

    def rebalanced(self, now_s: float) -> None:
        """Record an assignment that differs from the one before."""
        self._rebalances.add(1, now_s)

    def sent(self, requests: Iterable[Request[Message]], now_s: float) -> None:
        """Record requests; a repeated request counts again."""
        for correlation_id, api_key, _ in requests:
            if api_key in self._sent:
                self._sent[api_key].add(1, now_s)
                self._pending.setdefault(correlation_id, (api_key, now_s))
            if api_key is ApiKey.SHARE_GROUP_HEARTBEAT:
                self._last_heartbeat_s = now_s
        while len(self._pending) > _PENDING_KEPT:
            del self._pending[next(iter(self._pending))]

    def received(self, correlation_id: int, now_s: float) -> None:
        """Record a response."""
        if correlation_id in self._pending:
            api_key, sent_s = self._pending.pop(correlation_id)
            self._latencies_ms[api_key].add((now_s - sent_s) * 1000, now_s)

    def metrics(self, now_s: float) -> dict[MetricName, float]:
        """Return the current values."""
        fetches, heartbeats = self._sent[ApiKey.SHARE_FETCH], self._sent[ApiKey.SHARE_GROUP_HEARTBEAT]
        fetch_latency = self._latencies_ms[ApiKey.SHARE_FETCH]
        heartbeat_latency = self._latencies_ms[ApiKey.SHARE_GROUP_HEARTBEAT]
        last_s = self._last_heartbeat_s
        return {
            MetricName("fetch-total", FETCH_GROUP): fetches.total,
            MetricName("fetch-rate", FETCH_GROUP): fetches.rate(now_s),
            MetricName("fetch-latency-avg", FETCH_GROUP): fetch_latency.average(now_s),
            MetricName("fetch-latency-max", FETCH_GROUP): fetch_latency.maximum(now_s),
            MetricName("heartbeat-total", COORDINATOR_GROUP): heartbeats.total,
            MetricName("heartbeat-rate", COORDINATOR_GROUP): heartbeats.rate(now_s),
            MetricName("heartbeat-response-time-max", COORDINATOR_GROUP): heartbeat_latency.maximum(now_s),
            MetricName("last-heartbeat-seconds-ago", COORDINATOR_GROUP): -1 if last_s is None else now_s - last_s,
            MetricName("rebalance-total", COORDINATOR_GROUP): self._rebalances.total,
            MetricName("rebalance-rate-per-hour", COORDINATOR_GROUP): self._rebalances.rate(now_s) * 3600,
        }
