"""The processor: all share groups of one request log, on a thread that its host lends it.

It has no Spark in it. `sharegroup.spark.processor_query` hosts it in a streaming query; tests and simulations host it
in a process of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sharegroup.config.loader import Settings
from sharegroup.errors import LogError, ProcessorStoppedError, ShareGroupError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.open import ENDLESS_MS, open_log
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, LogRecord
from sharegroup.metrics.server import MetricsServer
from sharegroup.processor.activity import GroupActivity
from sharegroup.processor.answer_records import AnswerRecords
from sharegroup.processor.commit import Commit
from sharegroup.processor.commit_events import log_commit
from sharegroup.processor.dead_letter_writer import DeadLetterMetrics, DeadLetterWriter
from sharegroup.processor.figures import LoopFigures
from sharegroup.processor.group_defaults import initial_configuration, log_configuration_not_in_force
from sharegroup.processor.groups import Groups, Rebuild
from sharegroup.processor.log_watch import LogWatch
from sharegroup.processor.loop import Loop
from sharegroup.processor.metrics_feed import MetricsFeed
from sharegroup.processor.metrics_server import server_after_takeover, server_before_takeover
from sharegroup.processor.partition_clock import PartitionClocks
from sharegroup.processor.takeover import DeltaStateTable, Takeover, take_over
from sharegroup.processor.timers import Timers
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import request
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.upkeep import UpkeepProcess
from sharegroup.state.upkeep_round import UpkeepReport

logger = logging.getLogger("sharegroup.processor")

_STOP_PATIENCE_S = 10
_STOP_LOOK_S = 0.2
_CHECK_INTERVAL_S = 0.5

_UPKEEP_AFTER_COMMITS = 50
"""Commits after which the upkeep's process is started."""


