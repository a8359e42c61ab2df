"""The Spark worker: a member of a share group that processes its acquired records as DataFrames."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.settings import (
    CHANNEL_TOPIC_KEYS,
    LOG_KEYS,
    ChannelTopics,
    FetchSettings,
    MemberSettings,
    channel_topics,
    log_address,
)
from sharegroup.client.sink_table import WRITE_EXPIRY_MS
from sharegroup.client.write_resolver import WriteResolver
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.members import WorkerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    ApiError,
    HandlerFailedError,
    LogUnavailableError,
    ShareGroupError,
    UnknownTopicError,
)
from sharegroup.event_log import Event
from sharegroup.logs.log_clock import monotonic_ms
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.metrics.exposition import CANCELLED, WorkerMetrics
from sharegroup.spark.acquired_records import acquired_records
from sharegroup.spark.failure_search import Outcome
from sharegroup.spark.handler_calls import Handler, HandlerCalls, SinkHandler
from sharegroup.spark.handler_threads import HandlerThreads
from sharegroup.spark.lock_renewals import LockedRecords, LockRenewals
from sharegroup.spark.range_size import RangeSize
from sharegroup.spark.session import check_log, check_running, is_running
from sharegroup.spark.sink.open_sinks import open_sink
from sharegroup.spark.sink.sink_write import SinkWrite
from sharegroup.spark.sink.spark_sink import SparkSink
from sharegroup.spark.sources import register
from sharegroup.spark.stop_condition import StopOnRequest, StopWhenDrained

__all__ = ["CHANNEL_KEYS", "Handler", "SinkHandler", "process"]

logger = logging.getLogger(__name__)

CHANNEL_KEYS = (*LOG_KEYS, *CHANNEL_TOPIC_KEYS)
"""Keys of the processor's configuration that a worker needs."""

_POLL_TIMEOUT_MS = 200
_PROCESSOR_POLL_S = 0.5
_WAITING_EVENT_INTERVAL_S = 30
_SHORT_RANGE_S = 2
"""While ranges grow, the next one waits for so long for the size that the one in work shows."""
_HANDLER_TIMEOUT_S = 10
"""How long handlers may finish after a stop; then their Spark jobs are cancelled."""
_CANCEL_TIMEOUT_S = 2
_CLOSE_TIMEOUT_MS = 10_000


