"""The Spark worker: a member of a share group that processes its acquired records as DataFrames."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping

from pyspark.sql import SparkSession

from sharegroup.client.group_member import GroupMember
from sharegroup.client.settings import (
    CHANNEL_TOPIC_KEYS,
    LOG_KEYS,
    ChannelTopics,
    FetchSettings,
    MemberSettings,
    channel_topics,
    log_address,
)
from sharegroup.config.members import WorkerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.errors import LogUnavailableError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.metrics.exposition import WorkerMetrics
from sharegroup.spark.handler_calls import Handler, SinkHandler
from sharegroup.spark.range_size import RangeSize
from sharegroup.spark.session import check_log, check_running
from sharegroup.spark.sink.open_sinks import new_sink
from sharegroup.spark.sink.spark_sink import SparkSink
from sharegroup.spark.sources import register
from sharegroup.spark.stop_condition import StopOnRequest, StopWhenDrained
from sharegroup.spark.worker_loop import WorkerLoop

__all__ = ["CHANNEL_KEYS", "Handler", "SinkHandler", "process"]

logger = logging.getLogger(__name__)

CHANNEL_KEYS = (*LOG_KEYS, *CHANNEL_TOPIC_KEYS)
"""Keys of the processor's configuration that a worker needs."""

_PROCESSOR_POLL_S = 0.5
_WAITING_EVENT_INTERVAL_S = 30


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
            WorkerLoop(spark, log, address, worker_config, size, handler, member, condition, metrics, table).run()


def _sink(spark: SparkSession, config: WorkerConfig, address: str) -> SparkSink | None:
    if address:
        return new_sink(spark, address, config.sink_config)
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
