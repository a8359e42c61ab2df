"""The streaming query that hosts a processor: `foreachBatch` runs the loop, and a micro-batch is a checkpoint interval.

The function of a batch returns when the batch's duration is over, its ranges are applied and published, and something
beyond them was applied, so that Spark starts the next batch at once; for a second it also waits for a moment in which
nobody waits for an answer. While nothing happens it stays in the loop. The loop makes no call to the JVM: the batch's
ranges are read by a Spark job beside it, and another thread asks whether the query is still wanted, since
`query.stop()` does not end a Python function.

Spark takes seconds to come to its first batch: it starts Python processes for the stream and compiles plans. Members do
not wait for that: from the takeover to the first batch the loop runs on a thread of its own.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sharegroup.config.loader import Settings
from sharegroup.errors import ConfigurationError, ProcessorStoppedError, ShareGroupError
from sharegroup.event_log import Event
from sharegroup.metrics.progress import OBSERVATION
from sharegroup.processor.figures import LoopFigures
from sharegroup.processor.processor import Processor
from sharegroup.spark import request_ranges
from sharegroup.spark.request_ranges import FIGURES_PROPERTY
from sharegroup.spark.session import CONTROL_POOL, check_running, is_running

logger = logging.getLogger("sharegroup.processor")

_QUIET_WAIT_S = 1.0
_LOOK_INTERVAL_MS = 1_000
_EAGER_LOOK_INTERVAL_MS = 10
_IS_ACTIVE_LOOK_S = 0.05
_SERVE_LOOK_S = 0.2
_STOP_TIMEOUT_MS = 10_000
_STOP_TIMEOUT_KEY = "spark.sql.streaming.stopTimeout"


class ProcessorQuery:
    """Runs all share groups of one request log in a streaming query.

    Args:
        spark: the session that runs the query; a classic one.
        settings: configuration of the processor, of the broker and of groups.
        accepts_older_state: whether the state table may be an older copy than the request log.

    Raises:
        ConfigurationError: the session is one of Spark Connect.

    Example:
        ProcessorQuery(spark, settings).serve()
    """

    def __init__(self, spark: SparkSession, settings: Settings, *, accepts_older_state: bool = False) -> None:
        _check_classic(spark)
        self._spark = spark
        self._settings = settings
        self._processor = Processor(settings, accepts_older_state=accepts_older_state)
        self._query: StreamingQuery | None = None
        self._is_unwanted = threading.Event()
        self._first_batch = threading.Event()
        self._before_first_batch = threading.Thread(target=self._run_before_first_batch, name="sharegroup-loop")
        self._before_first_batch.daemon = True
        self._shown = LoopFigures()

    @property
    def processor(self) -> Processor:
        """The processor that the query hosts."""
        return self._processor

    def serve(self, stop: threading.Event | None = None, idle_limit_s: float | None = None) -> None:
        """Start, work until `stop` is set, commit what was applied, and give everything back.

        Args:
            stop: ends the work; without it, it goes on for ever.
            idle_limit_s: ends it, too: for so long no group had a member, and nothing was left to do.

        Raises:
            ShareGroupError: the cause of a failure.
        """
        stop = stop or threading.Event()
        try:
            with self._processor.giving_up_when(stop):
                self.start()
                while not stop.wait(_SERVE_LOOK_S):
                    check_running(self._spark)
                    self.raise_failure()
                    if idle_limit_s is not None and (self._processor.idle_s() or 0.0) >= idle_limit_s:
                        break
        finally:
            self.stop()

    def start(self) -> None:
        """Take over, and start the query.

        Raises:
            ShareGroupError: as `Processor.start`.
        """
        self._processor.start()
        self._before_first_batch.start()
        config = self._settings.processor
        checkpoint = self._new_checkpoint()
        request_ranges.register(self._spark)
        stream = (
            self._spark.readStream.format(request_ranges.FORMAT)
            .options(
                **request_ranges.source_options(
                    self._settings.log, config.request_topic_name, self._processor.start_offsets
                )
            )
            .load()
            .observe(OBSERVATION, *_observed_figures())
        )
        context = self._spark.sparkContext
        pool = context.getLocalProperty("spark.scheduler.pool")
        # Taken over by the query's thread when it starts.
        context.setLocalProperty("spark.scheduler.pool", CONTROL_POOL)
        try:
            self._query = (
                stream.writeStream.queryName(f"sharegroup-processor-{checkpoint.name}")
                .option("checkpointLocation", str(checkpoint))
                .foreachBatch(self._run_batch)
                .start()
            )
        finally:
            context.setLocalProperty("spark.scheduler.pool", pool or "default")
        threading.Thread(target=self._watch_query, name="sharegroup-query-watch", daemon=True).start()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the query ends; True when it did.

        Raises:
            ShareGroupError: what stopped it, when it was not `stop`.
        """
        ended = self._is_unwanted.wait(timeout_s)
        self.raise_failure()
        return ended

    def raise_failure(self) -> None:
        """Raise what stopped the processor; do nothing while it is well, or when it was `stop`.

        Raises:
            ShareGroupError: the cause.
        """
        self._processor.raise_failure()

    def last_progress(self) -> Mapping[str, Any]:
        """Return the loop's figures of the last micro-batch, as its progress has them; empty before the first."""
        progress = self._query.lastProgress if self._query is not None else None
        row = progress.observedMetrics.get(OBSERVATION) if progress is not None else None
        return {} if row is None else row.asDict()

    def stop(self) -> None:
        """Commit and publish what was applied, end the query, and give everything back."""
        self._is_unwanted.set()
        self._processor.stop()
        if self._query is not None and is_running(self._spark):
            _end(self._spark, self._query)

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Run the loop for the duration of a micro-batch."""
        if self._is_unwanted.is_set():
            return
        processor = self._processor
        if not self._first_batch.is_set():
            self._first_batch.set()
            processor.wake()
            self._before_first_batch.join()
        duration_ms = self._settings.processor.batch_duration_ms
        turn = _Turn(batch, processor, duration_ms / 1_000, self._shown)
        look_interval_ms = _LOOK_INTERVAL_MS if duration_ms else _EAGER_LOOK_INTERVAL_MS
        processor.run(lambda: self._is_unwanted.is_set() or turn.is_over(), look_interval_ms)
        self._shown = turn.figures

    def _run_before_first_batch(self) -> None:
        with suppress(ShareGroupError):
            # The processor keeps its failure for `raise_failure`.
            self._processor.run(lambda: self._is_unwanted.is_set() or self._first_batch.is_set())

    def _watch_query(self) -> None:
        """End the loop when somebody else stops the query, or the session."""
        query = self._query
        assert query is not None
        while not self._is_unwanted.wait(_IS_ACTIVE_LOOK_S):
            try:
                is_active = query.isActive
            except (Py4JError, OSError):
                is_active = False
            if not is_active:
                self._processor.fail(ProcessorStoppedError("The processor's query was stopped, or its session ended."))
                self._is_unwanted.set()

    def _new_checkpoint(self) -> Path:
        """Return a new folder for the query's checkpoint, and delete those of earlier processors of the state table.

        The state table is the only truth: nothing is lost with a checkpoint.
        """
        config = self._settings.processor
        table = hashlib.sha256(str(Path(config.state_table_path).absolute()).encode()).hexdigest()[:12]
        folder = Path(config.checkpoint_path).absolute()
        for older in folder.glob(f"{table}-*"):
            shutil.rmtree(older, ignore_errors=True)
        return folder / f"{table}-{self._processor.leader_epoch}"


class _Turn:
    """One micro-batch: decides when the loop gives the thread back to Spark.

    Attributes:
        figures: the loop's figures since the start, at the moment for which the batch's progress has them.

    Args:
        batch: the ranges.
        processor: the processor that runs the loop.
        duration_s: how long the batch lasts.
        shown: figures that earlier batches have shown.
    """

    def __init__(self, batch: DataFrame, processor: Processor, duration_s: float, shown: LoopFigures) -> None:
        self.figures = shown
        self._batch = batch
        self._processor = processor
        self._duration_s = duration_s
        self._started_s = time.monotonic()
        self._shown = shown
        self._reader: InheritableThread | None = None
        self._ends: dict[int, int] | None = None
        self._error: BaseException | None = None

    def is_over(self) -> bool:
        """Return True when the loop should give the thread back.

        Raises:
            BaseException: the Spark job that reads the batch's ranges failed.
        """
        elapsed_s = time.monotonic() - self._started_s
        if elapsed_s < self._duration_s:
            return False
        if self._reader is None:
            self._reader = InheritableThread(target=self._read_ranges, daemon=True)
            self._reader.start()
        if self._error is not None:
            raise self._error
        if self._ends is None or not _reaches(self._processor.published_ends, self._ends):
            return False
        if not self._duration_s:
            return True
        if not any(self._processor.published_ends[p] > self._ends.get(p, 0) for p in self._processor.published_ends):
            return False
        return self._processor.is_quiet or elapsed_s > self._duration_s + _QUIET_WAIT_S

    def _read_ranges(self) -> None:
        self.figures = self._processor.figures.copy()
        since = self.figures.since(self._shown)
        try:
            self._batch.sparkSession.sparkContext.setLocalProperty(FIGURES_PROPERTY, json.dumps(since.named()))
            rows = self._batch.collect()
            self._ends = {row.partition: row.end_offset for row in rows}
        except BaseException as error:
            self._error = error
        self._processor.wake()


def _observed_figures() -> list[Column]:
    """Return the figures of a batch: each of its rows has all of them."""
    types = {name: "bigint" if isinstance(zero, int) else "double" for name, zero in LoopFigures().named().items()}
    return [F.max(F.get_json_object("figures", f"$.{name}").cast(kind)).alias(name) for name, kind in types.items()]


def _reaches(ends: Mapping[int, int], wanted: Mapping[int, int]) -> bool:
    return all(ends.get(partition, 0) >= end for partition, end in wanted.items())


def _check_classic(spark: SparkSession) -> None:
    if not isinstance(spark, SparkSession) or not hasattr(spark, "_jsparkSession"):
        raise ConfigurationError(
            "The processor cannot run in a session of Spark Connect: its foreachBatch function runs elsewhere.",
            "Start it in a classic session: spark-submit, or a driver of its own.",
        )


def _end(spark: SparkSession, query: StreamingQuery) -> None:
    before = spark.conf.get(_STOP_TIMEOUT_KEY)
    spark.conf.set(_STOP_TIMEOUT_KEY, str(_STOP_TIMEOUT_MS))
    try:
        query.stop()
    except (Py4JJavaError, PySparkException) as error:
        # It starts no batch any more; its thread ends with the process.
        logger.warning(Event("query_left_waiting", reason=str(error).partition("\n")[0]))
    finally:
        spark.conf.set(_STOP_TIMEOUT_KEY, str(before))
