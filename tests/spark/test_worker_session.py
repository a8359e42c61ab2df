"""The session of a worker: one that the application made, and what a handler's thread has of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from sharegroup.spark import register
from sharegroup.spark.active_session import activate
from sharegroup.spark.worker import process
from tests.spark.spark_site import SparkSite

pytestmark = pytest.mark.classic

GROUP = "spark.jobGroup.id"


@pytest.fixture
def own_session(spark: SparkSession) -> SparkSession:
    """A session that knows none of this package's formats."""
    return spark.newSession()


def process_until(
    site: SparkSite, session: SparkSession, handler: Callable[[DataFrame], object], calls: int = 1, **config: object
) -> None:
    """Work until the handler was called so often; its errors are those of the test."""
    stop = threading.Event()
    errors: list[BaseException] = []
    remaining = iter(range(calls - 1))

    def handle(records: DataFrame) -> None:
        try:
            handler(records)
        except BaseException as error:
            errors.append(error)
        if errors or next(remaining, None) is None:
            stop.set()

    topic = site.new_topic(record_count=10)
    wanted = {"log.path": str(site.log_path), "group.id": site.new_group(), "topics": topic}
    process(session, {**wanted, **config}, handle, stop)
    assert errors == []


def test_a_session_of_the_application_needs_no_registration(site: SparkSite, own_session: SparkSession) -> None:
    counts: list[int] = []
    process_until(site, own_session, lambda records: counts.append(records.count()))
    assert counts == [10]


def test_a_registered_session_reads_batches_and_streams(site: SparkSite, own_session: SparkSession) -> None:
    topic = site.new_topic(record_count=10)
    register(own_session)
    log = own_session.read.format("sharegroup_log").option("path", str(site.log_path)).option("topic", topic).load()
    assert log.count() == 10
    options = {"log.path": str(site.log_path), "group.id": site.new_group(), "subscribe": topic}
    assert own_session.readStream.format("sharegroup").options(**options).load().isStreaming


def test_the_session_is_active_in_a_handler(site: SparkSite, own_session: SparkSession) -> None:
    active: list[SparkSession | None] = []
    before = SparkSession.getActiveSession()
    assert before is not None
    try:
        process_until(site, own_session, lambda records: active.append(SparkSession.getActiveSession()))
    finally:
        activate(before)
    assert active == [own_session]


def test_a_handler_has_the_local_properties_of_the_caller_in_each_call(site: SparkSite, spark: SparkSession) -> None:
    context = spark.sparkContext
    seen: list[tuple[str | None, str | None, int]] = []

    def handle(records: DataFrame) -> None:
        seen.append((context.getLocalProperty(GROUP), context.getLocalProperty("mine"), len(context.getJobTags())))
        context.setJobGroup("of the handler", "")
        context.setLocalProperty("mine", "of the handler")
        context.addJobTag("of-the-handler")

    context.setJobGroup("of the caller", "")
    context.setLocalProperty("mine", "of the caller")
    try:
        config = {"max.poll.records": 5, "share.acquire.mode": "record_limit", "worker.ranges.in.flight": 1}
        process_until(site, spark, handle, calls=2, **config)
        assert context.getLocalProperty(GROUP) == "of the caller"
    finally:
        for name in (GROUP, "spark.job.description", "spark.job.interruptOnCancel", "mine"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # it removes the property
    # Of the tags one is the worker's, and one the acquisition's.
    assert seen == [("of the caller", "of the caller", 2)] * 2
