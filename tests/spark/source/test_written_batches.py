"""A query with a sink: the results of each batch are in the table once, and its records are accepted exactly if so."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sharegroup.audit.history.row_source import TableRows
from sharegroup.audit.sinks.verify_sinks import verify_sinks
from sharegroup.audit.verification.verify import verify
from sharegroup.core.record_state import Cause
from sharegroup.errors import InvalidRequestError
from sharegroup.spark import write_once
from sharegroup.spark.features import HAS_READ_LIMITS
from tests.spark.source.test_query import Handler, drain, offsets, records, running, written
from tests.spark.spark_site import SparkSite
from tests.support.eventually import DEADLINE_S
from tests.support.site import BROKER

OffsetKey = tuple[int, int]
SLOW = pytest.mark.long("micro-batches, each with commits")


@pytest.fixture
def table(site: SparkSite, tmp_path: Path) -> str:
    path = str(tmp_path / "results")
    site.spark.sql(f"CREATE TABLE delta.`{path}` (topic STRING, partition INT, offset BIGINT) USING delta")
    return path


def new_group(site: SparkSite, **config: str) -> str:
    return site.new_group(share_exactly_once_enable="true", **config)


def write(batch: DataFrame, batch_id: int) -> None:
    write_once(batch, batch.select("topic", "partition", "offset"))


def forget(batch: DataFrame, batch_id: int) -> None:
    batch.select("partition", "offset").count()


def rows(site: SparkSite, table: str) -> Counter[OffsetKey]:
    written_rows = site.spark.read.format("delta").load(table).select("partition", "offset").collect()
    return Counter((row.partition, row.offset) for row in written_rows)


def accepted(site: SparkSite, group_id: str) -> Counter[OffsetKey]:
    return Counter(
        (row.partition, offset)
        for row in site.rows(group_id)
        for entry in row.transitions
        if entry.cause is Cause.ACCEPT
        for offset in range(entry.first_offset, entry.last_offset + 1)
    )


def once(partition_count: int, record_count: int) -> Counter[OffsetKey]:
    return Counter((partition, offset) for partition in range(partition_count) for offset in range(record_count))


def failing_once(action: Handler) -> Handler:
    """Does something with the first batch of records, then fails."""
    failed: list[int] = []

    def handle(batch: DataFrame, batch_id: int) -> None:
        is_first = not failed and not batch.isEmpty()
        if is_first:
            failed.append(batch_id)
        action(batch, batch_id)
        if is_first:
            raise ValueError("not this one")

    return handle


def stopped_after_its_first_batch(site: SparkSite, writer: DataStreamWriter) -> None:
    """Run a query until Spark has committed its first batch; its member knows of that with the next trigger only."""
    with running(writer.trigger(processingTime="1 minute")) as query:
        site.until(lambda: any(progress.numInputRows for progress in query.recentProgress), "the batch is committed")


def ends_with(query: StreamingQuery, text: str) -> None:
    with pytest.raises(StreamingQueryException, match=text):
        query.awaitTermination(round(DEADLINE_S))


def test_each_batch_is_written_once_and_its_records_accepted(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=50), new_group(site)
    frame = records(site, group_id, topic, max_poll_records="20", sink=table)
    writes: dict[int, set[str]] = {}

    def noted(batch: DataFrame, batch_id: int) -> None:
        writes[batch_id] = {row.write for row in batch.select("write").distinct().collect()}
        write(batch, batch_id)

    drain(site, group_id, topic, written(frame, noted, tmp_path / "checkpoint"))
    assert rows(site, table) == accepted(site, group_id) == once(2, 50)
    assert verify(site.rows(), BROKER).findings == []
    reconciled = verify_sinks(TableRows(site.table_path), [table], group_id)
    assert (reconciled.finding_count, reconciled.accepted_count, reconciled.row_count) == (0, 100, 100)
    # One batch is one acquisition, with one write, in one commit.
    assert all(len(of_batch) <= 1 for of_batch in writes.values())
    assert reconciled.commit_count == len(set().union(*writes.values()))


@SLOW
def test_a_batch_that_is_executed_again_is_not_written_again(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=30), new_group(site)
    frame = records(site, group_id, topic, max_poll_records="10", sink=table)
    ends_with(written(frame, failing_once(write), tmp_path / "checkpoint").start(), "not this one")
    drain(site, group_id, topic, written(frame, write, tmp_path / "checkpoint"))
    assert rows(site, table) == accepted(site, group_id) == once(1, 30)


@SLOW
def test_a_query_without_its_checkpoint_writes_nothing_twice(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=30), new_group(site, share_record_lock_duration_ms="1000")
    frame = records(site, group_id, topic, max_poll_records="10", sink=table)
    ends_with(written(frame, failing_once(write), tmp_path / "checkpoint").start(), "not this one")
    shutil.rmtree(tmp_path / "checkpoint")
    drain(site, group_id, topic, written(frame, write, tmp_path / "checkpoint"))
    assert rows(site, table) == accepted(site, group_id) == once(1, 30)


@SLOW
def test_a_second_query_on_a_copy_of_the_checkpoint_writes_nothing_twice(
    site: SparkSite, table: str, tmp_path: Path
) -> None:
    topic, group_id = site.new_topic(record_count=30), new_group(site, share_record_lock_duration_ms="1000")
    frame = records(site, group_id, topic, max_poll_records="10", sink=table)
    ends_with(written(frame, failing_once(lambda batch, _: None), tmp_path / "checkpoint").start(), "not this one")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    another = records(site, group_id, topic, max_poll_records="10", sink=table)
    drain(
        site,
        group_id,
        topic,
        written(frame, write, tmp_path / "checkpoint"),
        written(another, write, tmp_path / "copy"),
    )
    assert rows(site, table) == accepted(site, group_id) == once(1, 30)


def test_a_batch_that_is_committed_without_its_write_stops_the_query(
    site: SparkSite, table: str, tmp_path: Path
) -> None:
    topic, group_id = site.new_topic(record_count=20), new_group(site, share_record_lock_duration_ms="1000")
    frame = records(site, group_id, topic, max_poll_records="10", sink=table)
    ends_with(written(frame, forget, tmp_path / "checkpoint").start(), "has no write of it.*write_once")
    assert not accepted(site, group_id)
    assert max(Counter(offsets(site, group_id, Cause.ACQUIRE)).values()) == 1, "nothing was delivered again"
    # The repaired program gets them again.
    drain(site, group_id, topic, written(frame, write, tmp_path / "checkpoint"))
    assert rows(site, table) == accepted(site, group_id) == once(1, 20)


@SLOW
def test_another_writer_than_write_once_stops_the_query(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=10), new_group(site)
    other = str(tmp_path / "other")
    frame = records(site, group_id, topic, sink=table).select("partition", "offset")
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    ends_with(writer.start(other), "has no write of it.*write_once")
    assert not accepted(site, group_id)
    assert max(Counter(offsets(site, group_id, Cause.ACQUIRE)).values()) == 1


@SLOW
def test_a_batch_that_was_committed_without_its_write_stops_the_next_start(
    site: SparkSite, table: str, tmp_path: Path
) -> None:
    topic, group_id = site.new_topic(record_count=10), new_group(site, share_record_lock_duration_ms="1000")
    frame = records(site, group_id, topic, sink=table)
    stopped_after_its_first_batch(site, written(frame, forget, tmp_path / "checkpoint"))
    ends_with(written(frame, write, tmp_path / "checkpoint").start(), "has no write of it.*write_once")
    assert not accepted(site, group_id)
    assert max(Counter(offsets(site, group_id, Cause.ACQUIRE)).values()) == 1
    drain(site, group_id, topic, written(frame, write, tmp_path / "checkpoint"))
    assert rows(site, table) == accepted(site, group_id) == once(1, 10)


@SLOW
def test_a_batch_that_was_written_and_not_reported_is_reported_by_the_next_start(
    site: SparkSite, table: str, tmp_path: Path
) -> None:
    topic, group_id = site.new_topic(record_count=10), new_group(site, share_record_lock_duration_ms="1000")
    frame = records(site, group_id, topic, sink=table)
    stopped_after_its_first_batch(site, written(frame, write, tmp_path / "checkpoint"))
    drain(site, group_id, topic, written(frame, write, tmp_path / "checkpoint"))
    assert rows(site, table) == accepted(site, group_id) == once(1, 10)
    assert max(Counter(offsets(site, group_id, Cause.ACQUIRE)).values()) == 1


@SLOW
def test_a_batch_whose_records_are_gone_needs_no_write(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=10), new_group(site)
    frame = records(site, group_id, topic, sink=table)
    ends_with(written(frame, failing_once(forget), tmp_path / "checkpoint").start(), "not this one")
    site.log.delete_records(topic, 0, 10)
    site.produce(topic, 0, 5)
    drain(site, group_id, topic, written(frame, write, tmp_path / "checkpoint"))
    later = Counter({(0, offset): 1 for offset in range(10, 15)})
    assert rows(site, table) == accepted(site, group_id) == later


@SLOW
def test_results_may_lack_the_columns_of_the_batch_or_be_empty(site: SparkSite, tmp_path: Path) -> None:
    table = str(tmp_path / "counts")
    site.spark.sql(f"CREATE TABLE delta.`{table}` (count BIGINT) USING delta")
    topic, group_id = site.new_topic(record_count=20), new_group(site)

    def count(batch: DataFrame, batch_id: int) -> None:
        write_once(batch, batch.where("offset < 10").groupBy().count().where("count > 0"))

    frame = records(site, group_id, topic, max_poll_records="10", share_acquire_mode="record_limit", sink=table)
    drain(site, group_id, topic, written(frame, count, tmp_path / "checkpoint"))
    counts = site.spark.read.format("delta").load(table).collect()
    assert sum(row[0] for row in counts) == 10
    assert accepted(site, group_id) == once(1, 20)


@SLOW
def test_records_with_another_acknowledgement_are_not_accepted(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=20), new_group(site)

    def judge(batch: DataFrame, batch_id: int) -> None:
        bad = batch.where("offset % 10 = 3").withColumn("acknowledge_type", F.lit("reject"))
        write_once(batch, batch.where("offset % 10 <> 3").select("partition", "offset"), bad)

    frame = records(site, group_id, topic, sink=table)
    drain(site, group_id, topic, written(frame, judge, tmp_path / "checkpoint"))
    expected = Counter({key: 1 for key in once(1, 20) if key[1] % 10 != 3})
    assert rows(site, table) == accepted(site, group_id) == expected


@SLOW
def test_results_are_merged_where_the_query_says_so(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=30), new_group(site)

    def latest(batch: DataFrame, batch_id: int) -> None:
        write_once(batch, batch.groupBy("partition").agg(F.max("offset").alias("offset")))

    options = {"sink": table, "sink.mode": "merge", "sink.merge.keys": "partition"}
    frame = records(site, group_id, topic, max_poll_records="10", **options)
    drain(site, group_id, topic, written(frame, latest, tmp_path / "checkpoint"))
    assert rows(site, table) == Counter([(0, 29)])
    assert accepted(site, group_id) == once(1, 30)


@SLOW
@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark before 4.2 makes one batch")
def test_a_query_for_what_is_available_now_ends_with_its_last_batch_reported(
    site: SparkSite, table: str, tmp_path: Path
) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=50), new_group(site)
    frame = records(site, group_id, topic, max_poll_records="40", sink=table)
    query = written(frame, write, tmp_path / "checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(round(DEADLINE_S))
    assert site.is_drained(group_id, topic)
    assert rows(site, table) == accepted(site, group_id) == once(2, 50)


@SLOW
def test_the_writes_of_an_idle_query_look_up_those_of_a_lost_one(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=10), new_group(site, share_record_lock_duration_ms="1000")
    frame = records(site, group_id, topic, sink=table)
    ends_with(written(frame, failing_once(write), tmp_path / "lost").start(), "not this one")
    # Nothing is left for this query: it looks up the write of the lost one.
    with running(written(records(site, group_id, topic, sink=table), write, tmp_path / "idle")):
        site.until(lambda: site.is_drained(group_id, topic) or None, "the group is done")
    assert rows(site, table) == accepted(site, group_id) == once(1, 10)


def refused(site: SparkSite, table: str, tmp_path: Path, action: Callable[[DataFrame], None], **options: str) -> str:
    """The errors of `write_once` in the first batch with records."""
    texts: list[str] = []
    topic, group_id = site.new_topic(record_count=3), new_group(site)

    def handle(batch: DataFrame, batch_id: int) -> None:
        if batch.isEmpty():
            return
        try:
            action(batch)
        except InvalidRequestError as error:
            texts.append(str(error))
        write(batch, batch_id)

    drain(site, group_id, topic, written(records(site, group_id, topic, sink=table, **options), handle, tmp_path / "c"))
    (text,) = texts
    return text


@SLOW
@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda batch: write_once(batch.drop("write"), batch.select("partition", "offset")), "lacks the column write"),
        (
            lambda batch: write_once(batch, batch, batch.withColumn("acknowledge_type", F.lit("renew"))),
            "is renewed",
        ),
    ],
)
def test_mistakes_are_raised_where_they_are_made(
    site: SparkSite, table: str, tmp_path: Path, action: Callable[[DataFrame], None], text: str
) -> None:
    assert text in refused(site, table, tmp_path, action)


@SLOW
def test_a_batch_is_written_by_one_call(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=3), new_group(site)

    def twice(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        if not batch.isEmpty():
            write(batch.where("offset > 0"), batch_id)

    query = written(records(site, group_id, topic, sink=table), twice, tmp_path / "checkpoint").start()
    ends_with(query, "was called before")


@SLOW
def test_a_table_that_forgets_earlier_than_the_group_looks_writes_up_ends_the_query(
    site: SparkSite, table: str, tmp_path: Path
) -> None:
    topic, days = site.new_topic(record_count=3), "delta.logRetentionDuration"
    group_id = new_group(site, share_exactly_once_write_expiry_ms=str(20 * 24 * 60 * 60 * 1_000))
    site.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('{days}' = 'interval 10 days')")
    frame = records(site, group_id, topic, sink=table)
    ends_with(written(frame, write, tmp_path / "checkpoint").start(), "for up to 20 days")
    assert offsets(site, group_id, Cause.ACQUIRE) == offsets(site, group_id, Cause.UNREAD), "no delivery counts"
    site.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('{days}' = 'interval 90 days')")
    drain(site, group_id, topic, written(frame, write, tmp_path / "checkpoint"))
    assert rows(site, table) == accepted(site, group_id) == once(1, 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sink.mode": "merge", "sink.merge.keys": "partition"}, "sink.mode is set, and sink is not"),
        ({"sink": "/tables/a", "share.acknowledgement.mode": "explicit"}, "an argument of `write_once`"),
        ({"sink": "/tables/a", "sink.mode": "merge"}, "sink.merge.keys is needed"),
    ],
)
def test_options_that_contradict_each_other_are_refused(site: SparkSite, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=text):
        records(site, "group", "topic", **options)
