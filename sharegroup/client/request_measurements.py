"""How many fetches and heartbeats a member sends, and how long their answers take."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.measurements import MetricName, RecentValues
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message

FETCH_GROUP = "consumer-share-fetch-manager-metrics"
COORDINATOR_GROUP = "consumer-share-coordinator-metrics"
_UNANSWERED_KEPT = 64
"""A parked fetch that the next request overtook is never answered."""


class RequestMeasurements:
    """Counts what is sent; latencies are in milliseconds, and those of fetches hold the time for which they waited."""

    def __init__(self) -> None:
        self._sent = {ApiKey.SHARE_FETCH: RecentValues(), ApiKey.SHARE_GROUP_HEARTBEAT: RecentValues()}
        self._latencies_ms = {api_key: RecentValues() for api_key in self._sent}
        self._unanswered: dict[int, tuple[ApiKey, float]] = {}
        self._last_heartbeat_s: float | None = None

    def sent(self, requests: Iterable[tuple[int, ApiKey, Message]], now_s: float) -> None:
        """Note (correlation id, kind, body) of requests; one that is sent again counts again."""
        for correlation_id, api_key, _ in requests:
            if api_key in self._sent:
                self._sent[api_key].add(1, now_s)
                self._unanswered.setdefault(correlation_id, (api_key, now_s))
            if api_key is ApiKey.SHARE_GROUP_HEARTBEAT:
                self._last_heartbeat_s = now_s
        while len(self._unanswered) > _UNANSWERED_KEPT:
            del self._unanswered[next(iter(self._unanswered))]

    def answered(self, correlation_id: int, now_s: float) -> None:
        """Note an answer."""
        if correlation_id in self._unanswered:
            api_key, sent_s = self._unanswered.pop(correlation_id)
            self._latencies_ms[api_key].add((now_s - sent_s) * 1000, now_s)

    def metrics(self, now_s: float) -> dict[MetricName, float]:
        """The values of now."""
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
        }
