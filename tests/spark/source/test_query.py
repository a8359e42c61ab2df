"""Streaming queries as members of a share group, in Spark; one processor for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sharegroup.audit.verification.verify import verify
from sharegroup.core.record_state import Cause
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.spark import acknowledge
from sharegroup.spark.features import HAS_READ_LIMITS
from tests.spark.spark_site import SparkSite
from tests.support.eventually import DEADLINE_S
from tests.support.site import BROKER

OffsetKey = tuple[int, int]
"""Partition and offset."""
Handler = Callable[[DataFrame, int], None]


class Seen:
    """Remembers by batch which records came, and how often each was delivered."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[OffsetKey, int]] = {}

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        rows = records.select("partition", "offset", "delivery_count").collect()
        self.batches[batch_id] = {(row.partition, row.offset): row.delivery_count for row in rows}

    @property
    def places(self) -> list[OffsetKey]:
        """All records, one for each time."""
        return sorted(key for batch in self.batches.values() for key in batch)


def records(site: SparkSite, group_id: str, topic: str, **options: str) -> DataFrame:
    reader = site.spark.readStream.format("sharegroup").option("log.path", str(site.log_path))
    for name, value in {"group_id": group_id, "subscribe": topic, **options}.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader.load()


def written(frame: DataFrame, handler: Handler, checkpoint: Path) -> DataStreamWriter:
    return frame.writeStream.foreachBatch(handler).option("checkpointLocation", str(checkpoint))


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """A query for a while, which must not fail."""
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()
    assert query.exception() is None


def drain(site: SparkSite, group_id: str, topic: str, *writers: DataStreamWriter) -> None:
    """Run queries until every record of the topic is finished."""
    if not writers:
        site.until(lambda: site.is_drained(group_id, topic), f"group {group_id} is done")
        return
    with running(writers[0]):
        drain(site, group_id, topic, *writers[1:])


def everything(partition_count: int, record_count: int) -> list[OffsetKey]:
    return [(partition, offset) for partition in range(partition_count) for offset in range(record_count)]


def offsets(site: SparkSite, group_id: str, *causes: Cause) -> list[int]:
    entries = [entry for row in site.rows(group_id) for entry in row.transitions if entry.cause in causes]
    return sorted(offset for e in entries for offset in range(e.first_offset, e.last_offset + 1))


def leaves(site: SparkSite, group_id: str) -> int:
    """How often members said that they leave."""
    return sum(beat.body["member_epoch"] == -1 for beat in site.requests(group_id, ApiKey.SHARE_GROUP_HEARTBEAT))


@pytest.fixture(scope="module", autouse=True)
def verified(site: SparkSite) -> Iterator[None]:
    yield
    assert verify(site.rows(), BROKER).findings == []


@pytest.mark.long("many micro-batches into a Delta table")
def test_a_query_writes_each_record_once_to_a_delta_table(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=300), site.new_group()
    frame = records(site, group_id, topic, max_poll_records="200")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>,delivery_count:smallint>"
    )
    sink, checkpoint = str(tmp_path / "sink"), str(tmp_path / "checkpoint")
    drain(
        site,
        group_id,
        topic,
        frame.writeStream.format("delta").option("checkpointLocation", checkpoint).option("path", sink),
    )
    rows = site.spark.read.format("delta").load(sink).select("partition", "offset", "delivery_count").collect()
    assert sorted((row.partition, row.offset) for row in rows) == everything(2, 300)
    assert {row.delivery_count for row in rows} == {1}
    site.until(lambda: leaves(site, group_id) == 1, "the member of the stopped query leaves")


def test_two_queries_of_a_group_share_its_records(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=100), site.new_group()
    seen = [Seen(), Seen()]
    frames = [records(site, group_id, topic, max_poll_records="20", client_id=f"query-{i}") for i in range(2)]
    writers = [written(frame, seen[i], tmp_path / f"checkpoint-{i}") for i, frame in enumerate(frames)]
    drain(site, group_id, topic, *writers)
    assert sorted(seen[0].places + seen[1].places) == everything(2, 100)


