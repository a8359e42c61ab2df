"""The streaming query that hosts a processor: how it begins, what it shows, and each way in which it ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sharegroup.config.loader import Settings
from sharegroup.errors import FencedProcessorError, ProcessorStoppedError
from sharegroup.metrics.processor_metrics import OBSERVATION
from sharegroup.protocol.rows import RecordType
from sharegroup.spark.processor_query import ProcessorQuery
from sharegroup.spark.worker import process
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.site import REQUEST_PARTITIONS, REQUESTS, Site

LONG_MS = 600_000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Folders, logs and members; its own processor is not started."""
    site = Site(tmp_path)
    yield site
    site.close()


def settings_with(site: Site, batch_duration_ms: int) -> Settings:
    settings = site.settings
    return replace(settings, processor=settings.processor.model_copy(update={"batch_duration_ms": batch_duration_ms}))


@contextmanager
def hosted(spark: SparkSession, site: Site, batch_duration_ms: int = LONG_MS) -> Iterator[ProcessorQuery]:
    query = ProcessorQuery(spark, settings_with(site, batch_duration_ms))
    query.start()
    try:
        yield query
    finally:
        query.stop()


def streaming_query(query: ProcessorQuery) -> StreamingQuery:
    """Return the query that runs now; it is started again when a Python process comes too late for Spark."""
    suffix = f"-{query.processor.leader_epoch}"
    return eventually(
        lambda: next((each for each in query.session.streams.active if (each.name or "").endswith(suffix)), None),
        "the query",
    )


