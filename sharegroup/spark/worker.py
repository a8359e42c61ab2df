"""The Spark worker: a member of a share group that gets its acquired records as DataFrames."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from pyspark.sql import DataFrame, SparkSession

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import Acquisition, HeldRange
from sharegroup.client.consumer_settings import CHANNEL_TOPIC_KEYS, LOG_KEYS, channel_topics, log_address
from sharegroup.client.group_member import GroupMember
from sharegroup.client.session_events import Acknowledged
from sharegroup.client.settings import ChannelTopics, FetchSettings, MemberSettings
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.worker import WorkerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import GroupQuarantinedError, LogUnavailableError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.spark.acknowledgement_frame import acknowledgements_of
from sharegroup.spark.acquired_records import acquired_records, readable, record_offsets, without_gaps
from sharegroup.spark.counted_records import CountedRecords
from sharegroup.spark.session import WORKER_POOL, check_running, is_running
from sharegroup.spark.worker_end import EndWhenAsked, EndWhenDrained

logger = logging.getLogger(__name__)

Handler = Callable[[DataFrame], DataFrame | None]
"""Takes acquired records; returns acknowledgements for those that are not simply accepted, or nothing."""

CHANNEL_KEYS = (*LOG_KEYS, *CHANNEL_TOPIC_KEYS)
"""What a worker must be told of the processor's configuration."""

_TAKE_TIMEOUT_MS = 200
_TOPIC_LOOK_S = 0.5
_WAITING_LINE_EVERY_S = 30
_HANDLER_TIMEOUT_S = 10
"""What a handler has not finished so long after the end was asked for is given back."""
_CANCEL_TIMEOUT_S = 2
_CLOSE_TIMEOUT_MS = 10_000


def process(
    spark: SparkSession,
    config: Mapping[str, object],
    handler: Handler,
    stop: threading.Event | None = None,
    once_timeout_s: float | None = None,
) -> None:
    """Work as a member of a share group until `stop` is set; without it, for ever.

    The handler gets a DataFrame (topic, partition, offset, delivery_count, key, value, headers, timestamp). It
    returns a DataFrame (topic, partition, offset, acknowledge_type) with `accept`, `release` or `reject`; records
    that it leaves out are accepted, and so are all when it returns None. A column redelivery_delay_ms may say how
    long a record that is released stays away from everybody. A handler that raises releases its range.
    It is called by several threads at once (`worker.ranges.in.flight`); while it works, the next range is acquired
    and the last one's acknowledgements are sent. A worker may be started before any processor was, and goes on when
    the processor is started again.

    Args:
        spark: the session that reads the records.
        config: `log.path`, or `bootstrap.servers` and the other keys of KafkaConfig; the topic names of CHANNEL_KEYS where
            they are not the defaults; and the keys of WorkerConfig: `group.id`, `topics`, `max.poll.records`, …
        handler: what to do with the records.
        stop: ends the work: ranges at hand are finished, or given back when that takes too long; those not begun are
            given back unread.
        once_timeout_s: not for ever, but until there is nothing to acquire; how long to wait for a processor's answer.

    Raises:
        ConfigurationError: a key or value of the configuration is wrong.
        RequestTimedOutError: no processor answered in time.
        ShareGroupError: what ended the membership.
    """
    properties = {key: value for key, value in config.items() if key not in CHANNEL_KEYS}
    address = log_address(config)
    topics = channel_topics(config)
    stop = stop or threading.Event()
    end = EndWhenAsked(stop) if once_timeout_s is None else EndWhenDrained(stop, once_timeout_s)
    with open_log(address) as log:
        _Worker(spark, log, address, WorkerConfig.from_mapping(properties), topics, handler, end).run()


