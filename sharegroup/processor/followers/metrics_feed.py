"""The metrics of one processor: their port, and their values from each published commit.

A start that is refused must leave no trace, so the port is bound before older processors are fenced. On one machine the
port may belong to the very processor that the takeover ends: then it is bound after the takeover.

The gauges of groups come from a fold of their own, which each commit advances. The live groups have the same state, but
only the loop's thread may read it: a run index that changes cannot be iterated by another thread, and a pass over all
share-partitions on the loop's thread would delay all responses. Counts kept beside the runs would be a second truth.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

from sharegroup.config.loader import Settings
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.config.table_location import location_of
from sharegroup.errors import ConfigurationError
from sharegroup.logs.open import open_log
from sharegroup.logs.topic_offsets import topic_offsets
from sharegroup.metrics.catalogue import (
    COMMITS,
    CUTS,
    DEAD_LETTER_QUEUE_FAILED_PRODUCE_REQUESTS,
    DEAD_LETTER_QUEUE_RECORD_COUNT,
    DEAD_LETTER_QUEUE_TOTAL_PRODUCE_REQUESTS,
    EVENT_QUEUE_SIZE,
    FOLLOWERS_FAILED,
    LEADER_EPOCH,
    LOOP_MILLISECONDS,
    MESSAGES,
    PROCESSOR_INFO,
    RESPONSES,
    UNADDRESSED_RESPONSES,
    UNDECODABLE_MESSAGES,
    UPKEEP_FAILURES,
)
from sharegroup.metrics.exposition import MetricsServer
from sharegroup.metrics.group_metrics import GroupMetrics, request_backlog
from sharegroup.metrics.processor_metrics import LoopFigures, ProcessorMetrics, ResponseMetrics
from sharegroup.metrics.registry import Gauge, MetricsRegistry
from sharegroup.processor.commit import Commit
from sharegroup.processor.dead_letters.writer import DeadLetterMetrics
from sharegroup.state.fold import FoldedState

_LOG_TIMEOUT_MS = 2_000
"""Prometheus stops waiting after 10 s; without the log's offsets it still gets the other metrics."""


_RESPONSE_TIMEOUT_S = 5.0
"""Longer than a processor takes to respond whose log does not respond."""
_RELEASE_TIMEOUT_S = 10.0
_RETRY_INTERVAL_S = 0.1


