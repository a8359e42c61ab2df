"""The processor of all share groups of one request log, on a thread that its host provides.

It does not depend on Spark. `sharegroup.spark.processor_query` hosts it in a streaming query; tests and simulations
host it in a process of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from sharegroup.config.loader import Settings
from sharegroup.errors import LogError, ProcessorStoppedError, ShareGroupError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.member_life import MemberLock
from sharegroup.logs.open import open_log
from sharegroup.logs.port import ENDLESS_MS, Log
from sharegroup.metrics.exposition import MetricsServer
from sharegroup.metrics.processor_metrics import LoopFigures
from sharegroup.processor.assembly import Assembly
from sharegroup.processor.followers.metrics_feed import server_after_takeover, server_before_takeover
from sharegroup.processor.interpreter import InterpreterSettings
from sharegroup.processor.part import Part
from sharegroup.processor.standby.lock import hold_lock
from sharegroup.processor.standby.probe_responses import FoldingResponses
from sharegroup.processor.takeover.takeover import DeltaStateTable, take_over
from sharegroup.state.delta_table import LOG_RETENTION_MS
from sharegroup.state.fold import without_collections

logger = logging.getLogger("sharegroup.processor")

_STOP_PATIENCE_S = 10
_LONGEST_STOP_S = 2 * _STOP_PATIENCE_S + LOG_RETENTION_MS / 2_000
"""A commit may take half the log retention; what waits for Kafka before and after it, the patience."""
_STOP_POLL_S = 0.2
_SIDE_TIMEOUT_MS = 5_000
"""How long dead letters and lookups of topics wait for a partition: while it has no leader, others have their turn."""


class Processor:
    """Runs all share groups of one request log.

    Args:
        accepts_older_state: True if the state table may be an older copy than the request log.
        reached: called at each point that a commit passes, on the thread of the commit.
        table: the state table of a standby, which has followed it; the processor opens its own without it.

    Attributes:
        after_epoch: take over only from the processor with this leader epoch; None takes over from any.
        fenced_epoch: leader epoch of this processor's fence; None before it.

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
        table: DeltaStateTable | None = None,
    ) -> None:
        self.after_epoch: int | None = None
        self.fenced_epoch: int | None = None
        self._settings = settings
        self._table = table
        self._accepts_older_state = accepts_older_state
        self._reached = reached
        # Kafka may be away for any time: nothing is lost, and members wait, too.
        self._log: Log = open_log(settings.log, kafka_timeout_ms=ENDLESS_MS)
        self._side_log: Log = open_log(settings.log, kafka_timeout_ms=_SIDE_TIMEOUT_MS)
        self._running: Assembly | None = None
        self._folding = FoldingResponses(self._log, settings.processor)
        self._lock: MemberLock | None = None
        self._metrics_server: MetricsServer | None = None
        self._interpreter = InterpreterSettings()
        self._is_stopping = threading.Event()
        self._failure: BaseException | None = None

    def warm_up(self, use: Callable[[Log], None]) -> None:
        """Use the log before the start, in a thread: the first uses of Kafka's clients take a second in all.

        Args:
            use: uses the log; what fails here is met again at the start.
        """

        def run() -> None:
            with suppress(ShareGroupError):
                use(self._log)

        Part("warm-up", run, _log_warm_up_failure).start()

    def start(self) -> None:
        """Take over from older processors, and prepare `run`.

        Raises:
            ConfigurationError: the configuration contradicts the log or the state table, or `metrics.port` is in use.
            OlderStateError: the state table is an older copy than the request log.
            FencedProcessorError: another processor has taken over from the one with `after_epoch`.
            StateTableError: the state table cannot be read or written.
            LogError: the log cannot be read or written.
        """
        config = self._settings.processor
        # Before any processor is fenced: a start that is refused must leave no trace.
        if config.metrics_port:
            self._metrics_server = server_before_takeover(config)
        try:
            started_s = time.perf_counter()
            # The objects created here live as long as the processor, and are frozen at the end.
            with without_collections():
                takeover = take_over(
                    self._log,
                    self._table or DeltaStateTable.repaired(config.state_table_path),
                    config,
                    self._accepts_older_state,
                    self._settings.broker,
                    self.after_epoch,
                    self._fenced,
                )
                if config.metrics_port and self._metrics_server is None:
                    self._metrics_server = server_after_takeover(config, self._is_stopping)
                self._running = Assembly(self._settings, self._log, self._side_log, takeover, self.fail, self._reached)
                if self._metrics_server is not None:
                    load_ms = (time.perf_counter() - started_s) * 1_000
                    self._running.feed_metrics(self._metrics_server, load_ms)
                self._interpreter.apply()
            self._running.start()
            self._folding.end()
        except BaseException:
            self._folding.end()
            self._release_lock()
            self._interpreter.restore()
            self._close_metrics()
            raise
        logger.info(Event("started", epoch=takeover.writer.leader_epoch, groups=len(takeover.folded.groups)))

    def run(self, is_over: Callable[[], bool], poll_interval_ms: int = 1_000) -> None:
        """Take and apply messages on this thread until `is_over`; see `Loop.run`.

        Raises:
            ShareGroupError: the cause of a failure.
        """
        try:
            self._started().loop.run(lambda: self._is_stopping.is_set() or is_over(), poll_interval_ms)
        except BaseException as failure:
            self.fail(failure)
            self.raise_failure()

    def wake(self) -> None:
        """Let `run` check whether it is over; any thread may call it."""
        if self._running is not None:
            self._running.loop.wake()

    def fail(self, failure: BaseException) -> None:
        """Stop because of a failure; the first failure is kept. Failures during `stop` are ignored."""
        if self._is_stopping.is_set() or self._failure is not None:
            return
        self._failure = self._cause(failure)
        if self._running is not None:
            self._running.loop.fail(self._failure)

    def raise_failure(self) -> None:
        """Raise the failure that stopped the processor; do nothing while it works, or after `stop`.

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
        """Commit and publish all applied cuts, and release all resources; `run` returns."""
        self._is_stopping.set()
        closing = Part("closing", lambda: self._close_logs_when_stuck(closing.is_stopping), self.fail)
        closing.start()
        if self._running is not None:
            self._running.stop(_LONGEST_STOP_S)
        closing.request_stop()
        self._release_lock()
        self._interpreter.restore()
        self._close_metrics()
        self._close_logs()

    @contextmanager
    def giving_up_when(self, stop: threading.Event) -> Iterator[None]:
        """Let a start that waits for Kafka end some seconds after a stop was requested."""

        def watch() -> None:
            while not part.is_stopping.wait(_STOP_POLL_S):
                if stop.is_set() and not part.is_stopping.wait(_STOP_PATIENCE_S):
                    self._close_logs()
                    return

        part = Part("stop", watch, self.fail)
        part.start()
        try:
            yield
        except LogError:
            if not stop.is_set():
                raise
        finally:
            part.request_stop()

    @property
    def is_started(self) -> bool:
        """Return True once it has taken over."""
        return self._running is not None

    @property
    def leader_epoch(self) -> int:
        """Return the leader epoch of this processor."""
        return self._started().takeover.writer.leader_epoch

    @property
    def start_offsets(self) -> Mapping[int, int]:
        """Return request partition → offset of the first message that this processor applies."""
        return self._started().takeover.position.end_offsets

    @property
    def published_ends(self) -> Mapping[int, int]:
        """Return request partition → offset after the last message whose effects are published."""
        return self._started().loop.published_ends

    @property
    def is_quiet(self) -> bool:
        """Return True while no applied cuts wait to be published."""
        return self._started().loop.is_quiet

    @property
    def figures(self) -> LoopFigures:
        """Return the figures of the loop since the start."""
        return self._running.loop.figures if self._running is not None else LoopFigures()

    def idle_s(self) -> float | None:
        """Return the seconds for which nothing was left to do; None while a group has a member, or work is left."""
        running = self._started()
        offsets = self._log.offsets(self._settings.processor.request_topic_name)
        published = running.loop.published_ends
        has_messages = any(published.get(partition, 0) < end.end_offset for partition, end in offsets.items())
        metrics = running.dead_letters.metrics
        # Records that cannot be written would keep a scheduled run from ending; the next run retries them.
        is_writing = metrics.waiting_records > 0 and not metrics.failures
        return running.idle_s(has_messages or is_writing)

    def _cause(self, failure: BaseException) -> BaseException:
        """Return the cause of a failure: a missing topic may be the request topic."""
        if isinstance(failure, UnknownTopicError) and self._running is not None:
            try:
                self._running.takeover.publisher.check_request_topic()
            except UnknownTopicError as cause:
                cause.__cause__ = failure
                return cause
            except ShareGroupError:
                return failure
        return failure

    def _fenced(self, leader_epoch: int) -> None:
        self.fenced_epoch = leader_epoch
        self._lock = hold_lock(self._settings.processor, leader_epoch)
        self._folding.begin(leader_epoch)

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _started(self) -> Assembly:
        if self._running is None:
            raise ProcessorStoppedError("The processor is not started.", "Call start() first.")
        return self._running

    def _close_logs_when_stuck(self, is_over: threading.Event) -> None:
        """Close the logs during a stop that takes long: an operation that waits for Kafka would not end.

        A commit to the state table is waited for, since it has a deadline of its own, and then its responses leave.
        """
        patience_ends_s = time.monotonic() + _STOP_PATIENCE_S
        while not is_over.wait(_STOP_POLL_S):
            if self._running is not None and self._running.loop.is_writing:
                patience_ends_s = time.monotonic() + _STOP_PATIENCE_S
            elif time.monotonic() >= patience_ends_s:
                self._close_logs()
                return

    def _close_logs(self) -> None:
        self._log.close()
        self._side_log.close()

    def _close_metrics(self) -> None:
        if self._metrics_server is not None:
            self._metrics_server.stop()
            self._metrics_server = None


def _log_warm_up_failure(failure: BaseException) -> None:
    logger.warning(Event("warm_up_failed", reason=f"{type(failure).__name__}: {failure}"))
