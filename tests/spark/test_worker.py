"""The Spark worker: records as DataFrames, acknowledgements from DataFrames; one processor for all tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from chispa.schema_comparer import assert_schema_equality
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import ConfigurationError
from sharegroup.protocol.rows import TransitionEntry
from sharegroup.spark import worker, worker_end
from sharegroup.spark.worker import Handler, process
from tests.spark.spark_site import SparkSite

Place = tuple[int, int]
"""Partition and offset."""


class Seen:
    """Handles records by remembering how often each was delivered."""

    def __init__(self) -> None:
        self.delivery_counts: dict[Place, list[int]] = {}
        self.calls = 0

    def __call__(self, records: DataFrame) -> DataFrame | None:
        for row in records.select("partition", "offset", "delivery_count").collect():
            self.delivery_counts.setdefault((row.partition, row.offset), []).append(row.delivery_count)
        self.calls += 1
        return self.answer(records)

    def answer(self, records: DataFrame) -> DataFrame | None:
        return None


@contextmanager
def working(site: SparkSite, group_id: str, topic: str, handler: Handler, **config: object) -> Iterator[None]:
    """A worker for a while; it is stopped at the end, and must end by itself then."""
    stop = threading.Event()
    failures: list[BaseException] = []
    wanted = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic, "client.id": group_id}

    def work() -> None:
        try:
            process(site.spark, {**wanted, **config}, handler, stop)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name=f"work-{group_id}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert not failures


def drain(site: SparkSite, group_id: str, topic: str, handler: Handler, **config: object) -> None:
    """Work until every record of the topic is finished."""
    with working(site, group_id, topic, handler, **config):
        site.until(lambda: site.is_drained(group_id, topic), f"group {group_id} is done")


def transitions(site: SparkSite, group_id: str, *causes: Cause) -> list[TransitionEntry]:
    return [entry for row in site.rows(group_id) for entry in row.transitions if entry.cause in causes]


def offsets(entries: list[TransitionEntry]) -> list[int]:
    return sorted(offset for e in entries for offset in range(e.first_offset, e.last_offset + 1))


def judged(records: DataFrame, acknowledge_type: str) -> DataFrame:
    return records.select("topic", "partition", "offset", F.lit(acknowledge_type).alias("acknowledge_type"))


def test_nothing_returned_accepts_everything(site: SparkSite) -> None:
    topic = site.new_topic(partition_count=2, record_count=50)
    group_id = site.new_group()
    seen = Seen()
    drain(site, group_id, topic, seen, **{"max.poll.records": 20})
    assert seen.delivery_counts == {(partition, offset): [1] for partition in range(2) for offset in range(50)}
    assert offsets(transitions(site, group_id, Cause.ACCEPT)) == sorted([*range(50), *range(50)])
    assert seen.calls >= 5


def test_records_come_with_all_that_the_log_has_of_them(site: SparkSite) -> None:
    topic = site.new_topic(record_count=3)
    schemas: list[StructType] = []
    rows: list[object] = []

    def look(records: DataFrame) -> None:
        schemas.append(records.schema)
        rows.extend(records.select("topic", F.col("value").cast("string"), F.unix_millis("timestamp")).collect())

    drain(site, site.new_group(), topic, look)
    expected = StructType.fromDDL(
        "topic string, partition int, offset bigint, delivery_count smallint, key binary, value binary, "
        "headers array<struct<key: string, value: binary>>, timestamp timestamp"
    )
    assert_schema_equality(schemas[0], expected)
    assert [tuple(row) for row in rows] == [
        (topic, record.value.decode(), record.timestamp_ms)
        for record in site.log.read(topic, 0, 0, 3)
        if record.value is not None
    ]


def test_acknowledgements_say_what_is_not_accepted(site: SparkSite) -> None:
    class Judge(Seen):
        def answer(self, records: DataFrame) -> DataFrame:
            rejected = records.where("offset % 5 = 0")
            released = records.where("offset % 5 = 1 AND delivery_count = 1")
            return judged(rejected, "reject").unionByName(judged(released, "release"))

    topic = site.new_topic(record_count=20)
    group_id = site.new_group()
    seen = Judge()
    drain(site, group_id, topic, seen)
    assert {offset: counts for (_, offset), counts in seen.delivery_counts.items()} == {
        offset: [1, 2] if offset % 5 == 1 else [1] for offset in range(20)
    }
    assert offsets(transitions(site, group_id, Cause.REJECT)) == [0, 5, 10, 15]
    assert offsets(transitions(site, group_id, Cause.RELEASE)) == [1, 6, 11, 16]
    assert offsets(transitions(site, group_id, Cause.ACCEPT)) == [o for o in range(20) if o % 5]


def raises(records: DataFrame) -> DataFrame:
    raise ValueError("cannot do it")


def fails_in_spark(records: DataFrame) -> DataFrame:
    return judged(records, "release").where(F.raise_error("cannot do it").isNull())


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (raises, "cannot do it"),
        (fails_in_spark, "cannot do it"),
        (lambda records: judged(records, "release").drop("offset"), "lack the column offset"),
        (lambda records: judged(records, "relase"), "'relase' is not one of accept, release, reject"),
        (lambda records: judged(records, "reject").withColumn("offset", F.lit(77)), "offset 77 of .* not given"),
    ],
    ids=["raises", "fails in Spark", "missing column", "unknown type", "record not given"],
)
def test_a_handler_that_fails_releases_its_range(
    site: SparkSite, caplog: pytest.LogCaptureFixture, wrong: Handler, complaint: str
) -> None:
    class FailsAtFirst(Seen):
        def answer(self, records: DataFrame) -> DataFrame | None:
            return wrong(records) if self.calls == 1 else None

    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    seen = FailsAtFirst()
    with caplog.at_level(logging.ERROR, "sharegroup.spark.worker"):
        drain(site, group_id, topic, seen)
    assert seen.delivery_counts == {(0, offset): [1, 2] for offset in range(5)}
    (record,) = [r for r in caplog.records if r.name == "sharegroup.spark.worker" and r.levelno == logging.ERROR]
    assert str(record.msg).startswith(f"event=handler_failed group={group_id} client={group_id} ")
    caplog.clear()
    assert record.exc_info is not None
    with pytest.raises(BaseException, match=complaint):
        raise record.exc_info[1] or AssertionError


def test_several_ranges_are_in_the_air_at_once(site: SparkSite) -> None:
    both = threading.Barrier(2)

    class Meets(Seen):
        def answer(self, records: DataFrame) -> None:
            both.wait(60)

    topic = site.new_topic(record_count=20)
    seen = Meets()
    drain(site, site.new_group(), topic, seen, **{"max.poll.records": 10, "worker.ranges.in.flight": 2})
    assert seen.calls == 2


def test_stop_finishes_what_was_begun_and_gives_back_the_rest_unread(site: SparkSite) -> None:
    topic = site.new_topic(record_count=30)
    group_id = site.new_group()
    begun, go_on = threading.Event(), threading.Event()

    class Waits(Seen):
        def answer(self, records: DataFrame) -> None:
            begun.set()
            go_on.wait(60)

    seen = Waits()
    config = {"max.poll.records": 10, "worker.ranges.in.flight": 1, "share.acquire.mode": "record_limit"}
    with working(site, group_id, topic, seen, **config):
        assert begun.wait(60)
        site.until(
            lambda: len(offsets(transitions(site, group_id, Cause.ACQUIRE))) == 20, "the next range waits to be taken"
        )
        threading.Timer(0.5, go_on.set).start()
    found = site.share_partition(group_id)
    assert found is not None
    assert found.share_partition.start_offset == 10
    runs = [(run.first_offset, run.last_offset, run.state, run.delivery_count) for run in found.share_partition.runs]
    assert runs == [(10, 19, RecordState.AVAILABLE, 0)]
    assert list(seen.delivery_counts) == [(0, offset) for offset in range(10)]


def test_a_handler_that_does_not_end_keeps_nobody_waiting_and_its_records_are_released(
    site: SparkSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_HANDLER_TIMEOUT_S", 1)
    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    begun, go_on = threading.Event(), threading.Event()

    class Hangs(Seen):
        def answer(self, records: DataFrame) -> None:
            begun.set()
            go_on.wait()

    try:
        with working(site, group_id, topic, Hangs()):
            assert begun.wait(60)
        released = site.until(lambda: transitions(site, group_id, Cause.SESSION_CLOSE), "its records are released")
    finally:
        go_on.set()
    assert offsets(released) == list(range(5))
    assert {entry.delivery_count for entry in released} == {1}


def test_a_handler_that_outlasts_its_locks_does_not_keep_its_records(site: SparkSite) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group(share_record_lock_duration_ms="1000")
    delivered_again = threading.Event()

    class OutlastsAtFirst(Seen):
        def answer(self, records: DataFrame) -> None:
            if len(self.delivery_counts[0, 0]) == 1:
                assert delivered_again.wait(60)
            else:
                delivered_again.set()

    seen = OutlastsAtFirst()
    drain(site, group_id, topic, seen, **{"worker.ranges.in.flight": 2})
    assert seen.delivery_counts == {(0, offset): [1, 2] for offset in range(5)}
    assert offsets(transitions(site, group_id, Cause.LOCK_TIMEOUT)) == list(range(5))


def test_once_ends_when_nothing_is_left(site: SparkSite) -> None:
    topic = site.new_topic(partition_count=2, record_count=50)
    group_id = site.new_group()

    class ReleasesAtFirst(Seen):
        def answer(self, records: DataFrame) -> DataFrame:
            return judged(records.where("delivery_count = 1"), "release")

    config = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic, "max.poll.records": 20}
    for handler in (ReleasesAtFirst(), Seen()):
        process(site.spark, config, handler, once_timeout_s=300)
        assert site.is_drained(group_id, topic)
    assert handler.calls == 0, "the second run finds nothing"


def test_once_ends_when_the_topic_does_not_exist(site: SparkSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_end, "_UNASSIGNED_S", 1.0)
    seen = Seen()
    config = {"log.path": str(site.log_path), "group.id": site.new_group(), "topics": "nowhere"}
    process(site.spark, config, seen, once_timeout_s=300)
    assert seen.calls == 0


def test_records_that_are_gone_are_gaps(site: SparkSite) -> None:
    topic = site.new_topic(record_count=10)
    group_id = site.new_group()

    class Deletes(Seen):
        def answer(self, records: DataFrame) -> None:
            if self.calls == 1:
                site.until(lambda: 3 in offsets(transitions(site, group_id, Cause.ACQUIRE)), "the next range is held")
                site.log.delete_records(topic, 0, 4)

    seen = Deletes()
    config = {"max.poll.records": 2, "share.acquire.mode": "record_limit", "worker.ranges.in.flight": 1}
    drain(site, group_id, topic, seen, **config)
    assert sorted(seen.delivery_counts) == [(0, offset) for offset in (0, 1, *range(4, 10))]
    assert offsets(transitions(site, group_id, Cause.ACCEPT)) == [0, 1, *range(4, 10)]
    gaps = transitions(site, group_id, Cause.GAP)
    assert offsets(gaps) == [2, 3]
    assert {gap.reason for gap in gaps} == {"deleted: the log starts at offset 4"}


def test_a_topic_that_is_created_again_while_its_records_are_held(site: SparkSite) -> None:
    topic = site.new_topic(record_count=5)
    old_id = site.log.describe_topic(topic).topic_id
    group_id = site.new_group()

    class Replaces(Seen):
        def answer(self, records: DataFrame) -> None:
            if self.calls == 1:
                site.log.delete_topic(topic)
                site.log.create_topic(topic, 1)
                site.produce(topic, 0, 3)

    seen = Replaces()
    # One range at a time: the next one of the old topic is not read before the topic is replaced.
    config = {"max.poll.records": 2, "share.acquire.mode": "record_limit", "worker.ranges.in.flight": 1}
    with working(site, group_id, topic, seen, **config):

        def is_done() -> bool:
            found = site.folded(group_id).partitions
            return any(key[0] != old_id and folded.share_partition.start_offset == 3 for key, folded in found.items())

        site.until(is_done, "the records of the new topic are finished")
    assert seen.delivery_counts[0, 2] == [1]


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "group.id"),
        ({"group.id": "g", "topics": "t", "max.poll.recs": 1}, "Unknown configuration max.poll.recs"),
        ({"group.id": "g", "topics": "t", "max.poll.records": 0}, "max.poll.records"),
        ({"group.id": "g", "topics": "t", "log.path": ""}, "log"),
    ],
)
def test_a_configuration_that_cannot_work(site: SparkSite, config: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        process(site.spark, {"log.path": str(site.log_path), **config}, Seen())
