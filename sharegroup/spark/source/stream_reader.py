"""The data source as Spark calls it: plans micro-batches, reads them in tasks, and has them acknowledged."""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.event_log import Event, log_events
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.spark import cluster
from sharegroup.spark.features import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from sharegroup.spark.held_ranges import split_evenly
from sharegroup.spark.request_ranges import report_reader_error
from sharegroup.spark.source.load_lock import lock_load, new_load_id
from sharegroup.spark.source.member import SourceMember
from sharegroup.spark.source.offset import AcquiredOffset
from sharegroup.spark.source.query_options import SourceOptions, source_options
from sharegroup.spark.source.task_records import (
    ACQUISITION_COLUMN,
    COLUMNS,
    BatchColumn,
    TaskPartition,
    read_task,
)
from sharegroup.spark.source.written_batch import WRITE_COLUMN, NamedWrite
from sharegroup.spark.stop_condition import Drain, StopOnRequest

logger = logging.getLogger("sharegroup.spark.source")

FORMAT = "sharegroup"
"""Name for `spark.readStream.format`."""

_SOURCE_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
"""Module that Spark runs for a stream of a Python source; pyspark-client lacks what it imports."""

_FIRST_WAIT_MS = 10_000
"""As _TRIGGER_WAIT_MS, for the first trigger of a new query: Spark would make an empty batch of it."""
_TRIGGER_WAIT_MS = 2_000
"""Longest wait of a trigger for the response to its fetch; an idle query asks again and again."""
_DRAIN_WAIT_MS = 200
_PROCESSOR_POLL_S = 0.5
_WAITING_EVENT_INTERVAL_S = 30


def register(spark: SparkSession) -> None:
    """Make `sharegroup` known to a session; one on a cluster refuses the embedded log."""
    spark.dataSource.register(ShareGroupOnCluster if cluster.is_cluster(spark) else ShareGroupDataSource)