def process(
    spark: SparkSession,
    config: Mapping[str, object],
    handler: Handler | SinkHandler,
    stop: threading.Event | None = None,
    once_timeout_s: float | None = None,
    sink: str | os.PathLike[str] | None = None,
) -> None:
    """Work as a member of a share group until `stop` is set; without it, for ever.

    The handler receives a DataFrame (topic, partition, offset, delivery_count, key, value, headers, timestamp). It
    returns a DataFrame (topic, partition, offset, acknowledge_type) with `accept`, `release`, `reject` or `renew`;
    records that it leaves out are accepted, and so are all if it returns None. An optional column redelivery_delay_ms
    sets how long a released record stays unavailable. Renewed records stay locked by this worker, and the handler
    receives them again a second later, or when a thread is free.

    A handler that raises, or returns anything else, is called again with halves of its records, then with single ones,
    in at most 64 calls (`worker.bisect.on.error`): it may see a record several times in one delivery. A record with
    which it fails alone, and alone again after it accepted another one, is released. The others are returned unread:
    their delivery does not count. While the handler accepts none, that is with a delay of 1 s, doubling up to 60 s, and
    one acquisition after the other is processed.

    With a sink, the handler returns its rows instead, or a pair: rows, and acknowledgements, without `renew`. They get
    into the table once, with the acknowledgements in the same commit, whatever is killed or paused meanwhile; a record
    is accepted exactly if its rows are there, also where the handler is called with parts. What the handler writes by
    itself is not covered. The group has `share.exactly.once.enable`: the worker creates a new one with it.

    Several threads call the handler at once (`worker.ranges.in.flight`). In each of them the session is the active one,
    and jobs have the local properties of the caller of `process`, such as a job group, but for the scheduler pool; a
    session of Spark Connect has no such properties.
    While the handler works, its locks are renewed (`worker.renew.max.ms`), the next range is acquired and earlier
    acknowledgements are sent. A worker may be started before any processor was, and continues when the processor is
    started again.

    Args:
        spark: any session; the formats that it lacks are registered in it.
        config: `log.path`, or `bootstrap.servers` and the other keys of KafkaConfig; the topic names of CHANNEL_KEYS
            where they are not the defaults; and the keys of WorkerConfig: `group.id`, `topics`, `max.poll.records`, …
        stop: ends the work: active handlers may finish for a while, then their records are released; acquisitions that
            no handler has received are returned unread.
        once_timeout_s: end when there is nothing left to acquire; the longest wait for a processor's response.
        sink: a Delta table, by path, URI, or name in a catalog, instead of the one of the configuration.

    Raises:
        ConfigurationError: a key or value of the configuration is wrong, or the session's executors are on other
            machines than an embedded log.
        EnvironmentNotReadyError: the session cannot read from Kafka: its driver or its executors lack jars.
        HandlerFailedError: with `once_timeout_s`, the handler fails, and accepts nothing after that.
        SinkError: the sink is no Delta table, cannot keep the promise, or another program may write to it.
        RequestTimedOutError: no processor responded in time.
        ApiError: the group refuses this member for good; with `once_timeout_s`, also for a cause that an
            administrator can remove, such as a quarantine.
        ShareGroupError: the cause that ended the membership.
    """
    address, topics = log_address(config), channel_topics(config)
    worker_config = WorkerConfig.from_mapping({key: value for key, value in config.items() if key not in CHANNEL_KEYS})
    check_log(spark, address)
    table = _sink(spark, worker_config, worker_config.sink if sink is None else os.fspath(sink))
    register(spark)
    stop = stop or threading.Event()
    condition = StopOnRequest(stop) if once_timeout_s is None else StopWhenDrained(stop, once_timeout_s)
    metrics = WorkerMetrics(worker_config.group_id)
    with open_log(address) as log:
        if worker_config.worker_metrics_port:
            metrics.serve(worker_config.worker_metrics_host, worker_config.worker_metrics_port)
        size = RangeSize(worker_config, worker_config.worker_ranges_in_flight)
        member = _join(spark, log, worker_config, size, topics, condition, table)
        if member is not None:
            _Worker(spark, log, address, worker_config, size, handler, member, condition, metrics, table).run()


def _sink(spark: SparkSession, config: WorkerConfig, address: str) -> SparkSink | None:
    if address:
        return open_sink(spark, address, config.sink_config)
    config.check_no_sink()
    return None


def _join(
    spark: SparkSession,
    log: Log,
    config: WorkerConfig,
    size: RangeSize,
    topics: ChannelTopics,
    stop_condition: StopOnRequest,
    sink: SparkSink | None,
) -> GroupMember | None:
    """Create the member once a processor has created the topics between them; return None if it stops before."""
    fetch = FetchSettings(
        max_records=size.records,
        # One range for one Spark task: to split it would only cost.
        batch_size=config.max_poll_records,
        fetches_ahead=size.is_known,
        acquire_mode=AcquireMode(config.share_acquire_mode),
        max_wait_ms=stop_condition.max_fetch_wait_ms,
    )
    settings = MemberSettings(
        group_id=config.group_id,
        client_id=config.client_id,
        fetch=fetch,
        topics=topics,
        sends_refused_apart=True,
        sink=None if sink is None else sink.sink,
    )
    next_event_s = 0.0
    while not stop_condition.is_requested:
        try:
            return GroupMember(log, settings)
        except (UnknownTopicError, LogUnavailableError) as unavailable:
            if time.monotonic() >= next_event_s:
                next_event_s = time.monotonic() + _WAITING_EVENT_INTERVAL_S
                ids = {"group": config.group_id, "client": config.client_id or None}
                logger.info(Event("waiting_for_processor", **ids, reason=unavailable.message))
        check_running(spark)
        stop_condition.wait(_PROCESSOR_POLL_S)
    return None


class _Worker:
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
        write = acquisition.write
        return None if self._sink is None or write is None else SinkWrite(self._sink, write)

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
        if self._sink is not None:
            self._sink.check(self._member.write_expiry_ms or WRITE_EXPIRY_MS)
        return outcome

    def _end(self, active: LockedRecords, outcome: Outcome, ended_ms: int) -> bool:
        """Send what became of an acquisition; return False if its records were given up meanwhile."""
        if outcome.resolved is None:
            return self._renewals.end(active, outcome.acknowledgements, ended_ms)
        is_held = self._renewals.end(active, [], ended_ms)
        # What the sink says holds for ever, whoever has the records.
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