class MetricsFeed:
    """Keeps the metrics of one processor up to date while it runs.

    Args:
        settings: configuration, with the address of the log.
        folded: all groups at the start; this object changes them from now on, so nothing else may use them.
        published_ends: returns request partition → offset after the last message whose effects are published.
        dead_letters: returns the dead-letter writer's own counts.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        settings: Settings,
        folded: FoldedState,
        published_ends: Callable[[], Mapping[int, int]],
        leader_epoch: int,
        load_ms: float,
        figures: LoopFigures,
        dead_letters: Callable[[], DeadLetterMetrics],
    ) -> None:
        self._leader_epoch = leader_epoch
        self._figures = figures
        self._dead_letters = dead_letters
        # A separate log: the processor's own waits for Kafka without a limit, and Prometheus does not.
        self._log = open_log(settings.log, kafka_timeout_ms=_LOG_TIMEOUT_MS)
        self._request_topic = settings.processor.request_topic_name
        self._published_ends = published_ends
        self._groups = GroupMetrics(registry, folded, lambda topics: topic_offsets(self._log, topics), settings.broker)
        self._responses = ResponseMetrics(registry, self._groups.topic_name)
        self._processor = ProcessorMetrics(registry, load_ms)
        registry.add_gauges(self._gauges)

    def published(self, commit: Commit) -> None:
        """Update from a published commit."""
        rows = commit.rows()
        waited_ms = [max(output.cut_ms - output.oldest_ms, 0) for output in commit.outputs]
        commit_ms = None if commit.commit_id is None else commit.commit_ms
        self._groups.committed(rows)
        self._responses.published(commit.effects())
        self._processor.published(rows, waited_ms, commit_ms, commit.processing_ms)

    def close(self) -> None:
        """Close the log; stop the server first."""
        self._log.close()

    def _gauges(self) -> list[Gauge]:
        figures, dead_letters = self._figures, self._dead_letters()
        backlog = request_backlog(self._log, self._request_topic, self._published_ends())
        steps = {
            "take": figures.take_ms,
            "apply": figures.apply_ms,
            "commit": figures.commit_ms,
            "publish": figures.publish_ms,
        }
        return [
            *([] if backlog is None else [Gauge(EVENT_QUEUE_SIZE, (), backlog)]),
            *(Gauge(LOOP_MILLISECONDS, (step,), milliseconds) for step, milliseconds in steps.items()),
            Gauge(LEADER_EPOCH, (), self._leader_epoch),
            Gauge(MESSAGES, (), figures.messages),
            Gauge(COMMITS, (), figures.commits),
            Gauge(CUTS, (), figures.cuts),
            Gauge(RESPONSES, (), figures.responses),
            Gauge(UNDECODABLE_MESSAGES, (), figures.undecodable_messages),
            Gauge(UNADDRESSED_RESPONSES, (), figures.unaddressed_responses),
            Gauge(UPKEEP_FAILURES, (), figures.upkeep_failures),
            Gauge(FOLLOWERS_FAILED, (), figures.failed_followers),
            *_dead_letter_gauges(dead_letters),
        ]


def _dead_letter_gauges(counted: DeadLetterMetrics) -> Iterator[Gauge]:
    for group_id, of_group in sorted(counted.groups().items()):
        yield Gauge(DEAD_LETTER_QUEUE_RECORD_COUNT, (group_id,), of_group.written_records)
        yield Gauge(DEAD_LETTER_QUEUE_TOTAL_PRODUCE_REQUESTS, (group_id,), of_group.appends)
        yield Gauge(DEAD_LETTER_QUEUE_FAILED_PRODUCE_REQUESTS, (group_id,), of_group.failed_appends)


def server_before_takeover(config: ProcessorConfig) -> MetricsServer | None:
    """Return a server at `metrics.port` that shows its state table; None if a processor of that table uses the port.

    Raises:
        ConfigurationError: another program listens at the port, or it cannot be bound.
    """
    try:
        return _server(config)
    except ConfigurationError:
        if _served_table(config.metrics_host, config.metrics_port) != _state_table(config):
            raise
        return None


def server_after_takeover(config: ProcessorConfig, stop: threading.Event) -> MetricsServer:
    """Return the server as soon as the fenced processor has released the port.

    Args:
        stop: ends the wait.

    Raises:
        ConfigurationError: the port is still in use after 10 s, or when `stop` is set.
    """
    give_up_at_s = time.monotonic() + _RELEASE_TIMEOUT_S
    while True:
        try:
            return _server(config)
        except ConfigurationError:
            if time.monotonic() >= give_up_at_s or stop.wait(_RETRY_INTERVAL_S):
                raise


def _server(config: ProcessorConfig) -> MetricsServer:
    registry = MetricsRegistry(config.metrics_max_series, domain=config.metrics_domain)
    info = Gauge(PROCESSOR_INFO, (_state_table(config),), 1)
    registry.add_gauges(lambda: [info])
    return MetricsServer(registry, config.metrics_host, config.metrics_port)


def _state_table(config: ProcessorConfig) -> str:
    """Return the state table's address in one form for all spellings of its path."""
    folder = location_of(config.state_table_path).folder
    return config.state_table_path if folder is None else os.path.realpath(folder)


def _served_table(host: str, port: int) -> str | None:
    """Return the state table of the processor that listens at a port; None when none responds there."""
    connection = http.client.HTTPConnection(host, port, timeout=_RESPONSE_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return next((sample.labels.get("state_table") for sample in samples if sample.name == PROCESSOR_INFO.name), None)