class _Worker:
    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        log_address: str | KafkaConfig,
        config: WorkerConfig,
        topics: ChannelTopics,
        handler: Handler,
        end: EndWhenAsked,
    ) -> None:
        self._spark = spark
        self._log = log
        self._log_address = log_address
        self._config = config
        self._topics = topics
        self._handler = handler
        self._end = end
        self._running: set[Future[None]] = set()

    def run(self) -> None:
        member = self._new_member()
        if member is None:
            return
        self._member = member
        self._job_tag = f"share-worker-{member.member_id}"
        threads = ThreadPoolExecutor(self._config.worker_ranges_in_flight, self._job_tag)
        try:
            # The first read of a session starts Python workers and compiles plans; no lock should wait for that.
            acquired_records(self._spark, self._log_address, []).count()
            self._member.subscribe(self._config.topics)
            logger.info(self._event("started", topics=",".join(self._config.topics)))
            self._take(threads)
        finally:
            self._finish()
            threads.shutdown(wait=False, cancel_futures=True)
            self._log_failures(self._member.close(_CLOSE_TIMEOUT_MS))
            logger.info(self._event("left"))

    def _new_member(self) -> GroupMember | None:
        """The member, once a processor has made the topics between them; None when the end comes first."""
        fetch = FetchSettings(
            max_records=self._config.max_poll_records,
            # One range for one Spark task: a split would only cost.
            batch_size=self._config.max_poll_records,
            acquire_mode=AcquireMode(self._config.share_acquire_mode),
            max_wait_ms=self._end.longest_fetch_ms,
        )
        settings = MemberSettings(
            group_id=self._config.group_id,
            client_id=self._config.client_id,
            fetch=fetch,
            prefetch_count=1,
            topics=self._topics,
        )
        next_line_s = 0.0
        while not self._end.is_asked_for:
            try:
                return GroupMember(self._log, settings)
            except (UnknownTopicError, LogUnavailableError) as missing:
                if time.monotonic() >= next_line_s:
                    next_line_s = time.monotonic() + _WAITING_LINE_EVERY_S
                    fields = {"group": self._config.group_id, "client": self._config.client_id or None}
                    logger.info(Event("waiting_for_processor", **fields, reason=missing.message))
            check_running(self._spark)
            self._end.wait_unanswered(_TOPIC_LOOK_S)
        return None

    def _take(self, threads: ThreadPoolExecutor) -> None:
        while not self._end.is_reached(self._member, is_busy=bool(self._running)):
            check_running(self._spark)
            if len(self._running) >= self._config.worker_ranges_in_flight:
                wait(self._running, _TAKE_TIMEOUT_MS / 1000, "FIRST_COMPLETED")
            elif taken := self._next_acquisition():
                self._running.add(threads.submit(self._work, taken))
            self._running = {future for future in self._running if not _is_done(future)}
            self._log_failures(self._member.take_results())

    def _finish(self) -> None:
        """Let handlers end; cancel the jobs of those that take too long, and leave those that still do not end."""
        wait(self._running, _HANDLER_TIMEOUT_S)
        if any(not future.done() for future in self._running) and is_running(self._spark):
            self._spark.sparkContext.cancelJobsWithTag(self._job_tag)
            late = wait(self._running, _CANCEL_TIMEOUT_S).not_done
            logger.warning(self._event("handler_too_slow", seconds=_HANDLER_TIMEOUT_S, abandoned=len(late)))
        for future in self._running:
            if future.done() and (failure := future.exception()) is not None:
                logger.warning(self._event("range_lost", reason=failure))

    def _next_acquisition(self) -> Acquisition | None:
        try:
            return self._member.next_acquisition(_TAKE_TIMEOUT_MS)
        except GroupQuarantinedError as error:
            # The member stays in the group, and goes on when an administrator resumes it.
            logger.warning(self._event("group_quarantined", reason=error))
            return None

    def _work(self, acquisition: Acquisition) -> None:
        """Hand an acquisition to the handler, and acknowledge it as the handler says."""
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", WORKER_POOL)
        context.addJobTag(self._job_tag)
        started = time.monotonic()
        held: list[HeldRange] = list(acquisition.ranges)
        acknowledgements: list[Acknowledgement] = []
        try:
            held, acknowledgements = readable(self._log, held)
            if held:
                acknowledgements += self._handled(held)
        except Exception as error:
            logger.error(self._event("handler_failed", ranges=len(held)), exc_info=error)
            acknowledgements += self._released(held)
        self._member.acknowledge(acknowledgements)
        self._log_acknowledgements(acknowledgements, time.monotonic() - started)

    def _handled(self, held: list[HeldRange]) -> list[Acknowledgement]:
        """What the handler says of records, and the offsets that turn out to have none."""
        records = acquired_records(self._spark, self._log_address, held)
        if not isinstance(self._log_address, KafkaConfig):
            return acknowledgements_of(self._handler(records), held)
        counted = CountedRecords(records)
        said = self._handler(counted.records)
        gaps: list[Acknowledgement] = []
        if counted.count() != sum(found.record_count for found in held):
            held, gaps = without_gaps(held, record_offsets(records))
        return gaps + (acknowledgements_of(said, held) if held else [])

    def _released(self, held: list[HeldRange]) -> list[Acknowledgement]:
        """Give records back that the handler failed with, but not offsets that have none."""
        gaps: list[Acknowledgement] = []
        if isinstance(self._log_address, KafkaConfig) and held and not self._end.is_asked_for:
            try:
                records = acquired_records(self._spark, self._log_address, held)
                held, gaps = without_gaps(held, record_offsets(records))
            except Exception as error:
                logger.warning(self._event("gaps_not_looked_for", ranges=len(held), reason=error))
        return gaps + [found.acknowledgement(AcknowledgeType.RELEASE) for found in held]

    def _log_acknowledgements(self, acknowledgements: Iterable[Acknowledgement], seconds: float) -> None:
        """One line for each share-partition."""
        counts: dict[tuple[str, int], Counter[str]] = {}
        for found in acknowledgements:
            counter = counts.setdefault((found.topic, found.partition), Counter())
            counter[AcknowledgeType(found.acknowledge_type).name.lower()] += found.last_offset - found.first_offset + 1
        epoch = self._member.standing().member_epoch
        for (topic, partition), by_type in sorted(counts.items()):
            place = f"{topic}-{partition}"
            fields = {"share_partition": place, "epoch": epoch, **by_type, "seconds": f"{seconds:.3f}"}
            logger.info(self._event("records_acknowledged", **fields))

    def _log_failures(self, results: Iterable[Acknowledged]) -> None:
        for result in results:
            if result.error is not None:
                failed = self._event(
                    "acknowledgement_failed",
                    share_partition=f"{result.topic}-{result.partition}",
                    epoch=self._member.standing().member_epoch,
                    first_offset=min(found.first_offset for found in result.acknowledgements),
                    last_offset=max(found.last_offset for found in result.acknowledgements),
                    reason=result.error,
                )
                logger.warning(failed)

    def _event(self, name: str, **fields: object) -> Event:
        client_id = self._config.client_id or None
        return Event(name, group=self._config.group_id, client=client_id, member=self._member.member_id, **fields)


def _is_done(future: Future[None]) -> bool:
    if not future.done():
        return False
    future.result()
    return True
