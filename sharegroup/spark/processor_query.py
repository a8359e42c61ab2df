"""The streaming query that hosts a processor: `foreachBatch` runs the loop, and a micro-batch is a checkpoint interval.

The function of a batch returns when all of this holds: the batch's duration is over, its ranges are applied and
published, and messages beyond them are published, too, so that Spark starts the next batch at once. For a second it
also waits until no member waits for a response (`micro_batch`). While no messages arrive it stays in the loop. The loop
makes no call to the JVM: the batch's ranges are read by a Spark job beside it, and another thread watches the query,
since `query.stop()` does not end a Python function.

Spark takes seconds until its first batch: it starts a session, and Python processes for the stream, and compiles plans.
Members do not wait for that: from the takeover to the first batch the loop runs on a thread of its own. With Spark
Connect it stays there.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sharegroup.config.loader import Settings
from sharegroup.config.table_location import absolute_address
from sharegroup.errors import ProcessorStoppedError
from sharegroup.event_log import Event
from sharegroup.metrics.processor_metrics import OBSERVATION, LoopFigures
from sharegroup.processor.processor import Processor
from sharegroup.processor.thread_host import ThreadHost
from sharegroup.spark import classic, request_ranges
from sharegroup.spark.connect import is_connect
from sharegroup.spark.internal_session import internal_session
from sharegroup.spark.request_ranges import FIGURES_PROPERTY
from sharegroup.spark.session import CONTROL_POOL, check_running, is_running

_QUIET_WAIT_S = 1.0


class MicroBatch:
    """A micro-batch whose ranges are read by a Spark job on a thread beside the loop.

    Attributes:
        figures: the loop's figures since the start, at the time for which the batch's progress shows them.

    Args:
        batch: the ranges.
        duration_s: duration of the batch; 0 ends it as soon as its ranges are published.
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
        """Return True when the function of the batch should return.

        Raises:
            BaseException: the Spark job that reads the batch's ranges failed.
        """
        # 1. Its duration is over.
        elapsed_s = time.monotonic() - self._started_s
        if elapsed_s < self._duration_s:
            return False
        # 2. Its ranges are read.
        if self._reader is None:
            self._reader = InheritableThread(target=self._read_ranges, daemon=True)
            self._reader.start()
        if self._error is not None:
            raise self._error
        if self._ends is None:
            return False
        # 3. They are applied and published.
        published = self._processor.published_ends
        if not _reaches(published, self._ends):
            return False
        if not self._duration_s:
            return True
        # 4. Messages beyond them are published, too: Spark starts the next batch at once.
        if not any(end > self._ends.get(partition, 0) for partition, end in published.items()):
            return False
        # 5. For a second: no member waits for a response.
        return self._processor.is_quiet or elapsed_s > self._duration_s + _QUIET_WAIT_S

    def _read_ranges(self) -> None:
        self.figures = self._processor.figures.copy()
        since = self.figures.since(self._shown)
        try:
            classic.set_job_property(self._batch.sparkSession, FIGURES_PROPERTY, since.named())
            rows = self._batch.collect()
            self._ends = {row.partition: row.end_offset for row in rows}
        except BaseException as error:
            self._error = error
        self._processor.wake()


def _reaches(ends: Mapping[int, int], required: Mapping[int, int]) -> bool:
    return all(ends.get(partition, 0) >= end for partition, end in required.items())


logger = logging.getLogger("sharegroup.processor")

_CHECK_INTERVAL_MS = 1_000
_SHORT_CHECK_INTERVAL_MS = 10
_WATCH_S = 1
_MAX_STARTS = 3
_NOT_CONNECTED = "Python worker failed to connect back"
"""Spark gives up on a Python process that has not connected after ten seconds, as on a machine with much to do."""
_SETTINGS = {
    # Without it, `stop` would wait for ever for a batch that does not end.
    "spark.sql.streaming.stopTimeout": "10000",
}