def test_a_query_that_failed_in_a_batch_reads_exactly_that_batch_again(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=50), site.new_group()
    before, after = Seen(), Seen()

    def fail(batch: DataFrame, batch_id: int) -> None:
        before(batch, batch_id)
        if before.batches[batch_id]:
            raise ValueError("not this one")

    frame = records(site, group_id, topic, max_poll_records="20")
    query = written(frame, fail, tmp_path / "checkpoint").start()
    with pytest.raises(StreamingQueryException, match="not this one"):
        query.awaitTermination()
    drain(site, group_id, topic, written(frame, after, tmp_path / "checkpoint"))
    failed = max(before.batches)
    assert after.batches[failed] == before.batches[failed]
    assert after.places == everything(2, 50)
    assert offsets(site, group_id, Cause.LOCK_TIMEOUT, Cause.SESSION_CLOSE, Cause.RELEASE) == []


@pytest.mark.long("locks end by time")
def test_a_query_whose_locks_ended_while_it_was_down_goes_on(site: SparkSite, tmp_path: Path) -> None:
    topic = site.new_topic(record_count=30)
    group_id = site.new_group(share_record_lock_duration_ms="5000")
    seen = Seen()

    def fail(batch: DataFrame, batch_id: int) -> None:
        if not batch.isEmpty():
            raise ValueError("not this one")

    frame = records(site, group_id, topic, max_poll_records="30")
    query = written(frame, fail, tmp_path / "checkpoint").start()
    with pytest.raises(StreamingQueryException, match="not this one"):
        query.awaitTermination()
    site.until(lambda: set(offsets(site, group_id, Cause.LOCK_TIMEOUT)) == set(range(30)), "its locks end")
    drain(site, group_id, topic, written(frame, seen, tmp_path / "checkpoint"))
    counts = [count for batch in seen.batches.values() for count in batch.values()]
    assert counts.count(1) == 30, "the batch of the checkpoint is read once more"
    assert offsets(site, group_id, Cause.ACCEPT) == list(range(30))


