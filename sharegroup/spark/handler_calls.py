"""Calls of a worker's handler: from an acquisition to the acknowledgements of its records.

A failed handler is called again with halves of its records, down to single ones, so only the records that it cannot
process are released.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from sharegroup.client.held_records import HeldRange, split_after, unread
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import ShareGroupError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log
from sharegroup.metrics.exposition import CALLS, FAILURES, WorkerMetrics
from sharegroup.spark.acknowledgement_frame import acknowledgements_of
from sharegroup.spark.acquired_records import RecordCount, acquired_records, record_offsets
from sharegroup.spark.held_ranges import without_gaps, without_unreadable

MAX_CALLS = 64
"""Most calls for one acquisition; the records that are undecided then are released."""

MAX_FIRST_FAILURES = 16
"""Single records that may fail before any call succeeds; then the handler itself counts as broken."""

_BROKEN_TYPES: tuple[type[Exception], ...] = (AnalysisException, ImportError, PermissionError, ConnectionError)

_BROKEN_TEXT = re.compile(
    r"\b(ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError|UnsupportedClassVersionError"
    r"|(ModuleNotFound|Import|Permission)Error:"
    r"|AccessDeniedException|AccessControlException|(Topic|Cluster|TransactionalId)AuthorizationException"
    r"|SaslAuthenticationException|SslAuthenticationException"
    r"|ExecutorLostFailure|ExecutorDeadException|FetchFailedException|SparkContext (was|has been) shut ?down"
    r"|java\.net\.(ConnectException|UnknownHostException|NoRouteToHostException)|No space left on device)"
)
"""Names in the text of a failed Spark job: the exceptions of its tasks are nowhere else."""

Call = Callable[[list[HeldRange]], list[Acknowledgement]]
"""Processes records and returns their acknowledgements; raises the handler's exception."""


@dataclass(slots=True)
class Outcome:
    """The outcome of an acquisition.

    Attributes:
        acknowledgements: acknowledgements of all its records.
        error: the first exception of the handler, if any.
        is_broken: True if the handler fails for a cause that no record has.
    """

    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    error: Exception | None = None
    is_broken: bool = False
    call_count: int = 0


def is_independent_of_records(error: BaseException) -> bool:
    """Return True if the handler's exception has a known cause that is not in the records.

    A class or module is missing, a sink denies access or cannot be reached, an executor is lost, the plan is wrong.
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return any(isinstance(cause, _BROKEN_TYPES) or _BROKEN_TEXT.search(str(cause)) for cause in chain)


class Bisection:
    """Processes an acquisition, and finds the records that the handler cannot process.

    Args:
        call: processes some of the records.
        without_gaps: splits ranges into those with records, and acknowledgements of gaps; it is called once, after the
            first failure.
        bisects: try parts after a failure (`worker.bisect.on.error`); otherwise release all records.
        is_cancelled: ends the search; the records that are undecided then are released.
    """

    def __init__(
        self,
        call: Call,
        without_gaps: Callable[[list[HeldRange]], tuple[list[HeldRange], list[Acknowledgement]]],
        bisects: bool = True,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._call = call
        self._without_gaps = without_gaps
        self._bisects = bisects
        self._is_cancelled = is_cancelled
        self._outcome = Outcome()
        self._undecided: list[list[HeldRange]] = []
        self._has_succeeded = False
        self._failed_record_count = 0

    def run(self, ranges: Sequence[HeldRange]) -> Outcome:
        """Process an acquisition, and return its outcome; exceptions of the handler are part of it."""
        outcome = self._outcome
        self._undecided = [list(ranges)] if ranges else []
        while self._undecided and not self._is_complete():
            part = self._undecided.pop()
            outcome.call_count += 1
            try:
                outcome.acknowledgements += self._call(part)
                self._has_succeeded = True
            except Exception as error:
                self._handle_failure(part, error)
        rest = [held for part in self._undecided for held in part]
        if outcome.is_broken:
            outcome.acknowledgements += unread(rest, "the handler fails for a cause that no record has")
        else:
            outcome.acknowledgements += _released(rest)
        return outcome

    def _is_complete(self) -> bool:
        return self._outcome.call_count >= MAX_CALLS or self._outcome.is_broken or self._is_cancelled()

    def _handle_failure(self, part: list[HeldRange], error: Exception) -> None:
        """Decide on the records of a failed call, or put its halves on the stack."""
        outcome = self._outcome
        is_first = outcome.error is None
        outcome.error = outcome.error or error
        if is_independent_of_records(error):
            outcome.is_broken = True
            self._undecided.append(part)
            return
        if is_first and not self._is_cancelled():
            part, gaps = self._without_gaps(part)
            outcome.acknowledgements += gaps
        if self._bisects and _record_count(part) > 1:
            first, second = split_after(part, _record_count(part) // 2)
            self._undecided += [second, first]
            return
        outcome.acknowledgements += _released(part)
        self._failed_record_count += 1
        outcome.is_broken = not self._has_succeeded and self._failed_record_count == MAX_FIRST_FAILURES


def _released(ranges: Sequence[HeldRange]) -> list[Acknowledgement]:
    return [held.acknowledgement(AcknowledgeType.RELEASE) for held in ranges]


def _record_count(ranges: Sequence[HeldRange]) -> int:
    return sum(held.record_count for held in ranges)


logger = logging.getLogger("sharegroup.spark.worker")

Handler = Callable[[DataFrame], DataFrame | None]
"""Processes acquired records; returns acknowledgements of those that are not simply accepted, or nothing."""


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
        handler: Handler,
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

    def process(self, acquired: Sequence[HeldRange], is_cancelled: Callable[[], bool]) -> Outcome:
        """Call the handler with the records of an acquisition, and return the outcome.

        Args:
            is_cancelled: True if no further call should be made.
        """
        # 1. Leave out records that are not in the log.
        try:
            ranges, unreadable = without_unreadable(self._log, acquired)
        except ShareGroupError as error:
            # The log is unavailable or denies access. No handler has received these records.
            logger.error(self._event("records_not_readable", ranges=len(acquired)), exc_info=error)
            return Outcome(unread(acquired, "the log could not be read"), error, is_broken=True)
        # 2. Call the handler, after a failure with parts of the records.
        outcome = Bisection(self._call, self._without_gaps, self._bisects, is_cancelled).run(ranges)
        outcome.acknowledgements += unreadable
        # 3. Count and log.
        self._metrics.count(CALLS, outcome.call_count)
        if outcome.error is not None:
            self._metrics.count(FAILURES)
            event = self._event("handler_failed", ranges=len(ranges), calls=outcome.call_count)
            logger.error(event, exc_info=outcome.error)
        return outcome

    def _call(self, ranges: list[HeldRange]) -> list[Acknowledgement]:
        """Call the handler once; return its acknowledgements, and gaps for offsets without a record."""
        if not self._has_gaps:
            return acknowledgements_of(self._handler(acquired_records(self._spark, self._log_address, ranges)), ranges)
        count = RecordCount()
        records = acquired_records(self._spark, self._log_address, ranges, count)
        frame = self._handler(records)
        gaps: list[Acknowledgement] = []
        if count.value() != sum(held.record_count for held in ranges):
            ranges, gaps = without_gaps(ranges, record_offsets(records))
        return gaps + (acknowledgements_of(frame, ranges) if ranges else [])

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