class ShareGroupDataSource(DataSource):
    """Entry point for Spark: the format's name, its columns and its readers. Spark makes one for each `load()`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._load_id = new_load_id()

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns as DDL; `acquisition` only with explicit acknowledgement, `write` only with a sink.

        Raises:
            ConfigurationError: as `source_options`.
        """
        options = source_options(self.options)
        if options.config.sink:
            return f"{COLUMNS}, {WRITE_COLUMN} string"
        return f"{COLUMNS}, {ACQUISITION_COLUMN} string" if options.is_explicit else COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query; its process ends with Spark, without a traceback.

        Raises:
            ConfigurationError: as `source_options`, and where another process reads the same load.
        """
        sys.excepthook = report_reader_error
        options = source_options(self.options)
        if _is_source_process():
            log_events()
            signal.signal(signal.SIGTERM, _exit)
            lock_load(self._load_id)
        return stream_reader(ShareGroupStreamReader(options))


class ShareGroupOnCluster(ShareGroupDataSource):
    """The format in a session on a cluster, whose tasks cannot read an embedded log."""

    def schema(self) -> str:
        """Return the columns as its base does.

        Raises:
            ConfigurationError: as `source_options`, and for an embedded log.
        """
        log = source_options(self.options).log
        if isinstance(log, str):
            raise cluster.embedded_log_refused(log)
        return super().schema()


class ShareGroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans, reads and acknowledges micro-batches; its offsets are those of AcquiredOffset."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # Spark also pickles a reader for the tasks; log and member are created on first use, and only on the driver.
        self._log: Log | None = None
        self._member: SourceMember | None = None
        self._drain: Drain | None = None
        self._has_fetched = False
        self._next_waiting_event_s = 0.0

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch; the group's configuration decides where the group begins."""
        return AcquiredOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `max.poll.records`; a share group gives no more at once, whatever limit Spark asks for."""
        return ReadMaxRows(self._options.config.max_poll_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query when it has acquired all that is in the topics now and can be acquired."""
        self._drain = Drain(self._open_log(), self._options.config.subscribe)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acquire the next batch and return its offset; return `start` if there is none.

        Spark asks only when the batch of `start` is in its commit log, so that batch is acknowledged first. The call of
        `commit` would come with the next batch, which a quiet topic may not have for hours.

        Raises:
            ConfigurationError: the query's trigger is `once`, with which Spark commits its batch without asking again.
        """
        if isinstance(limit, ReadAllAvailable):
            raise ConfigurationError(
                "trigger(once=True) would end the query before the records of its batch are accepted, so that they "
                "are delivered again and again until the group gives them up.",
                "Use availableNow=True: it processes what is there in as many batches as it takes, and ends.",
            )
        last = AcquiredOffset.from_json(start)
        # 1. Join the group.
        member = self._member or self._join(last)
        if member is None:
            return start
        # 2. Acknowledge the committed batch.
        member.acknowledge_batch(last)
        # 3. Acquire the next one, unless it is at work already: a batch that an earlier process began.
        offset = member.active_batch or self._acquire(member, last)
        return start if offset is None else offset.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return tasks with even shares of a batch; a batch that an earlier process began is resumed."""
        last, batch = AcquiredOffset.from_json(start), AcquiredOffset.from_json(end)
        if batch.number == last.number:
            return []
        member = self._member or self._create_member(batch)
        if member.active_batch is None or member.active_batch.number != batch.number:
            member.resume_batch(last, batch)
        column = self._batch_column(batch)
        shares = split_evenly(batch.ranges, self._options.config.num_partitions)
        return [TaskPartition(self._options.log, share, column) for share in shares]

    def _batch_column(self, batch: AcquiredOffset) -> BatchColumn | None:
        """Return the column that names the batch's acquisition for the application."""
        if self._options.config.sink:
            # A batch without a write was begun before the query had a sink.
            return WRITE_COLUMN, self._write_name(batch)
        return (ACQUISITION_COLUMN, batch.acknowledgement_folder) if self._options.is_explicit else None

    def _write_name(self, batch: AcquiredOffset) -> str:
        if batch.write is None:
            return ""
        config = self._options.config.sink_values
        return NamedWrite(batch.write, batch.acknowledgement_folder, batch.stored_given_up, config).text()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records."""
        assert isinstance(partition, TaskPartition)
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a batch unless `latestOffset` has done so."""
        if self._member is not None:
            self._member.acknowledge_batch(AcquiredOffset.from_json(end))

    def stop(self) -> None:
        """Leave the group and close the log; a second signal does not interrupt that."""
        if _is_source_process():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._member is not None:
            self._member.close()
            self._member = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _acquire(self, member: SourceMember, last: AcquiredOffset) -> AcquiredOffset | None:
        """Begin the next batch; return None if nothing is acquired in time, or if the drain is complete."""
        is_first = not (last.number or self._has_fetched)
        self._has_fetched = True
        if self._drain is not None:
            return self._acquire_drained(member, last, self._drain)
        acquisition = member.acquire(_FIRST_WAIT_MS if is_first else _TRIGGER_WAIT_MS)
        return member.begin_batch(last, acquisition) if acquisition is not None and acquisition.ranges else None

    def _acquire_drained(self, member: SourceMember, last: AcquiredOffset, drain: Drain) -> AcquiredOffset | None:
        """Begin the next batch with records that the drain covers; return None when the drain is complete."""
        drain.begin(member.group_member)
        while True:
            if (acquisition := member.acquire(_DRAIN_WAIT_MS)) is not None:
                covered, appended_later = drain.split(acquisition.ranges)
                if covered and acquisition.write is not None:
                    # What was acquired together is written together.
                    covered, appended_later = acquisition.ranges, ()
                member.return_unread(appended_later, "appended after the query was started")
                if covered:
                    return member.begin_batch(last, replace(acquisition, ranges=covered))
            if drain.is_reached(member.group_member):
                return None

    def _join(self, last: AcquiredOffset) -> SourceMember | None:
        """Create the query's member; return None while no processor has created the topics between them."""
        while True:
            try:
                return self._create_member(last)
            except UnknownTopicError as missing_topic:
                self._log_waiting(missing_topic)
            if self._drain is None:
                # The next trigger tries again.
                threading.Event().wait(_PROCESSOR_POLL_S)
                return None
            self._drain.wait(_PROCESSOR_POLL_S)

    def _log_waiting(self, missing_topic: UnknownTopicError) -> None:
        """Log that no processor was started yet, but not at each attempt."""
        if time.monotonic() >= self._next_waiting_event_s:
            self._next_waiting_event_s = time.monotonic() + _WAITING_EVENT_INTERVAL_S
            group_id = self._options.config.group_id
            logger.info(Event("waiting_for_processor", group=group_id, reason=missing_topic.message))

    def _create_member(self, last: AcquiredOffset) -> SourceMember:
        max_fetch_wait_ms = (self._drain or StopOnRequest).max_fetch_wait_ms
        self._member = SourceMember(
            self._open_log(), self._options, last, max_fetch_wait_ms, ends_when_refused=self._drain is not None
        )
        return self._member

    def _open_log(self) -> Log:
        if self._log is None:
            if _is_source_process():
                # The signal may arrive just before the call of `stop`, and prevent it.
                atexit.register(self.stop)
            self._log = open_log(self._options.log)
        return self._log


def _exit(number: int, frame: object) -> None:
    """End the process so that `stop` is called: Spark closes the connection, and sends SIGTERM, even twice."""
    sys.exit()


def _is_source_process() -> bool:
    """Return True in the process that Spark starts on the driver for a stream of a Python source."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _SOURCE_PROCESS