class ProcessorQuery(ThreadHost):
    """Runs all share groups of one request log in a streaming query; in a session of Spark Connect on a thread.

    A function of `foreachBatch` runs beside the server of Spark Connect, in a process that `query.stop()` does not end:
    so there the loop stays in this process, and there is no query.

    Args:
        spark: a session, or a function that creates it, called after the takeover. The query runs in an internal
            session of the same context.
        accepts_older_state: whether the state table may be an older copy than the request log.
        processor: the processor to host, not started; it is made of the other arguments by default.

    Example:
        ProcessorQuery(spark, settings).serve()
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        settings: Settings,
        *,
        accepts_older_state: bool = False,
        processor: Processor | None = None,
    ) -> None:
        super().__init__(settings, accepts_older_state=accepts_older_state, processor=processor)
        self._create_session = spark if callable(spark) else lambda: spark
        self._session: SparkSession | None = None
        self._settings = settings
        self._query: StreamingQuery | None = None
        self._first_batch = threading.Event()
        self._shown_figures = LoopFigures()

    @property
    def session(self) -> SparkSession:
        """The session of the query, from the start on: its `streams` have the query, and take listeners."""
        assert self._session is not None
        return self._session

    def start(self) -> None:
        """Take over, and start the query; if Spark cannot start it, stop again.

        Raises:
            ShareGroupError: as `Processor.start`.
        """
        super().start()
        try:
            session = self._create_session()
            if is_connect(session):
                self._session = session
                return
            self._session = internal_session(session, _SETTINGS)
            self._query = self._start_query()
        except BaseException:
            self.stop()
            raise
        threading.Thread(target=self._watch_query, name="sharegroup-query-watch", daemon=True).start()

    def check(self) -> None:
        """Check that the session can be used, and that the processor works.

        Raises:
            SparkEndedError: the session was stopped, or its JVM has ended.
            ShareGroupError: the cause of a failure.
        """
        check_running(self.session)
        super().check()

    def last_progress(self) -> Mapping[str, Any]:
        """Return the loop's figures of the last micro-batch, empty before the first; with Spark Connect all figures."""
        if self._query is None:
            return super().last_progress() if self._session is not None else {}
        progress = self._query.lastProgress
        row = progress.observedMetrics.get(OBSERVATION) if progress is not None else None
        return {} if row is None else row.asDict()

    def stop(self) -> None:
        """Commit and publish what was applied, and end the query."""
        super().stop()
        if self._query is not None and is_running(self.session):
            _stop_query(self._query)

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Run the loop for the duration of a micro-batch."""
        if self._stopping.is_set():
            # The query of a processor that failed before its first batch fails, too.
            self.raise_failure()
            return
        processor = self._processor
        if not self._first_batch.is_set():
            self._first_batch.set()
            self._hand_over()
        duration_ms = self._settings.processor.batch_duration_ms
        micro_batch = MicroBatch(batch, processor, duration_ms / 1_000, self._shown_figures)
        check_interval_ms = _CHECK_INTERVAL_MS if duration_ms else _SHORT_CHECK_INTERVAL_MS
        processor.run(lambda: self._stopping.is_set() or micro_batch.is_over(), check_interval_ms)
        self._shown_figures = micro_batch.figures

    def _start_query(self) -> StreamingQuery:
        checkpoint = self._new_checkpoint()
        writer = (
            self._request_stream()
            .writeStream.queryName(f"sharegroup-processor-{checkpoint.name}")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(self._run_batch)
        )
        # The query's thread inherits the pool.
        with classic.scheduler_pool(self.session, CONTROL_POOL):
            return writer.start()

    def _request_stream(self) -> DataFrame:
        """Return the stream of request ranges, with the loop's figures in its progress."""
        request_ranges.register(self.session)
        topic = self._settings.processor.request_topic_name
        options = request_ranges.source_options(self._settings.log, topic, self._processor.start_offsets)
        stream = self.session.readStream.format(request_ranges.FORMAT).options(**options).load()
        return stream.observe(OBSERVATION, *_figure_columns())

    def _watch_query(self) -> None:
        """Stop the loop when somebody else stops the query or the session; restart a query that did not begin."""
        starts = 1
        while not self._stopping.is_set():
            assert self._query is not None
            reason = _await_end(self._query)
            if reason is None or self._stopping.is_set():
                continue
            if _NOT_CONNECTED in reason and not self._first_batch.is_set() and starts < _MAX_STARTS:
                starts += 1
                logger.warning(Event("query_restarted", reason=reason.partition("\n")[0], start=starts))
                self._query = self._start_query()
                continue
            self._processor.fail(ProcessorStoppedError("The processor's query was stopped, or its session ended."))
            self._stopping.set()

    def _new_checkpoint(self) -> Path:
        """Return a new folder for the query's checkpoint, and delete those of earlier processors of the state table.

        The state table is the only truth: a checkpoint has no state of its own.
        """
        config = self._settings.processor
        path = config.state_table_path
        table = hashlib.sha256(absolute_address(path).encode()).hexdigest()[:12]
        folder = Path(config.checkpoint_path).absolute()
        for older in folder.glob(f"{table}-*"):
            shutil.rmtree(older, ignore_errors=True)
        return folder / f"{table}-{self._processor.leader_epoch}"


def _figure_columns() -> list[Column]:
    """Return the figures of a batch as columns to observe: each of its rows has all figures."""
    types = {name: "bigint" if isinstance(zero, int) else "double" for name, zero in LoopFigures().named().items()}
    return [F.max(F.get_json_object("figures", f"$.{name}").cast(kind)).alias(name) for name, kind in types.items()]


def _await_end(query: StreamingQuery) -> str | None:
    """Wait a while for the end of a query; return its error, empty if it has none, or None while the query runs."""
    try:
        return "" if query.awaitTermination(_WATCH_S) else None
    except classic.JVM_ERRORS as error:
        return str(error)


def _stop_query(query: StreamingQuery) -> None:
    try:
        query.stop()
    except classic.JVM_ERRORS as error:
        # It starts no further batch; its thread ends with the process.
        logger.warning(Event("query_stop_failed", reason=str(error).partition("\n")[0]))