class Processor:
    """Runs all share groups of one request log.

    Args:
        settings: configuration of the processor, of the broker and of groups.
        accepts_older_state: whether the state table may be an older copy than the request log.
        reached: called at each point that a commit passes, on the thread that passes it.

    Example:
        processor = Processor(settings)
        processor.start()
        processor.run(stop.is_set)
        processor.stop()
    """

    def __init__(
        self,
        settings: Settings,
        *,
        accepts_older_state: bool = False,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._accepts_older_state = accepts_older_state
        self._reached = reached
        # Kafka may be away for as long as it likes: nothing is lost, and members wait, too.
        self._log: Log = open_log(settings.log, kafka_timeout_ms=ENDLESS_MS)
        self._running: _Running | None = None
        self._metrics_server: MetricsServer | None = None
        self._is_stopping = threading.Event()
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Take over from older processors, and make everything ready for `run`.

        Raises:
            ConfigurationError: the configuration does not fit the log or the state table, or `metrics.port` is in use.
            OlderStateError: the state table is an older copy than the request log.
            StateTableError: the state table cannot be read or written.
            LogError: the log cannot be read or written.
        """
        config = self._settings.processor
        # Before anyone is fenced: a start that is refused must leave no trace.
        if config.metrics_port:
            self._metrics_server = server_before_takeover(config)
        try:
            started_s = time.perf_counter()
            table = DeltaStateTable.repaired(config.state_table_path)
            takeover = take_over(self._log, table, config, self._accepts_older_state)
            if config.metrics_port and self._metrics_server is None:
                self._metrics_server = server_after_takeover(config, self._is_stopping)
            self._running = _Running(self._settings, self._log, takeover, self.fail, self._reached)
            if self._metrics_server is not None:
                load_ms = (time.perf_counter() - started_s) * 1_000
                self._running.feed_metrics(self._metrics_server, table, load_ms)
            self._running.start()
        except BaseException:
            self._close_metrics()
            raise
        logger.info(Event("started", epoch=takeover.writer.leader_epoch, groups=len(takeover.folded.groups)))

    def run(self, is_over: Callable[[], bool], look_interval_ms: int = 1_000) -> None:
        """Take and apply messages on this thread until `is_over`; see `Loop.run`.

        Raises:
            ShareGroupError: the cause of a failure.
        """
        try:
            self._started().loop.run(lambda: self._is_stopping.is_set() or is_over(), look_interval_ms)
        except BaseException as failure:
            self.fail(failure)
            self.raise_failure()

    def wake(self) -> None:
        """Let `run` look whether it is over; any thread may call it."""
        if self._running is not None:
            self._running.loop.wake()

    def fail(self, failure: BaseException) -> None:
        """Stop for a failure; the first one counts. Failures while the processor is being stopped are none."""
        if self._is_stopping.is_set() or self._failure is not None:
            return
        self._failure = self._cause(failure)
        if self._running is not None:
            self._running.loop.fail(self._failure)

    def raise_failure(self) -> None:
        """Raise what stopped the processor; do nothing while it is well, or when it was `stop`.

        Raises:
            ShareGroupError: the cause; ProcessorStoppedError for an exception of another kind.
        """
        if self._failure is None:
            return
        if isinstance(self._failure, ShareGroupError):
            raise self._failure
        reason = str(self._failure).partition("\n")[0]
        raise ProcessorStoppedError(
            f"The processor stopped: {type(self._failure).__name__}: {reason}"
        ) from self._failure

    def stop(self) -> None:
        """Commit and publish what was applied, and give everything back; `run` returns."""
        self._is_stopping.set()
        # Whoever waits for Kafka would not end.
        closing = threading.Timer(_STOP_PATIENCE_S, self._log.close)
        closing.daemon = True
        closing.start()
        if self._running is not None:
            self._running.stop(_STOP_PATIENCE_S)
        closing.cancel()
        self._close_metrics()
        self._log.close()

    @contextmanager
    def giving_up_when(self, stop: threading.Event) -> Iterator[None]:
        """Let a start that waits for Kafka end some seconds after the stop was asked for."""
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(_STOP_LOOK_S):
                if stop.is_set() and not is_over.wait(_STOP_PATIENCE_S):
                    self._log.close()
                    return

        threading.Thread(target=watch, name="sharegroup-stop", daemon=True).start()
        try:
            yield
        except LogError:
            if not stop.is_set():
                raise
        finally:
            is_over.set()

    @property
    def leader_epoch(self) -> int:
        """Epoch of this processor."""
        return self._started().takeover.writer.leader_epoch

    @property
    def start_offsets(self) -> Mapping[int, int]:
        """Request partition → offset of the first message that this processor applies."""
        return self._started().takeover.position.end_offsets

    @property
    def published_ends(self) -> Mapping[int, int]:
        """Request partition → offset after the last message whose effects are published."""
        return self._started().loop.published_ends

    @property
    def is_quiet(self) -> bool:
        """Return True while nothing that was applied waits to be published."""
        return self._started().loop.is_quiet

    @property
    def figures(self) -> LoopFigures:
        """Figures of the loop since the start."""
        return self._running.loop.figures if self._running is not None else LoopFigures()

    @property
    def dead_letter_metrics(self) -> DeadLetterMetrics:
        """Counts of the dead-letter writer."""
        return self._running.dead_letters.metrics if self._running is not None else DeadLetterMetrics()

    def idle_s(self) -> float | None:
        """Return for how long nothing has been left to do; None while a group has a member, or something is left."""
        running = self._started()
        offsets = self._log.offsets(self._settings.processor.request_topic_name)
        ends = {partition: offset.end_offset for partition, offset in offsets.items()}
        metrics = running.dead_letters.metrics
        # Records that cannot be written would keep a scheduled run from its end; the next one tries them again.
        return running.activity.idle_s(ends, is_writing=metrics.waiting_records > 0 and not metrics.failures)

    def _cause(self, failure: BaseException) -> BaseException:
        """Return the cause of a failure: a topic that is gone may be the request topic."""
        if isinstance(failure, UnknownTopicError) and self._running is not None:
            try:
                self._running.takeover.publisher.check_request_topic()
            except UnknownTopicError as cause:
                cause.__cause__ = failure
                return cause
            except ShareGroupError:
                return failure
        return failure

    def _started(self) -> _Running:
        if self._running is None:
            raise ProcessorStoppedError("The processor is not started.", "Call start() first.")
        return self._running

    def _close_metrics(self) -> None:
        if self._metrics_server is not None:
            self._metrics_server.stop()
            self._metrics_server = None


class _Running:
    """The parts of a processor that has taken over."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        takeover: Takeover,
        fail: Callable[[BaseException], None],
        reached: Callable[[str], None],
    ) -> None:
        config, position = settings.processor, takeover.position
        self.takeover = takeover
        self._settings = settings
        self._log = log
        self._metrics: MetricsFeed | None = None
        publisher, leader_epoch = takeover.publisher, position.leader_epoch
        # Before the groups have the folded state: they change it.
        self.activity = GroupActivity(takeover.folded, position.end_offsets)
        self.dead_letters = DeadLetterWriter(
            log,
            publisher.send,
            fail,
            leader_epoch,
            {config.request_topic_name, config.response_topic_name},
            settings.broker.errors_deadletterqueue_auto_create_topics_enable,
        )
        self.dead_letters.resume(takeover.folded, settings.broker)
        log_configuration_not_in_force(takeover.folded, settings.groups, settings.broker)
        self._opening = [
            *(request(ApiKey.TICK, group_id, Tick(), leader_epoch=leader_epoch) for group_id in takeover.folded.groups),
            *initial_configuration(takeover.folded, settings.groups),
        ]
        self._watch = LogWatch(log, publisher.send, leader_epoch, fail)
        self._upkeep = UpkeepProcess(
            config.state_table_path,
            snapshot_interval_ms=settings.broker.share_coordinator_cold_partition_snapshot_interval_ms,
            on_report=self._upkeep_reported,
        )
        self._has_upkeep = False
        self._topic_check = _TopicCheck(publisher.check_request_topic, fail)
        clocks = PartitionClocks()
        for partition, time_ms in takeover.clock_ms.items():
            clocks.observe(partition, time_ms)
        self._follower = log.follow(config.request_topic_name, position.end_offsets)
        self.loop = Loop(
            position,
            self._follower,
            clocks,
            Groups(
                takeover.folded,
                leader_epoch,
                settings.broker,
                AnswerRecords(log, config, leader_epoch),
                config.request_topic_partitions,
                takeover.marker.group_epoch_floor if takeover.marker else 0,
                self._start_rebuild,
                takeover.marker.attempted_offset if takeover.marker else None,
                takeover.leads_ms,
            ),
            takeover.writer,
            publisher,
            Timers(lambda group_id: partition_for(group_id, config.request_topic_partitions)),
            publisher.tick,
            self._watch.update,
            self._published,
            reached,
            config.max_requests_per_cut,
            config.max_request_bytes_per_cut,
        )

    def start(self) -> None:
        publisher, config = self.takeover.publisher, self._settings.processor
        self.loop.start()
        unapplied = _unapplied_records(self._log, config.request_topic_name, self.takeover)
        if unapplied:
            self.loop.apply_first(unapplied)
        if self.takeover.is_careful:
            self.loop.be_careful({p: offset + 1 for p, offset in self.takeover.announced_offsets.items()})
        publisher.send(self._opening)
        self._watch.start()
        self.dead_letters.start()
        self._topic_check.start()

    def feed_metrics(self, server: MetricsServer, table: StateTableReader, load_ms: float) -> None:
        # The groups change the takeover's own state; metrics have another.
        self._metrics = MetricsFeed(
            server.registry,
            self._settings,
            fold(table.recovery_rows()),
            self.takeover.position.end_offsets,
            self.takeover.position.leader_epoch,
            load_ms,
            self.loop.figures,
            lambda: self.dead_letters.metrics,
        )

    def stop(self, timeout_s: float) -> None:
        self._topic_check.stop()
        self._watch.stop()
        self.dead_letters.stop()
        self.loop.stop(timeout_s)
        self._follower.close()
        if self._has_upkeep:
            self._upkeep.stop()
        if self._metrics is not None:
            self._metrics.close()

    def _published(self, commit: Commit) -> None:
        log_commit(commit)
        self.activity.published(commit)
        self.dead_letters.published(commit)
        if self._metrics is not None:
            self._metrics.published(commit)
        # A process costs half a second of a core, which one that commits little need not spend.
        if not self._has_upkeep and self.loop.figures.commits >= _UPKEEP_AFTER_COMMITS:
            self._has_upkeep = True
            self._upkeep.start()

    def _upkeep_reported(self, report: UpkeepReport) -> None:
        if report.error:
            self.loop.figures.upkeep_failures += 1
            logger.warning(Event("upkeep_failed", reason=report.error))

    def _start_rebuild(self, rebuild: Rebuild) -> None:
        """Read a group's rows once everything that was applied is committed, on a thread of its own."""

        def read() -> None:
            try:
                reader = StateTableReader(self._settings.processor.state_table_path)
                rebuild.rows = reader.recovery_rows(rebuild.group_id)
                self.loop.rebuild_is_read(rebuild)
            except BaseException as failure:
                self.loop.fail(failure)

        def start() -> None:
            threading.Thread(target=read, name="sharegroup-rebuild", daemon=True).start()

        self.loop.when_committed(start)


class _TopicCheck:
    """Looks now and then whether the request topic is still the one that the processor follows."""

    def __init__(self, check: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        self._check = check
        self._fail = fail
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharegroup-topic-check", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(_CHECK_INTERVAL_S):
                self._check()
        except BaseException as failure:
            self._fail(failure)


def _unapplied_records(log: Log, topic: str, takeover: Takeover) -> list[LogRecord]:
    """Return the messages of groups that were being rebuilt when the last marker was written, in offset order."""
    position = takeover.position
    records: list[LogRecord] = []
    for group_id, first_offset in position.unapplied_groups.items():
        partition = partition_for(group_id, len(position.end_offsets))
        between = log.read(topic, partition, first_offset, position.end_offsets[partition])
        records += [record for record in between if record.key == group_id.encode()]
    return sorted(records, key=lambda record: (record.partition, record.offset))
