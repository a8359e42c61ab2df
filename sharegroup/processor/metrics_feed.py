"""Feeds the metrics of one processor with each published commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sharegroup.config.loader import Settings
from sharegroup.logs.end_offsets import end_offsets
from sharegroup.logs.open import open_log
from sharegroup.metrics.answer_metrics import AnswerMetrics
from sharegroup.metrics.catalogue import (
    ANSWERS,
    COMMITS,
    CUTS,
    DEAD_LETTER_APPENDS_FAILED,
    DEAD_LETTERS_WRITTEN,
    EVENT_QUEUE_SIZE,
    LEADER_EPOCH,
    LOOP_MILLISECONDS,
    MESSAGES,
    UNANSWERABLE_RESPONSES,
    UNDECODABLE_MESSAGES,
    UPKEEP_FAILURES,
)
from sharegroup.metrics.group_metrics import GroupMetrics
from sharegroup.metrics.processor_metrics import CommitTimes, ProcessorMetrics
from sharegroup.metrics.registry import Gauge, MetricsRegistry
from sharegroup.metrics.request_backlog import RequestBacklog
from sharegroup.processor.commit import Commit
from sharegroup.processor.dead_letter_writer import DeadLetterMetrics
from sharegroup.processor.figures import LoopFigures
from sharegroup.state.fold import FoldedState

_LOG_TIMEOUT_MS = 2_000
"""Prometheus gives up after 10 s; without the log's offsets it gets everything else."""


class MetricsFeed:
    """Keeps the metrics of one processor up to date while it runs.

    Args:
        registry: shows them.
        settings: where the log is.
        folded: all groups at the start; this object changes them from now on, so nothing else may use them.
        applied: request partition → offset from which messages are applied.
        leader_epoch: epoch of the processor.
        load_ms: duration of the takeover.
        figures: the loop's own figures.
        dead_letters: returns the dead-letter writer's own counts.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        settings: Settings,
        folded: FoldedState,
        applied: Mapping[int, int],
        leader_epoch: int,
        load_ms: float,
        figures: LoopFigures,
        dead_letters: Callable[[], DeadLetterMetrics],
    ) -> None:
        self._leader_epoch = leader_epoch
        self._figures = figures
        self._dead_letters = dead_letters
        # A log of its own: the processor's waits for Kafka as long as it takes, and Prometheus does not.
        self._log = open_log(settings.log, kafka_timeout_ms=_LOG_TIMEOUT_MS)
        self._backlog = RequestBacklog(self._log, settings.processor.request_topic_name, applied)
        self._groups = GroupMetrics(registry, folded, lambda topics: end_offsets(self._log, topics))
        self._answers = AnswerMetrics(registry)
        self._processor = ProcessorMetrics(registry, load_ms)
        registry.add_gauges(self._gauges)

    def published(self, commit: Commit) -> None:
        """Update from a published commit."""
        rows = list(commit.rows())
        waited_ms = [max(group.cut_ms - group.oldest_ms, 0) for group in commit.groups]
        commit_ms = None if commit.commit_id is None else commit.commit_ms
        self._groups.committed(rows)
        self._answers.published(commit.effects())
        self._processor.published(rows, CommitTimes(waited_ms, commit_ms, commit.processing_ms))
        self._backlog.applied(commit.end_offsets)

    def close(self) -> None:
        """Close the log; the server is to be stopped before."""
        self._log.close()

    def _gauges(self) -> list[Gauge]:
        figures, dead_letters = self._figures, self._dead_letters()
        backlog = self._backlog.size()
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
            Gauge(ANSWERS, (), figures.answers),
            Gauge(UNDECODABLE_MESSAGES, (), figures.undecodable_messages),
            Gauge(UNANSWERABLE_RESPONSES, (), figures.unanswerable_answers),
            Gauge(UPKEEP_FAILURES, (), figures.upkeep_failures),
            Gauge(DEAD_LETTERS_WRITTEN, (), dead_letters.written_records),
            Gauge(DEAD_LETTER_APPENDS_FAILED, (), dead_letters.failed_appends),
        ]
