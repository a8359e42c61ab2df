"""The processor: one streaming query from the request log to the state table and the responses."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sharegroup.actor.effects import WriteDeadLetters
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import Settings
from sharegroup.errors import CheckpointInUseError, LogError, ProcessorStoppedError, ShareGroupError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.open import ENDLESS_MS, open_log
from sharegroup.metrics.server import MetricsServer
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.group_messages import AlterGroupConfigRequest
from sharegroup.protocol.messages import RequestEnvelope, request
from sharegroup.spark.actor_function import actor_outputs, routed, with_actors
from sharegroup.spark.batch_log import log_batch
from sharegroup.spark.bootstrap import bootstrap_folder
from sharegroup.spark.checkpoint_lock import CheckpointLock
from sharegroup.spark.committer import CommitPoint, Committer, CommitterMetrics, pass_on
from sharegroup.spark.dead_letter_writer import DeadLetterMetrics, DeadLetterWriter
from sharegroup.spark.facts import FactSource
from sharegroup.spark.group_activity import GroupActivity
from sharegroup.spark.link_topics import failure_cause, request_topic_check
from sharegroup.spark.metrics_exporter import MetricsExporter, metrics_server, server_before_takeover
from sharegroup.spark.recovery import Takeover, take_over
from sharegroup.spark.request_stream import POLLING_DELAY_MS, request_stream
from sharegroup.spark.session import CONTROL_POOL, check_running, is_running
from sharegroup.state.fold import FoldedState

logger = logging.getLogger(__name__)

_STOP_PATIENCE_S = 10
_STOP_LOOK_S = 0.01
_STOP_TIMEOUT_KEY = "spark.sql.streaming.stopTimeout"
_SERVE_LOOK_S = 0.2


class Processor:
    """Runs all share groups of one request log.

    Args:
        spark: the session that runs the query.
        settings: configuration of the processor, of the broker and of groups.
        reached: called at each point that the commit of a batch passes.

    Example:
        Processor(spark, settings).serve()
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, reached: Callable[[CommitPoint], None] = pass_on
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._reached = reached
        # Kafka may be away for as long as it likes: nothing is lost, and members wait, too.
        self._log = open_log(settings.log, kafka_timeout_ms=ENDLESS_MS)
        self._checkpoint_lock = CheckpointLock(
            Path(settings.processor.checkpoint_path).absolute(), settings.processor.metrics_port
        )
        self._query: StreamingQuery | None = None
        self._facts: FactSource | None = None
        self._dead_letters: DeadLetterWriter | None = None
        self._activity: GroupActivity | None = None
        self._metrics_server: MetricsServer | None = None
        self._exporter: MetricsExporter | None = None
        self._failure: BaseException | None = None
        self._told: ShareGroupError | None = None
        self._request_topic_id = ""
        self._stop = threading.Event()
        self._is_stopping = False
        self.metrics = CommitterMetrics()

    def serve(self, stop: threading.Event | None = None, idle_limit_s: float | None = None) -> None:
        """Start, work until `stop` is set, let the batch at hand end, and give everything back.

        Args:
            stop: ends the work; without it, it goes on for ever.
            idle_limit_s: ends it, too: for so long no group had a member, and nothing was left to do.

        Raises:
            ShareGroupError: what stopped the processor before.
        """
        self._stop = stop or threading.Event()
        try:
            if self._stop.is_set():
                return
            with self._stoppable():
                self.start()
                while not self._stop.wait(_SERVE_LOOK_S):
                    check_running(self._spark)
                    self.raise_failure()
                    if idle_limit_s is not None and (idle_s := self._idle_s()) is not None and idle_s >= idle_limit_s:
                        break
        finally:
            self.stop()

    def start(self) -> None:
        """Fence older processors, recover, and start the query.

        Raises:
            ConfigurationError: the configuration does not fit the log or the state table, or somebody else listens at
                `metrics.port`.
            StateTableError: the state table cannot be read or written.
            CheckpointInUseError: an older processor on the same checkpoint was fenced, and does not end.
        """
        config = self._settings.processor
        # Before anyone is fenced: a start that is refused must leave no trace.
        if config.metrics_port:
            self._metrics_server = server_before_takeover(config, self._checkpoint_lock)
        try:
            self._start()
        except BaseException:
            self._stop_metrics()
            raise

    def _start(self) -> None:
        config = self._settings.processor
        started_s = time.perf_counter()
        takeover = take_over(
            self._log,
            config,
            self._settings.broker,
            lambda: self._checkpoint_lock.take_over(self._log, config, self._stop),
        )
        committer = Committer(
            self._log, takeover.writer, config, takeover.identity, takeover.last_marker, self.metrics, self._reached
        )
        self._request_topic_id = takeover.identity.request_topic_id
        check = request_topic_check(self._log, config, self._request_topic_id)
        facts = FactSource(self._log, committer.send, self._fail, check)
        self._facts = facts
        dead_letters = DeadLetterWriter(
            self._log,
            committer.send,
            self._fail,
            {config.request_topic_name, config.response_topic_name},
            self._settings.broker.errors_deadletterqueue_auto_create_topics_enable,
        )
        # Before the first batch: what is in the state table comes from here, what batches add comes from them.
        dead_letters.resume(takeover.folded, self._settings.broker)
        self._dead_letters = dead_letters
        self._activity = GroupActivity(takeover)
        opening = self._opening_messages(takeover.folded)
        if config.metrics_port:
            load_ms = (time.perf_counter() - started_s) * 1000
            self._metrics_server = self._metrics_server or metrics_server(config)
            self._exporter = MetricsExporter(
                self._metrics_server,
                self._settings,
                takeover,
                load_ms,
                self.metrics,
                lambda: self.dead_letter_metrics,
            )
        self._query = self._started_query(takeover, self._commit_function(committer, facts, takeover))
        committer.send(opening)
        facts.start()
        dead_letters.start()
        logger.info(
            Event(
                "recovered" if takeover.is_recovery else "started",
                epoch=takeover.writer.leader_epoch,
                checkpoint=takeover.identity.checkpoint_id,
                groups=len(takeover.folded.groups),
            )
        )

    def await_termination(self, timeout_s: int | None = None) -> bool:
        """Wait until the query ends; True when it did.

        Raises:
            ShareGroupError: what stopped it, when it was not `stop`.
        """
        query = self._running_query()
        try:
            ended = query.awaitTermination() if timeout_s is None else query.awaitTermination(timeout_s)
        except StreamingQueryException:
            ended = True
        self.raise_failure()
        return ended is not False

    def raise_failure(self) -> None:
        """Raise what stopped the processor; do nothing while it is well, or when it was `stop`.

        Raises:
            ShareGroupError: a failure of this package, as it is; of any other failure ProcessorStoppedError tells.
        """
        query = self._query
        if self._failure is None and not self._is_stopping and query is not None and not query.isActive:
            self._note(query.exception() or ProcessorStoppedError("Somebody else stopped the processor's query."))
        if self._failure is not None:
            self._told = self._told or self._as_told(self._failure)
            raise self._told

    def _as_told(self, failure: BaseException) -> ShareGroupError:
        """The error for whoever asks: what `failure` comes from, which takes a look at the log."""
        if not isinstance(failure, ShareGroupError) or isinstance(failure, UnknownTopicError):
            failure = failure_cause(failure, self._settings, self._request_topic_id)
        if isinstance(failure, ShareGroupError):
            return failure
        reason = str(failure).partition("\n")[0]
        error = ProcessorStoppedError(f"The processor stopped: {type(failure).__name__}: {reason}")
        error.__cause__ = failure
        return error

    @property
    def dead_letter_metrics(self) -> DeadLetterMetrics:
        """What was written to dead-letter topics, what waits, and what fails; nothing before `start`."""
        return self._dead_letters.metrics if self._dead_letters is not None else DeadLetterMetrics()

    def last_progress(self) -> Mapping[str, int]:
        """Milliseconds that each part of the last micro-batch took, under Spark's names; empty before the first."""
        progress = self._running_query().lastProgress
        return dict(progress.durationMs) if progress is not None else {}

    def stop(self) -> None:
        """Let the batch at hand end, stop the query and give everything back.

        A batch that takes too long is cut short; the next start executes it again.
        """
        self._is_stopping = True
        # Whoever waits for Kafka would not end.
        closing = threading.Timer(_STOP_PATIENCE_S, self._log.close)
        closing.daemon = True
        closing.start()
        if self._facts is not None:
            self._facts.stop()
        if self._dead_letters is not None:
            self._dead_letters.stop()
        if self._query is not None and is_running(self._spark):
            self._await_pause(self._query)
            _end(self._spark, self._query)
        closing.cancel()
        self._stop_metrics()
        self._checkpoint_lock.release()
        self._log.close()

    def _stop_metrics(self) -> None:
        if self._metrics_server is not None:
            self._metrics_server.stop()
            self._metrics_server = None
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Let a start, or a look at the log, that waits for Kafka end some seconds after the stop was asked for."""
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(_SERVE_LOOK_S):
                if self._stop.is_set() and not is_over.wait(_STOP_PATIENCE_S):
                    self._log.close()
                    return

        threading.Thread(target=watch, name="sharegroup-stop", daemon=True).start()
        try:
            yield
        except (CheckpointInUseError, LogError):
            if not self._stop.is_set():
                raise
        finally:
            is_over.set()

    def _await_pause(self, query: StreamingQuery) -> None:
        give_up_at = time.monotonic() + _STOP_PATIENCE_S
        pause = threading.Event()
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up_at:
            pause.wait(_STOP_LOOK_S)

    def _note(self, failure: BaseException) -> None:
        # What a batch meets while it is being stopped is no failure.
        if not self._is_stopping:
            self._failure = self._failure or failure

    def _running_query(self) -> StreamingQuery:
        if self._query is None:
            raise ProcessorStoppedError("The processor is not started.", "Call start() first.")
        return self._query

    def _idle_s(self) -> float | None:
        assert self._activity is not None
        offsets = self._log.offsets(self._settings.processor.request_topic_name)
        ends = {partition: found.end_offset for partition, found in offsets.items()}
        letters = self.dead_letter_metrics
        # Letters that cannot be written would keep a scheduled run from its end; the next one tries them again.
        return self._activity.idle_s(ends, is_writing=letters.waiting_records > 0 and not letters.failures)

    def _commit_function(
        self, committer: Committer, facts: FactSource, takeover: Takeover
    ) -> Callable[[DataFrame, int], None]:
        leader_epoch, activity, dead_letters = takeover.writer.leader_epoch, self._activity, self._dead_letters
        exporter = self._exporter
        assert activity is not None
        assert dead_letters is not None

        def commit(batch: DataFrame, commit_id: int) -> None:
            started_s = time.perf_counter()
            try:
                outputs = actor_outputs(batch)
                repeated = self.metrics.repeated_batches
                committer.commit(commit_id, outputs, facts)
                is_new = self.metrics.repeated_batches == repeated
                log_batch(commit_id, leader_epoch, outputs, self.metrics.commit_seconds[-1] * 1000 if is_new else None)
                activity.committed(outputs)
                if is_new:
                    effects = (effect for output in outputs for effect in output.effects)
                    dead_letters.enqueue(effect for effect in effects if isinstance(effect, WriteDeadLetters))
                    if exporter is not None:
                        exporter.committed(outputs, time.perf_counter() - started_s)
            except BaseException as failure:
                self._note(failure)
                raise

        return commit

    def _started_query(self, takeover: Takeover, commit: Callable[[DataFrame, int], None]) -> StreamingQuery:
        config = self._settings.processor
        checkpoint = Path(config.checkpoint_path).absolute()
        outputs = with_actors(
            routed(request_stream(self._spark, self._settings, takeover.identity.start_offsets)),
            self._settings.broker,
            takeover.writer.leader_epoch,
            bootstrap_folder(checkpoint),
            config.request_topic_partitions,
        )
        context = self._spark.sparkContext
        pool = context.getLocalProperty("spark.scheduler.pool")
        own = {"spark.sql.shuffle.partitions": config.shuffle_partitions}
        if isinstance(self._settings.log, KafkaConfig):
            own["spark.sql.streaming.pollingDelay"] = POLLING_DELAY_MS
        before = {key: self._spark.conf.get(key) for key in own}
        # All of it is taken over by the query's thread when it starts.
        context.setLocalProperty("spark.scheduler.pool", CONTROL_POOL)
        for key, value in own.items():
            self._spark.conf.set(key, str(value))
        try:
            return (
                outputs.writeStream.queryName(
                    f"sharegroup-processor-{takeover.identity.checkpoint_id}-{takeover.writer.leader_epoch}"
                )
                .outputMode("append")
                .option("checkpointLocation", str(checkpoint / "query"))
                .foreachBatch(commit)
                .start()
            )
        finally:
            context.setLocalProperty("spark.scheduler.pool", pool or "default")
            for key, given in before.items():
                self._spark.conf.set(key, str(given))

    def _opening_messages(self, folded: FoldedState) -> list[RequestEnvelope]:
        """A tick for every group that is known, and the configured groups' configuration where it differs."""
        messages = [request(ApiKey.TICK, group_id, Tick()) for group_id in sorted(folded.groups)]
        for group_id, overrides in sorted(self._settings.groups.items()):
            known = folded.groups.get(group_id)
            present = known.metadata.config_overrides if known else {}
            wanted = {**present, **overrides}
            if wanted != present:
                body = AlterGroupConfigRequest(set=dict(overrides))
                messages.append(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, group_id, body))
        return messages

    def _fail(self, failure: BaseException) -> None:
        """A thread died: without it locks would never end, or dead letters wait for ever; the query must not go on."""
        self._note(failure)
        # While it is being stopped, that is being done already.
        if self._query is not None and not self._is_stopping:
            _end(self._spark, self._query)


def _end(spark: SparkSession, query: StreamingQuery) -> None:
    """Stop the query; while Kafka is away, Spark's source ends its clients as late as they give up, which is never."""
    given = spark.conf.get(_STOP_TIMEOUT_KEY)
    spark.conf.set(_STOP_TIMEOUT_KEY, str(_STOP_PATIENCE_S * 1000))
    try:
        query.stop()
    except Py4JJavaError as error:
        # It starts no batch any more; its thread ends with the process.
        logger.warning(Event("query_left_waiting", reason=str(error.java_exception).partition("\n")[0]))
    finally:
        spark.conf.set(_STOP_TIMEOUT_KEY, str(given))
