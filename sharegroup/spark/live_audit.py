"""The live auditor: a streaming query that follows the state table and checks each row as it is committed.

1. The source (`commit_source.py`) reads the rows of new commits, and checks the commits and the Delta log.
2. `applyInPandasWithState`, by share-partition, checks its rows and keeps its state as text
   (`audit/live/live_partition.py`). The watermark is the time of the log: where a share-partition has no row after its
   minute, the watermark ends it, however late the auditor is.
3. The results of a batch are appended to two Delta tables, once (`audit/live/result_tables.py`).

It only reads the state table. Its checkpoint, in the output folder, has its position and the states.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from sharegroup.audit.live.live_commits import MOST_COMMITS
from sharegroup.audit.live.live_partition import LivePartition, Result, ResultKind
from sharegroup.audit.live.minute_statistics import MINUTE_MS
from sharegroup.audit.live.result_tables import ResultTables
from sharegroup.config.broker import BrokerConfig
from sharegroup.errors import ConfigurationError, SparkEndedError
from sharegroup.event_log import Event
from sharegroup.logs.log_clock import wall_ms
from sharegroup.metrics.live_audit_metrics import LiveAuditMetrics
from sharegroup.spark import commit_source
from sharegroup.spark.cluster import check_audit_tasks, is_cluster, parallelism
from sharegroup.spark.connect import is_connect
from sharegroup.spark.internal_session import internal_session
from sharegroup.spark.session import check_running

CHECKPOINT = "_checkpoint"
"""Folder of the query's checkpoint."""

_GRACE_MS = 5_000
"""A minute of a share-partition without a row after it ends so much later, in the time of the log."""
# The minutes of a table that does not change any more end in a batch without data.
_NO_DATA_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "true"}
_SERVE_POLL_S = 0.2

logger = logging.getLogger("sharegroup.spark.live_audit")


class LiveAuditor:
    """Follows a state table.

    Args:
        broker: defaults and bounds that the processor has.
        output: folder of the two tables and of the checkpoint.
        interval_s: time between two batches; 0 for none.
        most_commits: commits of one batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        state_table_path: str,
        broker: BrokerConfig,
        output: Path,
        interval_s: float = 4.0,
        metrics: LiveAuditMetrics | None = None,
        most_commits: int = MOST_COMMITS,
    ) -> None:
        self._spark = spark
        self._options = commit_source.source_options(state_table_path, broker, most_commits)
        self._broker = broker
        self._output = output
        self._interval_s = interval_s
        self._metrics = metrics

    def start(self) -> StreamingQuery:
        """Start the query; it continues where the checkpoint ends.

        Raises:
            ConfigurationError: there are metrics, which a session of Spark Connect cannot feed.
            EnvironmentNotReadyError: executors lack this package, or do not see the output folder.
        """
        if self._metrics is not None and is_connect(self._spark):
            raise ConfigurationError(
                "The live auditor has no metrics in a session of Spark Connect: results are written beside the server.",
                "Start it without metrics, and watch its two tables; or start it in a classic session.",
            )
        self._output.mkdir(parents=True, exist_ok=True)
        check_audit_tasks(self._spark, str(self._output), "output folder")
        settings = dict(_NO_DATA_BATCHES)
        if is_cluster(self._spark):
            # A checkpoint keeps the number of its first start.
            settings["spark.sql.shuffle.partitions"] = str(parallelism(self._spark))
        session = internal_session(self._spark, settings)
        commit_source.register(session)
        checkpoint = self._output / CHECKPOINT
        stream = session.readStream.format(commit_source.FORMAT).options(**self._options).load()
        timed = stream.withWatermark(commit_source.TIME_COLUMN, f"{_GRACE_MS} milliseconds")
        results = timed.groupBy("share_partition").applyInPandasWithState(
            follow(self._broker.model_dump_json()),
            "kind string, document string",
            "state string",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
        return (
            results.writeStream.queryName("sharegroup-live-audit")
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=f"{round(self._interval_s * 1_000)} milliseconds")
            .foreachBatch(BatchWriter(self._output, _name_of(checkpoint), self._metrics))
            .start()
        )

    def serve(self, stop: threading.Event, *, once: bool = False) -> None:
        """Follow the table until `stop` is set; with `once` until all commits have been checked.

        Raises:
            SparkEndedError: the query or the session ended.
        """
        query = self.start()
        try:
            if once:
                query.processAllAvailable()
                return
            while not stop.wait(_SERVE_POLL_S):
                check_running(self._spark)
                if not query.isActive:
                    reason = query.exception()
                    raise SparkEndedError(f"The query of the live auditor ended: {reason}.", "Start it again.")
        finally:
            query.stop()


class BatchWriter:
    """Appends the results of batches to the tables, and counts them; a batch that is repeated is not appended twice.

    Spark Connect pickles it for a process beside its server.

    Args:
        output: folder of the tables.
        name: name of the checkpoint.
    """

    def __init__(self, output: Path, name: str, metrics: LiveAuditMetrics | None) -> None:
        self._tables = ResultTables(output, name)
        self._metrics = metrics

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write the results of a batch."""
        documents: dict[str, list[dict[str, Any]]] = {kind.value: [] for kind in ResultKind}
        for row in batch.collect():
            documents[row.kind].append(json.loads(row.document))
        now_ms = wall_ms()
        self._tables.add_findings(documents[ResultKind.FINDING], now_ms, batch_id)
        minutes = self._tables.add_minutes(documents[ResultKind.STATISTICS], batch_id)
        for finding in documents[ResultKind.FINDING]:
            logger.warning(Event("live_audit_finding", **finding))
        if self._metrics is None:
            return
        for finding in documents[ResultKind.FINDING]:
            self._metrics.add_finding(finding)
        for minute in minutes:
            self._metrics.add_minute(minute)
        for progress in documents[ResultKind.PROGRESS]:
            self._metrics.set_progress(progress, now_ms)


def follow(broker: str) -> Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """Return the function that follows one share-partition from batch to batch.

    Args:
        broker: defaults and bounds that the processor has, as JSON.
    """

    def follow_one(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        partition = LivePartition.from_text(state.get[0]) if state.exists else LivePartition()
        results: list[Result] = []
        if not state.hasTimedOut:
            for frame in frames:
                for document in frame["document"]:
                    results += partition.advance(document, broker)
        time_ms = state.getCurrentWatermarkMs()
        results += partition.close_minute(time_ms)
        if not partition.is_over:
            state.update((partition.to_text(),))
            if not partition.statistics.is_idle:
                state.setTimeoutTimestamp(max(partition.statistics.minute_ms + MINUTE_MS, time_ms + 1))
        elif state.exists:
            state.remove()
        if results:
            yield pd.DataFrame(results, columns=list(Result._fields))

    return follow_one


def _name_of(checkpoint: Path) -> str:
    """Return the name under which the batches of a checkpoint are written: the numbers of each begin from the start."""
    file = checkpoint / "name"
    if not file.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        file.write_text(f"sharegroup-live-audit-{uuid4().hex}", encoding="utf-8")
    return file.read_text(encoding="utf-8")
