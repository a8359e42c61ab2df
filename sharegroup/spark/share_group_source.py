"""The source `sharegroup`: a streaming query as a member of a share group.

    spark.readStream.format("sharegroup").option("group.id", "orders").option("subscribe", "orders")…

Each micro-batch is what one fetch acquired. Its offset records the acquisition, its tasks read the records straight
from the log, and its commit acknowledges them: all as accepted, or, with `share.acknowledgement.mode` explicit, each as
`acknowledge` said in `foreachBatch`. docs/spark_source.md has the options and says what happens after a failure.
"""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sharegroup.errors import UnknownTopicError
from sharegroup.event_log import Event, log_events
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.spark.offset_ranges import OffsetRange, split_evenly
from sharegroup.spark.share_group_source_acknowledgements import acknowledge
from sharegroup.spark.share_group_source_config import SourceOptions, source_options
from sharegroup.spark.share_group_source_drain import Drain
from sharegroup.spark.share_group_source_member import ShareGroupSourceMember
from sharegroup.spark.share_group_source_offset import AcquiredOffset
from sharegroup.spark.share_group_source_records import (
    ACQUISITION_COLUMN,
    COLUMNS,
    TaskPartition,
    TaskRecords,
    read_task,
)
from sharegroup.spark.worker_end import EndWhenAsked

__all__ = ["FORMAT", "ShareGroupDataSource", "acknowledge", "register"]

logger = logging.getLogger(__name__)

FORMAT = "sharegroup"
"""Name for `spark.readStream.format`."""

_FIRST_WAIT_MS = 10_000
"""As _TRIGGER_WAIT_MS, for the first trigger of a new query, which Spark would make an empty batch of."""
_TRIGGER_WAIT_MS = 2_000
"""How long a trigger that finds nothing waits for the answer to its fetch; an idle query asks again and again."""
_DRAIN_LOOK_MS = 200
_TOPIC_LOOK_S = 0.5
_WAITING_LINE_EVERY_S = 30


def register(spark: SparkSession) -> None:
    """Make `sharegroup` known to a session."""
    spark.dataSource.register(ShareGroupDataSource)


class ShareGroupDataSource(DataSource):
    """Entry point for Spark: names the format, tells its columns and makes readers."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """Columns as DDL; `acquisition` only with explicit acknowledgement. Raises `ConfigurationError`."""
        is_explicit = source_options(self.options).is_explicit
        return f"{COLUMNS}, {ACQUISITION_COLUMN} string" if is_explicit else COLUMNS

    def streamReader(self, schema: StructType) -> ShareGroupStreamReader:
        """The reader of a streaming query; raises `ConfigurationError`."""
        return ShareGroupStreamReader(source_options(self.options))


class ShareGroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans, reads and acknowledges micro-batches; its offsets are those of AcquiredOffset."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # A reader also travels to the tasks; log and member are made on first use, and only on the driver.
        self._log: Log | None = None
        self._source: ShareGroupSourceMember | None = None
        self._drain: Drain | None = None
        self._has_asked = False
        self._next_line_s = 0.0

    def initialOffset(self) -> dict[str, Any]:
        """Before the first batch: where the group begins is its own affair."""
        return AcquiredOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """`max.poll.records`; a share group gives no more at once, whatever limit Spark asks for."""
        return ReadMaxRows(self._options.config.max_poll_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query when it has had all that is there now and can be acquired."""
        self._drain = Drain(self._opened_log(), self._options.config.subscribe)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acquire the next batch; `start` itself when there is nothing.

        Spark asks only when the batch of `start` is in its commit log, so that one is acknowledged first. The call of
        `commit` would come with the next batch, which a quiet topic may not have for hours.
        """
        last = AcquiredOffset.from_json(start)
        source = self._source or self._joined(last)
        if source is None:
            return start
        source.settle(last)
        offset = source.at_work or self._next(source, last)
        return start if offset is None else offset.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks that share a batch evenly; one that an earlier process began is taken up again."""
        before, offset = AcquiredOffset.from_json(start), AcquiredOffset.from_json(end)
        if offset.number == before.number:
            return []
        source = self._source or self._new_source(offset)
        if source.at_work is None or source.at_work.number != offset.number:
            source.resume(before, offset)
        ranges = [
            OffsetRange(r.topic, r.partition, r.first_offset, r.last_offset + 1, r.delivery_count)
            for r in offset.ranges
        ]
        shares = split_evenly(ranges, self._options.config.num_partitions)
        acquisition = offset.acknowledgement_folder if self._options.is_explicit else None
        level = offset.ranges[0].isolation_level
        return [TaskPartition(TaskRecords(self._options.log, tuple(share), acquisition, level)) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records."""
        assert isinstance(partition, TaskPartition)
        return read_task(partition.records)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a batch, if that was not done before."""
        if self._source is not None:
            self._source.settle(AcquiredOffset.from_json(end))

    def stop(self) -> None:
        """Leave the group and close the log; a second signal does not end that."""
        if _is_own_process():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._source is not None:
            self._source.close()
            self._source = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _next(self, source: ShareGroupSourceMember, last: AcquiredOffset) -> AcquiredOffset | None:
        is_first = not (last.number or self._has_asked)
        self._has_asked = True
        wait_ms = _FIRST_WAIT_MS if is_first else _TRIGGER_WAIT_MS
        if self._drain is not None:
            self._drain.begin(source.member)
            wait_ms = _DRAIN_LOOK_MS
        while True:
            acquisition = source.acquire(wait_ms)
            if acquisition is not None and self._drain is not None:
                wanted, late = self._drain.parted(acquisition.ranges)
                source.give_back(late, "appended after the query was started")
                acquisition = replace(acquisition, ranges=wanted)
            if acquisition is not None and acquisition.ranges:
                return source.begin(last, acquisition)
            if self._drain is None or self._drain.is_reached(source.member):
                return None

    def _joined(self, last: AcquiredOffset) -> ShareGroupSourceMember | None:
        """The query's member; None while no processor was ever started."""
        end = self._drain or EndWhenAsked(threading.Event())
        while True:
            try:
                return self._new_source(last)
            except UnknownTopicError as missing:
                if time.monotonic() >= self._next_line_s:
                    self._next_line_s = time.monotonic() + _WAITING_LINE_EVERY_S
                    group_id = self._options.config.group_id
                    logger.info(Event("waiting_for_processor", group=group_id, reason=missing.message))
            end.wait_unanswered(_TOPIC_LOOK_S)
            if self._drain is None:
                return None

    def _new_source(self, last: AcquiredOffset) -> ShareGroupSourceMember:
        longest_fetch_ms = (self._drain or EndWhenAsked).longest_fetch_ms
        self._source = ShareGroupSourceMember(self._opened_log(), self._options, last, longest_fetch_ms)
        return self._source

    def _opened_log(self) -> Log:
        if self._log is None:
            if _is_own_process():
                log_events()
                signal.signal(signal.SIGTERM, _exit)
                # The signal may come just before the call of `stop`, and prevent it.
                atexit.register(self.stop)
            self._log = open_log(self._options.log)
        return self._log


def _exit(number: int, frame: object) -> None:
    """End the process so that `stop` is called: Spark closes the connection, and sends SIGTERM, even twice."""
    sys.exit()


def _is_own_process() -> bool:
    """Whether this is the process that Spark starts on the driver for a stream of a Python source."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == runner.__name__
