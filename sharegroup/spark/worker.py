"""The Spark worker: a member of a share group that gets its acquired records as DataFrames."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import Acquisition, HeldRange
from sharegroup.client.group_member import GroupMember
from sharegroup.client.session_events import Acknowledged
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.config.worker import WorkerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import GroupQuarantinedError, UnknownTopicError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log, PartitionOffsets
from sharegroup.spark.acknowledgement_frame import acknowledgements_of
from sharegroup.spark.local_log_source import FORMAT
from sharegroup.spark.session import WORKER_POOL

logger = logging.getLogger(__name__)

Handler = Callable[[DataFrame], DataFrame | None]
"""Takes acquired records; returns acknowledgements for those that are not simply accepted, or nothing."""

_TAKE_TIMEOUT_MS = 200
_CLOSE_TIMEOUT_MS = 30_000


def process(
    spark: SparkSession, config: Mapping[str, object], handler: Handler, stop: threading.Event | None = None
) -> None:
    """Work as a member of a share group until `stop` is set; without it, for ever.

    The handler gets a DataFrame (topic, partition, offset, delivery_count, key, value, headers, timestamp). It
    returns a DataFrame (topic, partition, offset, acknowledge_type) with `accept`, `release` or `reject`; records
    that it leaves out are accepted, and so are all when it returns None. A handler that raises releases its range.
    It is called by several threads at once (`worker.ranges.in.flight`); while it works, the next range is acquired
    and the last one's acknowledgements are sent.

    Args:
        spark: the session that reads the records.
        config: `log.path`, and the keys of WorkerConfig: `group.id`, `topics`, `max.poll.records`, …
        handler: what to do with the records.
        stop: ends the work: ranges at hand are finished, those not begun are given back unread.

    Raises:
        ConfigurationError: a key or value of the configuration is wrong.
        ShareGroupError: what ended the membership.
    """
    properties = dict(config)
    log_path = str(properties.pop("log.path", ""))
    with open_log(log_path) as log:
        _Worker(spark, log, log_path, WorkerConfig.from_mapping(properties), handler).run(stop or threading.Event())


class _Worker:
    def __init__(self, spark: SparkSession, log: Log, log_path: str, config: WorkerConfig, handler: Handler) -> None:
        self._spark = spark
        self._log = log
        self._log_path = log_path
        self._config = config
        self._handler = handler
        fetch = FetchSettings(
            max_records=config.max_poll_records,
            # One range for one Spark task: a split would only cost.
            batch_size=config.max_poll_records,
            acquire_mode=AcquireMode(config.share_acquire_mode),
        )
        self._member = GroupMember(
            log,
            MemberSettings(group_id=config.group_id, client_id=config.client_id, fetch=fetch, prefetch_count=1),
        )

    def run(self, stop: threading.Event) -> None:
        try:
            # The first read of a session starts Python workers and compiles plans; no lock should wait for that.
            acquired_records(self._spark, self._log_path, []).count()
            self._member.subscribe(self._config.topics)
            with ThreadPoolExecutor(
                self._config.worker_ranges_in_flight, f"share-worker-{self._config.client_id}"
            ) as threads:
                self._take_until(stop, threads)
        finally:
            self._log_failures(self._member.close(_CLOSE_TIMEOUT_MS))

    def _take_until(self, stop: threading.Event, threads: ThreadPoolExecutor) -> None:
        running: set[Future[None]] = set()
        while not stop.is_set():
            if len(running) >= self._config.worker_ranges_in_flight:
                wait(running, _TAKE_TIMEOUT_MS / 1000, "FIRST_COMPLETED")
            elif taken := self._next_acquisition():
                running.add(threads.submit(self._work, taken))
            running = {future for future in running if not _is_done(future)}
            self._log_failures(self._member.take_results())
        wait(running)
        for future in running:
            future.result()

    def _next_acquisition(self) -> Acquisition | None:
        try:
            return self._member.next_acquisition(_TAKE_TIMEOUT_MS)
        except GroupQuarantinedError as error:
            # The member stays in the group, and goes on when an administrator resumes it.
            logger.warning("group=%s client=%s: %s", self._config.group_id, self._config.client_id, error)
            return None

    def _log_failures(self, results: Iterable[Acknowledged]) -> None:
        for result in results:
            if result.error is not None:
                logger.warning(
                    "group=%s client=%s: the acknowledgement of %s-%d offsets %d to %d failed: %s",
                    self._config.group_id,
                    self._config.client_id,
                    result.topic,
                    result.partition,
                    min(found.first_offset for found in result.acknowledgements),
                    max(found.last_offset for found in result.acknowledgements),
                    result.error,
                )

    def _work(self, acquisition: Acquisition) -> None:
        """Hand an acquisition to the handler, and acknowledge it as the handler says."""
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", WORKER_POOL)
        started = time.monotonic()
        held, gaps = self._readable(acquisition)
        if not held:
            self._member.acknowledge(gaps)
            return
        try:
            records = acquired_records(self._spark, self._log_path, held)
            acknowledgements = acknowledgements_of(self._handler(records), held)
        except Exception:
            logger.exception(
                "group=%s client=%s: the handler failed; its %d ranges are released",
                self._config.group_id,
                self._config.client_id,
                len(held),
            )
            acknowledgements = [found.acknowledgement(AcknowledgeType.RELEASE) for found in held]
        self._member.acknowledge([*acknowledgements, *gaps])
        logger.info(
            "group=%s client=%s ranges=%d records=%d seconds=%.3f",
            self._config.group_id,
            self._config.client_id,
            len(held),
            sum(found.last_offset - found.first_offset + 1 for found in held),
            time.monotonic() - started,
        )

    def _readable(self, acquisition: Acquisition) -> tuple[list[HeldRange], list[Acknowledgement]]:
        """What of an acquisition can be read, and the gaps: what was deleted from the log since.

        Ranges of a topic that was deleted, or created again, are dropped: their records do not exist any more.
        """
        start_offsets: dict[str, dict[int, PartitionOffsets]] = {}
        for topic, topic_id in {(found.topic, found.topic_id) for found in acquisition.ranges}:
            try:
                if self._log.describe_topic(topic).topic_id == topic_id:
                    start_offsets[topic] = self._log.offsets(topic)
            except UnknownTopicError:
                continue
        held: list[HeldRange] = []
        gaps: list[Acknowledgement] = []
        for found in acquisition.ranges:
            if found.topic not in start_offsets:
                continue
            start = start_offsets[found.topic][found.partition].start_offset
            if found.first_offset < start:
                deleted = replace(found, last_offset=min(found.last_offset, start - 1))
                reason = f"deleted: the log starts at offset {start}"
                gaps.append(deleted.acknowledgement(AcknowledgeType.GAP, reason))
            if found.last_offset >= start:
                held.append(replace(found, first_offset=max(found.first_offset, start)))
        return held, gaps


def acquired_records(spark: SparkSession, log_path: str, held: list[HeldRange]) -> DataFrame:
    """The records of held ranges as a DataFrame.

    Columns: topic, partition, offset, delivery_count, key, value, headers, timestamp.
    """
    ranges = [[r.topic, r.partition, r.first_offset, r.last_offset, r.delivery_count] for r in held]
    return (
        spark.read.format(FORMAT)
        .option("path", log_path)
        .option("ranges", json.dumps(ranges))
        .load()
        .select(
            "topic",
            "partition",
            "offset",
            "delivery_count",
            "key",
            "value",
            "headers",
            F.col("timestamp_ms").alias("timestamp"),
        )
    )


def _is_done(future: Future[None]) -> bool:
    if not future.done():
        return False
    future.result()
    return True
