"""The processor's metrics: fed by each batch after its commit, shown by HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharegroup.actor.effects import Persist
from sharegroup.config.loader import Settings
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import ConfigurationError
from sharegroup.logs.end_offsets import end_offsets
from sharegroup.logs.open import open_log
from sharegroup.metrics.answer_metrics import AnswerMetrics
from sharegroup.metrics.catalogue import (
    DEAD_LETTER_APPENDS_FAILED,
    DEAD_LETTERS_WRITTEN,
    EVENT_QUEUE_SIZE,
    LEADER_EPOCH,
    MESSAGES,
    REPEATED_BATCHES,
    UNANSWERABLE_RESPONSES,
    UNDECODABLE_MESSAGES,
)
from sharegroup.metrics.group_metrics import GroupMetrics
from sharegroup.metrics.processor_metrics import BatchTimes, ProcessorMetrics
from sharegroup.metrics.registry import Gauge, MetricsRegistry
from sharegroup.metrics.request_backlog import RequestBacklog
from sharegroup.metrics.server import MetricsServer
from sharegroup.spark.actor_function import ActorOutput
from sharegroup.spark.checkpoint_lock import CheckpointLock
from sharegroup.spark.committer import CommitterMetrics
from sharegroup.spark.dead_letter_writer import DeadLetterMetrics
from sharegroup.spark.recovery import Takeover

_LOOK_TIMEOUT_MS = 2_000
"""Prometheus gives up after 10 s; without Kafka's offsets it is told everything else."""


def metrics_server(config: ProcessorConfig) -> MetricsServer:
    """A server at `metrics.port` with nothing to show yet; raises `ConfigurationError` when that is in use."""
    return MetricsServer(MetricsRegistry(config.metrics_max_series), config.metrics_host, config.metrics_port)


def server_before_takeover(config: ProcessorConfig, lock: CheckpointLock) -> MetricsServer | None:
    """As `metrics_server`; None while the port is that of the processor which the takeover will end.

    Args:
        config: the port.
        lock: that of the checkpoint; the takeover has it only when the older processor has given its port back.

    Raises:
        ConfigurationError: somebody else listens there.
    """
    try:
        return metrics_server(config)
    except ConfigurationError:
        if not lock.is_of_metrics_port(config.metrics_port):
            raise
        return None


class MetricsExporter:
    """Shows one processor's metrics while it runs.

    Args:
        server: shows them; to be stopped after this object.
        settings: where the log is.
        takeover: what the processor starts from; its groups are this object's from now on.
        load_ms: how long the takeover took.
        committer: the committer's own counts.
        dead_letters: the dead-letter writer's own counts.
    """

    def __init__(
        self,
        server: MetricsServer,
        settings: Settings,
        takeover: Takeover,
        load_ms: float,
        committer: CommitterMetrics,
        dead_letters: Callable[[], DeadLetterMetrics],
    ) -> None:
        config = settings.processor
        self._committer = committer
        self._dead_letters = dead_letters
        self._leader_epoch = takeover.writer.leader_epoch
        # A log of its own: the processor's waits for Kafka as long as it takes, and who looks has not got that long.
        self._log = open_log(settings.log, kafka_timeout_ms=_LOOK_TIMEOUT_MS)
        registry = server.registry
        starts = takeover.last_marker[1] if takeover.last_marker else takeover.identity.start_offsets
        self._backlog = RequestBacklog(self._log, config.request_topic_name, starts)
        self._groups = GroupMetrics(registry, takeover.folded, lambda topics: end_offsets(self._log, topics))
        self._answers = AnswerMetrics(registry)
        self._processor = ProcessorMetrics(registry, load_ms)
        registry.add_gauges(self._gauges)

    def committed(self, outputs: Sequence[ActorOutput], processing_s: float) -> None:
        """Take in a batch whose commit is new."""
        effects = [effect for output in outputs for effect in output.effects]
        rows = [effect.row for effect in effects if isinstance(effect, Persist)]
        waited_ms = [max(output.batch_ms - output.oldest_ms, 0) for output in outputs]
        times = BatchTimes(waited_ms, self._committer.commit_seconds[-1] * 1000, processing_s * 1000)
        self._groups.committed(rows)
        self._answers.told(effects)
        self._processor.committed(rows, times)
        self._backlog.applied((output.request_partition, output.end_offset) for output in outputs)

    def close(self) -> None:
        """Give the log back."""
        self._log.close()

    def _gauges(self) -> list[Gauge]:
        committer, dead_letters = self._committer, self._dead_letters()
        backlog = self._backlog.size()
        return [
            *([] if backlog is None else [Gauge(EVENT_QUEUE_SIZE, (), backlog)]),
            Gauge(LEADER_EPOCH, (), self._leader_epoch),
            Gauge(MESSAGES, (), committer.messages),
            Gauge(REPEATED_BATCHES, (), committer.repeated_batches),
            Gauge(UNDECODABLE_MESSAGES, (), committer.undecodable_messages),
            Gauge(UNANSWERABLE_RESPONSES, (), committer.unanswerable_responses),
            Gauge(DEAD_LETTERS_WRITTEN, (), dead_letters.written_letters),
            Gauge(DEAD_LETTER_APPENDS_FAILED, (), dead_letters.failed_appends),
        ]
