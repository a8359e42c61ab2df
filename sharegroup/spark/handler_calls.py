"""Calls of a worker's handler: from an acquisition to the acknowledgements of its records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from sharegroup.client.held_records import HeldRange, unread
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import ShareGroupError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log
from sharegroup.metrics.exposition import CALLS, DELAYED, FAILURES, WorkerMetrics
from sharegroup.spark.acknowledgement_frame import (
    acknowledgements_of,
    check_not_renewed,
    checked_result,
    checked_results,
)
from sharegroup.spark.acquired_records import RecordCount, acquired_records, record_offsets
from sharegroup.spark.call_history import CallHistory
from sharegroup.spark.failure_search import Call, FailureSearch, Outcome
from sharegroup.spark.held_ranges import without_gaps, without_unreadable
from sharegroup.spark.sink.sink_write import SinkWrite
from sharegroup.spark.written_calls import HandledRecords, WrittenCalls

logger = logging.getLogger("sharegroup.spark.worker")

Handler = Callable[[DataFrame], DataFrame | None]
"""Processes acquired records; returns acknowledgements of those that are not simply accepted, or nothing."""

SinkHandler = Callable[[DataFrame], DataFrame | tuple[DataFrame, DataFrame | None]]
"""Processes acquired records; returns rows for the sink, or a pair: rows, and acknowledgements."""


class HandlerCalls:
    """Calls a handler with the records of acquisitions; several threads may use it at once.

    Args:
        log_address: path or address of the embedded log, or the Kafka cluster.
        bisects: call a failed handler again with halves of its records (`worker.bisect.on.error`).
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        log_address: str | KafkaConfig,
        handler: Handler | SinkHandler,
        bisects: bool,
        metrics: WorkerMetrics,
        event: Callable[..., Event],
    ) -> None:
        self._spark = spark
        self._log = log
        self._log_address = log_address
        self._handler = handler
        self._bisects = bisects
        self._metrics = metrics
        self._event = event
        self._history = CallHistory()
        self._gappy_topics: set[str] = set()
        """Topics with offsets without a record: with a sink, these are looked up before the commit."""

    @property
    def is_failing(self) -> bool:
        """True if the handler has accepted nothing since an acquisition was returned with a delay."""
        return self._history.is_failing

    def process(
        self,
        acquired: Sequence[HeldRange],
        is_cancelled: Callable[[], bool],
        on_failure: Callable[[], None],
        write: SinkWrite | None = None,
    ) -> Outcome:
        """Call the handler with the records of an acquisition, and return the outcome.

        Args:
            is_cancelled: True if no further call should be made.
            on_failure: called when the handler fails for the first time.
            write: the acquisition's write, into which the handler's rows go.
        """
        # 1. Leave out records that are not in the log.
        try:
            ranges, unreadable = without_unreadable(self._log, acquired)
        except ShareGroupError as error:
            # The log is unavailable or denies access. No handler has received these records.
            logger.error(self._event("records_not_readable", ranges=len(acquired)), exc_info=error)
            delay_ms = self._history.return_delay_ms(self._history.failed())
            delayed_count = 0 if delay_ms is None else sum(held.record_count for held in acquired)
            returned = unread(acquired, "the log could not be read", delay_ms)
            return self._counted(Outcome(returned, error, delayed_count=delayed_count))
        # 2. Call the handler, after a failure with parts of the records.
        if write is None:
            call: Call = self._call
        else:
            written = WrittenCalls(self._rows, write, ranges, unreadable, self._event)
            call, is_cancelled = written.call, written.until(is_cancelled)
        search = FailureSearch(call, self._without_gaps, self._history, self._bisects, is_cancelled, on_failure)
        outcome = search.run(ranges)
        outcome.acknowledgements += unreadable
        if write is not None:
            written.finish(outcome, lambda: self._history.return_delay_ms(self._history.failed()))
        # 3. Log. A handler that accepts nothing is reported once, not for each acquisition.
        if outcome.error is not None and not outcome.delayed_count:
            event = self._event("handler_failed", ranges=len(ranges), calls=outcome.call_count)
            logger.error(event, exc_info=outcome.error)
        return self._counted(outcome)

    def _counted(self, outcome: Outcome) -> Outcome:
        self._metrics.count(CALLS, outcome.call_count)
        self._metrics.count(FAILURES, int(outcome.error is not None))
        self._metrics.count(DELAYED, outcome.delayed_count)
        return outcome

    def _call(self, ranges: list[HeldRange]) -> list[Acknowledgement]:
        """Call the handler once; return its acknowledgements, and gaps for offsets without a record."""
        count = RecordCount(self._spark) if self._has_gaps else None
        records = acquired_records(self._spark, self._log_address, ranges, count)
        frame = checked_result(self._handler(records))
        gaps: list[Acknowledgement] = []
        if count is not None and count.value() != sum(held.record_count for held in ranges):
            ranges, gaps = without_gaps(ranges, record_offsets(records))
        return gaps + (acknowledgements_of(frame, ranges) if ranges else [])

    def _rows(self, ranges: list[HeldRange]) -> HandledRecords:
        """Call the handler once, for rows that are not computed yet; gaps of topics that have some are looked up."""
        count = RecordCount(self._spark) if self._has_gaps else None
        records = acquired_records(self._spark, self._log_address, ranges, count)
        rows, frame = checked_results(self._handler(records))
        gaps: list[Acknowledgement] = []
        if self._gappy_topics.intersection(held.topic for held in ranges):
            uncounted = acquired_records(self._spark, self._log_address, ranges)
            ranges, gaps = without_gaps(ranges, record_offsets(uncounted))
        acknowledgements = acknowledgements_of(frame, ranges) if ranges else []
        check_not_renewed(acknowledgements)
        expected = sum(held.record_count for held in ranges)

        def note_gaps() -> None:
            # Too late for this commit, which accepts the offsets without a record; there is nothing to lose.
            if count is not None and not gaps and count.value() != expected:
                self._gappy_topics.update(held.topic for held in ranges)

        return HandledRecords(rows, gaps + acknowledgements, note_gaps)

    def _without_gaps(self, ranges: list[HeldRange]) -> tuple[list[HeldRange], list[Acknowledgement]]:
        """Split ranges of a failed handler into those with records, and gaps."""
        if not self._has_gaps:
            return ranges, []
        try:
            return without_gaps(ranges, record_offsets(acquired_records(self._spark, self._log_address, ranges)))
        except Exception as error:
            logger.warning(self._event("gap_search_failed", ranges=len(ranges), reason=error))
            return ranges, []

    @property
    def _has_gaps(self) -> bool:
        """True if offsets within the bounds of the log may have no record; the embedded log only deletes prefixes."""
        return isinstance(self._log_address, KafkaConfig)