def test_records_are_acknowledged_one_by_one(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=20), site.new_group()
    seen = Seen()

    def judge(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        verdict = F.expr(
            "CASE WHEN offset % 5 = 0 THEN 'reject' WHEN offset % 5 = 1 AND delivery_count = 1 THEN 'release' "
            "ELSE 'accept' END"
        )
        acknowledge(batch.where("offset < 15").withColumn("acknowledge_type", verdict))
        acknowledge(batch.where("offset BETWEEN 15 AND 18"), "accept")

    frame = records(site, group_id, topic, share_acknowledgement_mode="explicit")
    with running(written(frame, judge, tmp_path / "checkpoint")):
        redelivered = {(0, offset): 2 for offset in (1, 6, 11, 19)}
        site.until(
            lambda: redelivered.items() <= merged(seen).items(), "what was released or not mentioned comes again"
        )
        site.until(lambda: offsets(site, group_id, Cause.REJECT) == [0, 5, 10], "rejections")
    released = offsets(site, group_id, Cause.RELEASE)
    assert [offset for offset in released if offset != 19] == [1, 6, 11]
    assert set(offsets(site, group_id, Cause.ACCEPT)) >= {2, 3, 4, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18}
    assert 19 in released


def merged(seen: Seen) -> dict[OffsetKey, int]:
    """The latest delivery count of each record."""
    return {key: count for batch in dict(seen.batches).values() for key, count in batch.items() if count == 2}


@pytest.mark.long("a redelivery backoff of seconds")
def test_released_records_stay_away_for_their_delay(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=6), site.new_group()

    def judge(batch: DataFrame, batch_id: int) -> None:
        delay = F.expr("CASE WHEN offset = 1 THEN 5000 WHEN offset = 2 THEN 0 END")
        acknowledged = batch.where("delivery_count = 1").withColumn("redelivery_delay_ms", delay)
        acknowledge(acknowledged.where("offset <= 3"), "release")
        acknowledge(acknowledged.where("offset = 4"), "release", redelivery_delay_ms=7_000)
        acknowledge(acknowledged.where("offset = 5"), "accept")
        acknowledge(batch.where("delivery_count > 1"), "accept")

    frame = records(site, group_id, topic, share_acknowledgement_mode="explicit")
    drain(site, group_id, topic, written(frame, judge, tmp_path / "checkpoint"))
    released = [entry for row in site.rows(group_id) for entry in row.transitions if entry.cause is Cause.RELEASE]
    assert [(e.first_offset, e.last_offset, e.deadline_ms and e.deadline_ms - e.time_ms) for e in released] == [
        (0, 0, 0),
        (1, 1, 5_000),
        (2, 2, 0),
        (3, 3, 0),
        (4, 4, 7_000),
    ]


def test_mistakes_in_acknowledgements_are_raised_where_they_are_made(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group()
    errors: list[str] = []

    def try_it(batch: DataFrame, batch_id: int) -> None:
        attempts: tuple[Callable[[], object], ...] = (
            lambda: acknowledge(batch.drop("acquisition"), "accept"),
            lambda: acknowledge(batch.drop("offset"), "accept"),
            lambda: acknowledge(batch, "accepted"),
            lambda: acknowledge(batch, "accept", redelivery_delay_ms=5),
            lambda: acknowledge(batch, "release", redelivery_delay_ms=604_800_001),
            lambda: acknowledge(batch.withColumn("redelivery_delay_ms", F.lit("1 h")), "release"),
            lambda: acknowledge(batch.withColumn("acquisition", F.lit(str(tmp_path / "gone"))), "accept"),
            lambda: acknowledge(batch.withColumn("offset", F.lit(1)), "reject"),
            lambda: acknowledge(batch.unionByName(batch.withColumn("offset", F.lit(77))), "reject"),
            lambda: acknowledge(batch.withColumn("topic", F.lit("elsewhere")), "reject"),
            lambda: acknowledge(batch.withColumn("partition", F.lit(1)), "reject"),
        )
        for attempt in attempts:
            with pytest.raises(InvalidRequestError) as caught:
                attempt()
            errors.append(str(caught.value))
        acknowledge(batch.withColumn("acquisition", F.lit("")), "reject")
        acknowledge(batch, "accept")

    frame = records(site, group_id, topic, share_acknowledgement_mode="explicit")

    def handle(batch: DataFrame, batch_id: int) -> None:
        if not batch.isEmpty():
            try_it(batch, batch_id)

    drain(site, group_id, topic, written(frame, handle, tmp_path / "checkpoint"))
    assert offsets(site, group_id, Cause.REJECT) == [], (
        "a batch that was begun with implicit acknowledgement is accepted"
    )
    problems = (
        "lack the column acquisition",
        "lack the column offset",
        "is not one of accept",
        "redelivery_delay_ms is 5 where acknowledge_type is accept",
        "redelivery_delay_ms is 604800001 where acknowledge_type is release",
        "column redelivery_delay_ms of the acknowledgements is string",
        "is not being executed",
        f"Offset 1 of {topic}-0 is not in the batch",
        f"Offset 77 of {topic}-0 is not in the batch",
        "Offset 0 of elsewhere-0 is not in the batch",
        f"Offset 0 of {topic}-1 is not in the batch",
    )
    assert [problem in text for problem, text in zip(problems, errors, strict=True)] == [True] * len(problems)


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark before 4.2 makes one batch")
def test_a_query_for_what_is_available_now_ends(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=50), site.new_group()
    seen = Seen()

    def run() -> None:
        frame = records(site, group_id, topic, max_poll_records="40")
        query = written(frame, seen, tmp_path / "checkpoint").trigger(availableNow=True).start()
        assert query.awaitTermination(round(DEADLINE_S))

    run()
    assert seen.places == everything(2, 50)
    assert site.is_drained(group_id, topic), "the last batch is acknowledged, too"
    site.produce(topic, 0, 10)
    run()
    assert len(seen.places) == 110


@pytest.mark.skipif(HAS_READ_LIMITS, reason="Spark 4.2 makes as many batches as it takes")
def test_a_query_for_what_is_available_now_is_one_batch_before_spark_4_2(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=50), site.new_group(share_record_lock_duration_ms="60000")
    seen = Seen()
    # The third run only acknowledges the batch of the second.
    for count in (40, 50, 50):
        frame = records(site, group_id, topic, max_poll_records="40", share_acquire_mode="record_limit")
        query = written(frame, seen, tmp_path / "checkpoint").trigger(availableNow=True).start()
        assert query.awaitTermination(round(DEADLINE_S))
        assert seen.places == everything(1, count)
    site.until(lambda: site.is_drained(group_id, topic), "the last batch is acknowledged, too")


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark before 4.2 makes one batch")
@pytest.mark.long("two queries that end when nothing is left")
def test_writes_under_the_id_of_the_query_survive_the_loss_of_its_checkpoint(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=20), site.new_group()
    sink = str(tmp_path / "sink")

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        transaction = {"txnAppId": query_id, "txnVersion": str(batch_id)}
        # As when the batch is executed again.
        for _ in range(2):
            batch.select("offset").write.format("delta").mode("append").options(**transaction).save(sink)

    def run(checkpoint: Path) -> None:
        frame = records(site, group_id, topic, max_poll_records="10", share_acquire_mode="record_limit")
        query = written(frame, write, checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(round(DEADLINE_S))

    run(tmp_path / "checkpoint")
    site.produce(topic, 0, 40)
    shutil.rmtree(tmp_path / "checkpoint")
    run(tmp_path / "checkpoint")
    rows = site.spark.read.format("delta").load(sink).collect()
    assert sorted(row.offset for row in rows) == list(range(60))


def test_a_union_of_a_stream_with_itself_is_one_member(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=20), site.new_group()
    seen: list[OffsetKey] = []

    def collect(batch: DataFrame, batch_id: int) -> None:
        seen.extend((row.partition, row.offset) for row in batch.collect())

    frame = records(site, group_id, topic)
    union = frame.union(frame.where("partition = 1"))
    query = written(union, collect, tmp_path / "checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(round(DEADLINE_S))
    assert sorted(seen) == sorted([*everything(2, 20), *((1, offset) for offset in range(20))])
    site.until(lambda: leaves(site, group_id) == 1, "the member leaves")
    assert site.is_drained(group_id, topic)


@pytest.mark.long("two members join and leave")
def test_a_union_of_two_streams_of_a_group_is_two_members(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id, seen = site.new_topic(partition_count=2, record_count=20), site.new_group(), Seen()
    frames = [records(site, group_id, topic) for _ in range(2)]
    query = written(frames[0].union(frames[1]), seen, tmp_path / "checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(round(DEADLINE_S))
    assert seen.places == everything(2, 20)
    site.until(lambda: leaves(site, group_id) == 2, "both members leave")
    assert site.is_drained(group_id, topic)


@pytest.mark.long("waits for the process of an earlier query")
def test_a_join_of_a_stream_with_itself_is_refused_before_it_acquires_records(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id, seen = site.new_topic(record_count=20), site.new_group(), Seen()
    frame = records(site, group_id, topic)
    joined = frame.join(frame.select("partition", "offset"), ["partition", "offset"])
    query = written(joined, seen, tmp_path / "checkpoint").start()
    with pytest.raises(StreamingQueryException, match="Join the batch with itself in foreachBatch"):
        query.awaitTermination(round(DEADLINE_S))
    assert seen.batches == {}
    assert site.requests(group_id, ApiKey.SHARE_FETCH) == []


@pytest.mark.long("waits for the process of an earlier query")
def test_a_second_query_of_one_load_is_refused_until_the_first_ends(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id, seen = site.new_topic(record_count=20), site.new_group(), [Seen(), Seen()]
    frame = records(site, group_id, topic)
    first, second = (written(frame, seen[number], tmp_path / f"checkpoint-{number}") for number in range(2))
    with running(first):
        drain(site, group_id, topic)
        with pytest.raises(StreamingQueryException, match=r"call load\(\) for each query"):
            second.start().awaitTermination(round(DEADLINE_S))
        site.produce(topic, 0, 20)
        drain(site, group_id, topic)
    assert len(seen[0].places) == 40
    assert seen[1].batches == {}
    site.produce(topic, 0, 20)
    drain(site, group_id, topic, second)
    assert len(seen[1].places) == 20


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark before 4.2 does not tell a source of its trigger")
def test_a_query_with_one_batch_is_refused_before_it_acquires_records(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=10), site.new_group()
    for _ in range(2):
        query = written(records(site, group_id, topic), Seen(), tmp_path / "checkpoint").trigger(once=True).start()
        with pytest.raises(StreamingQueryException, match=r"trigger\(once=True\).*Use availableNow=True"):
            query.awaitTermination(round(DEADLINE_S))
    assert offsets(site, group_id, Cause.ACQUIRE) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_poll_records": "0"}, "must be at least 1"),
        ({"startingOffsets": "earliest"}, "share.auto.offset.reset"),
        ({"subscribes": "x"}, "Did you mean subscribe"),
    ],
)
def test_wrong_options_are_refused_when_the_source_is_loaded(
    site: SparkSite, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AnalysisException, match=problem):
        records(site, "group", "topic", **options)
