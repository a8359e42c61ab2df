"""Metrics of the answers to members, and of the share sessions behind them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from sharegroup.actor.effects import Effect, Respond, ShareSessionsCounted
from sharegroup.metrics.catalogue import (
    EXPIRED_SHARE_FETCHES,
    FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    FAILED_SHARE_FETCH_REQUESTS,
    SHARE_PARTITIONS_COUNT,
    SHARE_SESSION_EVICTIONS,
    SHARE_SESSIONS_COUNT,
    TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    TOTAL_SHARE_FETCH_REQUESTS,
)
from sharegroup.metrics.registry import Gauge, Increment, MetricsRegistry
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import ResponseEnvelope

ANSWER_COUNTERS = (
    TOTAL_SHARE_FETCH_REQUESTS,
    FAILED_SHARE_FETCH_REQUESTS,
    EXPIRED_SHARE_FETCHES,
    TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS,
    SHARE_SESSION_EVICTIONS,
)


class AnswerMetrics:
    """Metrics of requests and share sessions; only a processor has them, since no row holds either.

    Args:
        registry: where they are kept.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._sessions: dict[str, ShareSessionsCounted] = {}
        self._lock = threading.Lock()
        registry.add(Increment(metric, (), 0) for metric in ANSWER_COUNTERS)
        registry.add_gauges(self._gauges)

    def published(self, effects: Iterable[Effect]) -> None:
        """Update from the effects of a published commit."""
        effects = list(effects)
        self._registry.add(answer_increments(effects))
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


def answer_increments(effects: Iterable[Effect]) -> Iterator[Increment]:
    """Return what the answers of a commit add to the counters."""
    for effect in effects:
        match effect:
            case Respond(response=response):
                yield from _increments(response)
            case ShareSessionsCounted():
                yield Increment(SHARE_SESSION_EVICTIONS, (), effect.eviction_count)
                yield Increment(EXPIRED_SHARE_FETCHES, (), effect.expired_fetch_count)


def _increments(response: ResponseEnvelope) -> Iterator[Increment]:
    if response.api_key not in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        return
    body = response.body
    partitions = [partition for topic in body.get("responses", ()) for partition in topic.get("partitions", ())]
    is_refused = bool(body.get("error_code"))
    if response.api_key == ApiKey.SHARE_FETCH:
        is_failed = is_refused or any(partition.get("error_code") for partition in partitions)
        yield Increment(TOTAL_SHARE_FETCH_REQUESTS, (), 1)
        yield Increment(FAILED_SHARE_FETCH_REQUESTS, (), int(is_failed))
    if response.api_key == ApiKey.SHARE_ACKNOWLEDGE or any(
        partition.get("is_acknowledged") for partition in partitions
    ):
        is_failed = is_refused or any(partition.get("acknowledge_error_code") for partition in partitions)
        yield Increment(TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS, (), 1)
        yield Increment(FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS, (), int(is_failed))