def test_a_start_that_gets_no_session_leaves_no_loop_behind(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> SparkSession:
        raise RuntimeError("no session")

    before = set(threading.enumerate())
    query = ProcessorQuery(fail, settings_with(site, LONG_MS))
    with pytest.raises(RuntimeError, match="no session"):
        query.start()
    eventually(
        lambda: not any(thread.name.startswith("sharegroup-") for thread in set(threading.enumerate()) - before),
        "all threads of the processor end",
    )
    query.stop()
    query.raise_failure()
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


@pytest.mark.classic
def test_members_are_served_within_one_long_batch(spark: SparkSession, site: Site) -> None:
    with hosted(spark, site) as query:
        site.drain()
        site.drain()
        assert streaming_query(query).recentProgress == []


@pytest.mark.long("Spark waits 10 s for a Python process")
@pytest.mark.classic
def test_a_python_process_that_starts_too_late_for_spark_is_started_again(
    spark: SparkSession, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_late, python = tmp_path / "is-late", tmp_path / "python"
    is_late.touch()
    # The process of the stream is the one that runs this module.
    python.write_text(
        f"""#!/bin/sh
        if [ -e {is_late} ] && echo "$*" | grep -q streaming_source_runner; then rm {is_late}; sleep 11; fi
        exec {sys.executable} "$@"
        """
    )
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with hosted(spark, site, batch_duration_ms=0) as query:
        site.drain()
        eventually(query.last_progress, "a batch ended")
    assert not is_late.exists()
    assert "event=query_restarted" in caplog.text


@pytest.mark.classic
def test_members_get_responses_before_spark_comes_to_its_first_batch(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_begin = threading.Event()
    run_batch = ProcessorQuery._run_batch

    def run_late(self: ProcessorQuery, batch: DataFrame, batch_id: int) -> None:
        assert may_begin.wait(DEADLINE_S)
        run_batch(self, batch, batch_id)

    monkeypatch.setattr(ProcessorQuery, "_run_batch", run_late)
    with hosted(spark, site):
        site.drain()
        may_begin.set()
        site.drain()


@pytest.mark.classic
def test_short_batches_tell_ranges_and_figures(spark: SparkSession, site: Site) -> None:
    with hosted(spark, site, batch_duration_ms=200) as query:

        def figures() -> list[Mapping[str, object]]:
            progress = streaming_query(query).recentProgress
            rows = [each.observedMetrics.get(OBSERVATION) for each in progress]
            return [row.asDict() for row in rows if row is not None]

        # A batch ends once something beyond its ranges is applied: work goes on until three are over.
        while len(figures()) < 3:
            site.drain()
        shown = figures()
        assert sum(int(str(row["commits"])) for row in shown) >= 2
        assert sum(int(str(row["messages"])) for row in shown) >= sum(int(str(row["commits"])) for row in shown)
        assert {"take_ms", "apply_ms", "commit_ms", "publish_ms", "responses"} <= shown[0].keys()
        assert all(
            0 < progress.numInputRows <= REQUEST_PARTITIONS for progress in streaming_query(query).recentProgress
        )


@pytest.mark.long("a Spark job for each of many micro-batches")
@pytest.mark.classic
def test_a_duration_of_zero_is_a_plain_micro_batch(spark: SparkSession, site: Site) -> None:
    with hosted(spark, site, batch_duration_ms=0) as query:
        site.drain()
        ends = {p: offsets.end_offset for p, offsets in site.log.offsets(REQUESTS).items()}
        eventually(lambda: len(streaming_query(query).recentProgress) >= 2, "batches end by themselves")
        assert all(query.processor.published_ends[p] >= 1 for p in ends)


@pytest.mark.classic
def test_a_stop_in_mid_batch_commits_what_was_applied(spark: SparkSession, site: Site) -> None:
    with hosted(spark, site) as query:
        site.drain()
        published_ends = dict(query.processor.published_ends)
    marker = site.reader.last_marker()
    assert marker is not None
    # Messages that change nothing have no marker of their own; the last message of the processor may not be applied.
    assert all(marker.end_offsets[partition] >= end for partition, end in published_ends.items())
    assert sum(published_ends.values()) > 10
    assert len(list(site.checkpoint_path.iterdir())) == 1
    with hosted(spark, site):
        site.drain()
    assert len(list(site.checkpoint_path.iterdir())) == 1


@pytest.mark.classic
def test_a_query_that_somebody_else_stops_is_a_failure(spark: SparkSession, site: Site) -> None:
    with hosted(spark, site) as query:
        site.drain()
        streaming_query(query).stop()
        with pytest.raises(ProcessorStoppedError, match="was stopped"):
            query.await_termination(DEADLINE_S)


def test_two_processors_in_one_session(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = Site(other_folder)
    with hosted(spark, site), hosted(spark, other):
        site.drain()
        other.drain()
        site.drain()
    other.close()


def test_an_older_query_ends_when_another_one_takes_over(spark: SparkSession, site: Site) -> None:
    with hosted(spark, site) as older:
        site.drain()
        with hosted(spark, site):
            with pytest.raises(FencedProcessorError):
                older.await_termination(DEADLINE_S)
            site.drain()


def test_a_notebook_cell_that_runs_processor_and_worker(spark: SparkSession, site: Site) -> None:
    handled: list[int] = []
    with hosted(spark, site):
        topic, group_id, stop = site.new_topic(record_count=50), site.new_group(), threading.Event()

        def handle(records: DataFrame) -> None:
            handled.extend(row.offset for row in records.select("offset").collect())
            if len(handled) >= 50:
                stop.set()

        process(spark, {"log.path": str(site.log_path), "group.id": group_id, "topics": topic}, handle, stop)
        site.until(lambda: site.is_drained(group_id, topic), "the topic is drained")
    assert sorted(handled) == list(range(50))


def test_once_ends_when_nothing_is_left_to_do(spark: SparkSession, site: Site) -> None:
    with site.running():
        topic = site.new_topic(record_count=5)
        group_id = site.new_group(share_record_lock_duration_ms="1000")
        consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit")
        site.poll(consumer, 5)
    consumer.close(timeout=0)
    ProcessorQuery(spark, settings_with(site, LONG_MS)).serve(idle_limit_s=0.5)
    assert site.folded(group_id).metadata.members == {}
    assert len(site.rows(None, RecordType.FENCE)) == 2
