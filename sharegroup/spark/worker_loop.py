"""WorkerLoop: one membership of a Spark worker, and the threads that call its handler."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition, unread
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.sink_table import WRITE_EXPIRY_MS
from sharegroup.client.write_resolver import WriteResolver
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.members import WorkerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import ApiError, HandlerFailedError, ShareGroupError, SinkError
from sharegroup.event_log import Event
from sharegroup.logs.log_clock import monotonic_ms
from sharegroup.logs.port import Log
from sharegroup.metrics.exposition import CANCELLED, WorkerMetrics
from sharegroup.spark.acquired_records import acquired_records
from sharegroup.spark.failure_search import Outcome
from sharegroup.spark.handler_calls import Handler, HandlerCalls, SinkHandler
from sharegroup.spark.handler_threads import HandlerThreads
from sharegroup.spark.lock_renewals import LockedRecords, LockRenewals
from sharegroup.spark.range_size import RangeSize
from sharegroup.spark.session import check_running, is_running
from sharegroup.spark.sink.sink_write import SinkWrite
from sharegroup.spark.sink.spark_sink import SparkSink
from sharegroup.spark.stop_condition import StopOnRequest, StopWhenDrained

logger = logging.getLogger("sharegroup.spark.worker")

_POLL_TIMEOUT_MS = 200
_SHORT_RANGE_S = 2
"""While ranges grow, the next one waits for so long for the size that the one in work shows."""
_HANDLER_TIMEOUT_S = 10
"""How long handlers may finish after a stop; then their Spark jobs are cancelled."""
_CANCEL_TIMEOUT_S = 2
_CLOSE_TIMEOUT_MS = 10_000


class WorkerLoop:
    """One membership and the threads that call the handler; `run` works in the caller's thread."""

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        log_address: str | KafkaConfig,
        config: WorkerConfig,
        size: RangeSize,
        handler: Handler | SinkHandler,
        member: GroupMember,
        stop_condition: StopOnRequest,
        metrics: WorkerMetrics,
        sink: SparkSink | None,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._log_address = log_address
        self._config = config
        self._log = log
        self._member = member
        self._size = size
        self._stop_condition = stop_condition
        self._metrics = metrics
        self._event = partial(Event, group=config.group_id, client=config.client_id or None, member=member.member_id)
        self._calls = HandlerCalls(
            spark, log, log_address, handler, config.worker_bisect_on_error, metrics, self._event
        )
        self._renewals = LockRenewals(config.worker_renew_max_ms, member.acknowledge)
        self._handler_threads = HandlerThreads(spark)
        self._running: set[Future[Outcome]] = set()
        self._job_tag = f"share-worker-{member.member_id}"
        self._acquisition_numbers = itertools.count(1)
        self._begun_s = 0.0
        """When the last range began, in s of the monotonic clock."""
        self._is_reported = False
        """True if the log has that the handler accepts nothing."""

    def run(self) -> None:
        """Process records until the stop condition is reached, and leave the group."""
        threads = ThreadPoolExecutor(self._config.worker_ranges_in_flight, self._job_tag)
        resolver = None if self._sink is None else WriteResolver(self._member, self._sink)
        try:
            # The first read of a session starts Python workers and compiles plans; no lock should wait for that.
            acquired_records(self._spark, self._log_address, []).count()
            self._member.subscribe(self._config.topics)
            logger.info(self._event("started", topics=",".join(self._config.topics)))
            while not self._stop_condition.is_reached(self._member, self._is_busy):
                check_running(self._spark)
                self._dispatch(threads)
                self._collect_outcomes()
                self._renew_locks()
        finally:
            self._finish_handlers()
            threads.shutdown(wait=False, cancel_futures=True)
            if resolver is not None:
                resolver.close()
            self._log_refusals(self._member.close(_CLOSE_TIMEOUT_MS))
            logger.info(self._event("left"))

    # The steps of the loop, in the caller's thread.

    @property
    def _is_busy(self) -> bool:
        return bool(self._running) or self._renewals.has_waiting

    def _dispatch(self, threads: ThreadPoolExecutor) -> None:
        """Hand the next records to a thread; wait for a while if no thread is free, or if there are no records."""
        is_short = time.monotonic() < self._begun_s + _SHORT_RANGE_S
        is_alone = self._calls.is_failing or (is_short and not self._size.is_settled)
        if len(self._running) >= (1 if is_alone else self._config.worker_ranges_in_flight):
            wait(self._running, _POLL_TIMEOUT_MS / 1000, "FIRST_COMPLETED")
        elif renewed := self._renewals.resume(monotonic_ms()):
            self._running.add(threads.submit(self._process, renewed))
        elif acquisition := self._next_acquisition():
            # Refusals so far concern earlier deliveries of its records.
            self._settle_results()
            job_tag = f"{self._job_tag}-{next(self._acquisition_numbers)}"
            active = self._renewals.begin(acquisition, job_tag, monotonic_ms(), self._write_of(acquisition))
            self._begun_s = time.monotonic()
            self._running.add(threads.submit(self._process, active))

    def _write_of(self, acquisition: Acquisition) -> SinkWrite | None:
        """Return the write of an acquisition.

        Raises:
            SinkError: the table does not remember commits for as long as the group looks writes up.
        """
        if self._sink is None or acquisition.write is None:
            return None
        try:
            self._sink.check(self._member.write_expiry_ms or WRITE_EXPIRY_MS)
        except SinkError as error:
            self._member.acknowledge(unread(acquisition.ranges, error.message))
            raise
        return SinkWrite(self._sink, acquisition.write)

    def _next_acquisition(self) -> Acquisition | None:
        try:
            return self._member.next_acquisition(_POLL_TIMEOUT_MS)
        except ApiError as error:
            if self._member.is_ended or isinstance(self._stop_condition, StopWhenDrained):
                raise
            # The member stays in the group, and resumes when an administrator has removed the cause.
            logger.warning(self._event("member_refused", error=error.name, reason=error))
            return None

    def _collect_outcomes(self) -> None:
        done = {future for future in self._running if future.done()}
        self._running -= done
        for future in done:
            outcome = future.result()
            if outcome.delayed_count:
                self._report_failing(outcome)
        if self._is_reported and not self._calls.is_failing:
            self._is_reported = False
            logger.info(self._event("handler_recovered"))

    def _report_failing(self, outcome: Outcome) -> None:
        """Log once that the handler accepts nothing; end a worker that should end."""
        if isinstance(self._stop_condition, StopWhenDrained):
            raise HandlerFailedError(
                f"The handler fails, and accepts no record: {_first_line(outcome.error)}.",
                "Repair the handler or the system it depends on; its records were returned without a delivery.",
            ) from outcome.error
        if not self._is_reported:
            self._is_reported = True
            reason = _first_line(outcome.error)
            logger.error(self._event("handler_broken", reason=reason, calls=outcome.call_count), exc_info=outcome.error)

    def _settle_results(self) -> None:
        """End the renewals of locks whose renewal was refused."""
        results = self._member.take_results()
        self._renewals.settle(results)
        self._log_refusals(results)

    def _renew_locks(self) -> None:
        """Renew the locks of acquisitions, cancel handlers that have taken too long, and return their records."""
        self._settle_results()
        now_ms = monotonic_ms()
        self._renewals.renew(now_ms)
        for overdue in self._renewals.take_overdue(now_ms):
            if not overdue.is_waiting:
                self._handler_threads.cancel(overdue.job_tag)
                self._metrics.count(CANCELLED)
            self._member.acknowledge(overdue.given_up(overdue.overdue_type))
            name = "renewed_records_released" if overdue.is_waiting else "handler_cancelled"
            fields = {"ranges": len(overdue.ranges), "ms": self._config.worker_renew_max_ms}
            logger.warning(self._event(name, **fields))

    def _finish_handlers(self) -> None:
        """Let handlers finish under renewed locks, cancel the jobs of slow ones, and abandon those that go on."""
        give_up_at_s = time.monotonic() + _HANDLER_TIMEOUT_S
        while wait(self._running, _POLL_TIMEOUT_MS / 1000).not_done and time.monotonic() < give_up_at_s:
            # A membership that has ended has no locks.
            with suppress(ShareGroupError):
                self._settle_results()
                self._renewals.renew(monotonic_ms())
        if any(not future.done() for future in self._running) and is_running(self._spark):
            self._handler_threads.cancel(self._job_tag)
            abandoned = wait(self._running, _CANCEL_TIMEOUT_S).not_done
            logger.warning(self._event("handler_too_slow", seconds=_HANDLER_TIMEOUT_S, abandoned=len(abandoned)))
            with suppress(ShareGroupError):
                # Nothing of their writes may begin from now on.
                for locked in self._renewals.take_written():
                    self._member.acknowledge(locked.given_up(AcknowledgeType.RELEASE))
        for future in self._running:
            if future.done() and (failure := future.exception()) is not None:
                logger.warning(self._event("range_lost", reason=failure))

    # The work of a handler's thread.

    def _process(self, active: LockedRecords) -> Outcome:
        """Call the handler with records whose locks are renewed, and acknowledge them."""
        ranges = active.ranges
        self._size.weigh(self._log, ranges)
        began_ms = monotonic_ms()
        # 1. Tag the handler's Spark jobs, so that they can be cancelled.
        self._handler_threads.begin(self._job_tag, active.job_tag)
        # 2. Call it.
        outcome = self._calls.process(
            ranges,
            is_cancelled=lambda: active.is_given_up or self._stop_condition.is_requested,
            on_failure=active.note_failure,
            write=active.write,
        )
        # 3. Acknowledge, and fetch with the same request.
        ended_ms = monotonic_ms()
        if active.is_given_up or _is_worked_off(outcome):
            self._size.worked_off(sum(held.record_count for held in ranges), began_ms, ended_ms)
        if self._sink is not None:
            self._member.name_sink(self._sink.sink)
        self._member.fetch_next(self._size.records)
        if not self._end(active, outcome, ended_ms):
            return Outcome(error=outcome.error)
        self._log_acknowledgements(outcome.acknowledgements, (ended_ms - began_ms) / 1_000)
        return outcome

    def _end(self, active: LockedRecords, outcome: Outcome, ended_ms: int) -> bool:
        """Send what became of an acquisition; return False if its records were given up meanwhile."""
        if outcome.resolved is None:
            return self._renewals.end(active, outcome.acknowledgements, ended_ms)
        is_held = self._renewals.end(active, [], ended_ms)
        # What the sink says holds for ever, for each holder of the records.
        self._member.report(outcome.resolved)
        return is_held

    # Log events.

    def _log_acknowledgements(self, acknowledgements: Iterable[Acknowledgement], seconds: float) -> None:
        """Log one event for each share-partition."""
        counts: dict[tuple[str, int], Counter[str]] = {}
        for ack in acknowledgements:
            counter = counts.setdefault((ack.topic, ack.partition), Counter())
            counter[ack.acknowledge_type.name.lower()] += len(ack.offsets)
        epoch = self._member.standing().member_epoch
        for (topic, partition), by_type in sorted(counts.items()):
            ids = {"share_partition": f"{topic}-{partition}", "epoch": epoch}
            logger.info(self._event("records_acknowledged", **ids, **by_type, seconds=f"{seconds:.3f}"))

    def _log_refusals(self, results: Iterable[Acknowledged]) -> None:
        for result in results:
            if result.error is not None:
                event = self._event(
                    "acknowledgement_failed",
                    share_partition=f"{result.topic}-{result.partition}",
                    epoch=self._member.standing().member_epoch,
                    first_offset=min(ack.first_offset for ack in result.acknowledgements),
                    last_offset=max(ack.last_offset for ack in result.acknowledgements),
                    reason=result.error,
                )
                logger.warning(event)


def _is_worked_off(outcome: Outcome) -> bool:
    """Return False if the time of an acquisition says nothing of its records: they were retried, or put off."""
    is_put_off = any(ack.acknowledge_type is AcknowledgeType.RENEW for ack in outcome.acknowledgements)
    return outcome.error is None and not is_put_off


def _first_line(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
