"""The Spark worker: records as DataFrames, acknowledgements from DataFrames; one processor for all tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import pytest
from chispa.schema_comparer import assert_schema_equality
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sharegroup.actor import share_requests
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import ConfigurationError, GroupQuarantinedError, HandlerFailedError
from sharegroup.protocol.rows import TransitionEntry
from sharegroup.spark import stop_condition, worker_loop
from sharegroup.spark.worker import Handler, process
from tests.spark.spark_site import SparkSite, drain, working
from tests.support.eventually import DEADLINE_S

OffsetKey = tuple[int, int]
"""Partition and offset."""


class Seen:
    """Handles records by remembering how often each was delivered."""

    def __init__(self) -> None:
        self.delivery_counts: dict[OffsetKey, list[int]] = {}
        self.calls = 0

    def __call__(self, records: DataFrame) -> DataFrame | None:
        for row in records.select("partition", "offset", "delivery_count").collect():
            self.delivery_counts.setdefault((row.partition, row.offset), []).append(row.delivery_count)
        self.calls += 1
        return self.handle(records)

    def handle(self, records: DataFrame) -> DataFrame | None:
        return None


def transitions(site: SparkSite, group_id: str, *causes: Cause) -> list[TransitionEntry]:
    return [entry for row in site.rows(group_id) for entry in row.transitions if entry.cause in causes]


def offsets(entries: list[TransitionEntry]) -> list[int]:
    return sorted(offset for e in entries for offset in range(e.first_offset, e.last_offset + 1))


def acknowledged(records: DataFrame, acknowledge_type: str) -> DataFrame:
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
    rows: list[Row] = []

    def collect(records: DataFrame) -> None:
        schemas.append(records.schema)
        rows.extend(records.select("topic", F.col("value").cast("string"), F.unix_millis("timestamp")).collect())

    drain(site, site.new_group(), topic, collect)
    expected = StructType.fromDDL(
        "topic string, partition int, offset bigint, delivery_count smallint, key binary, value binary, "
        "headers array<struct<key: string, value: binary>>, timestamp timestamp"
    )
    assert isinstance(expected, StructType)
    assert_schema_equality(schemas[0], expected)
    assert [tuple(row) for row in rows] == [
        (topic, record.value.decode(), record.timestamp_ms)
        for record in site.log.read(topic, 0, 0, 3)
        if record.value is not None
    ]


def test_acknowledgements_say_what_is_not_accepted(site: SparkSite) -> None:
    class Judge(Seen):
        def handle(self, records: DataFrame) -> DataFrame:
            rejected = records.where("offset % 5 = 0")
            released = records.where("offset % 5 = 1 AND delivery_count = 1")
            return acknowledged(rejected, "reject").unionByName(acknowledged(released, "release"))

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


def without_columns(records: DataFrame) -> DataFrame:
    return records.sparkSession.createDataFrame([{}], StructType())


def fails_in_spark(records: DataFrame) -> DataFrame:
    return acknowledged(records, "release").where(F.raise_error("cannot do it").isNull())


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (raises, "cannot do it"),
        (fails_in_spark, "cannot do it"),
        (lambda records: acknowledged(records, "release").drop("offset"), "lack the column offset"),
        (lambda records: acknowledged(records, "relase"), "'relase' is not one of accept, release, reject, renew"),
        (
            lambda records: acknowledged(records, "reject").withColumn("offset", F.lit(77)),
            "offset 77 of .* did not receive",
        ),
        (lambda records: records.collect(), "object of type builtins.list"),
        (lambda records: True, "object of type builtins.bool"),
        (lambda records: records.toPandas(), "object of type pandas.* Return a DataFrame of Spark"),
        (without_columns, "lack the column topic; they have none"),
        (lambda: None, "positional argument"),
    ],
    ids=[
        "raises",
        "fails in Spark",
        "missing column",
        "unknown type",
        "record not received",
        "a list",
        "True",
        "a pandas frame",
        "no columns",
        "wrong signature",
    ],
)
def test_a_handler_that_fails_is_tried_again_on_halves(
    site: SparkSite, caplog: pytest.LogCaptureFixture, wrong: Handler, complaint: str
) -> None:
    class FailsAtFirst(Seen):
        def handle(self, records: DataFrame) -> DataFrame | None:
            return wrong(records) if self.calls == 1 else None

    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    seen = FailsAtFirst()
    with caplog.at_level(logging.ERROR, "sharegroup.spark.worker"):
        drain(site, group_id, topic, seen)
    assert seen.delivery_counts == {(0, offset): [1, 1] for offset in range(5)}
    assert transitions(site, group_id, Cause.RELEASE) == []
    (record,) = [r for r in caplog.records if r.name == "sharegroup.spark.worker" and r.levelno == logging.ERROR]
    assert str(record.msg).startswith(f"event=handler_failed group={group_id} client={group_id} ")
    caplog.clear()
    assert record.exc_info is not None
    with pytest.raises(BaseException, match=complaint):
        raise record.exc_info[1] or AssertionError


class FailsWith(Seen):
    """Cannot process some records in their first delivery: it fails whenever it receives one of them."""

    def __init__(self, *bad: int) -> None:
        super().__init__()
        self.bad = bad

    def handle(self, records: DataFrame) -> None:
        if records.where(F.col("offset").isin(*self.bad) & (F.col("delivery_count") == 1)).count():
            raise ValueError("cannot do it")


@pytest.mark.long("a Spark job for each of many parts")
def test_only_the_records_that_the_handler_cannot_process_are_released(site: SparkSite) -> None:
    topic = site.new_topic(record_count=20)
    group_id = site.new_group()
    seen = FailsWith(3)
    drain(site, group_id, topic, seen)
    assert offsets(transitions(site, group_id, Cause.RELEASE)) == [3]
    assert {offset: max(counts) for (_, offset), counts in seen.delivery_counts.items()} == {
        offset: 2 if offset == 3 else 1 for offset in range(20)
    }


ONE_AFTER_THE_OTHER = {"max.poll.records": 5, "share.acquire.mode": "record_limit"}


@pytest.mark.long("delays of records with which the handler fails")
def test_bad_records_wait_with_a_delay_until_one_behind_them_is_accepted(
    site: SparkSite, caplog: pytest.LogCaptureFixture
) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    seen = FailsWith(*range(5))
    with (
        caplog.at_level(logging.INFO, "sharegroup.spark.worker"),
        working(site, group_id, topic, seen, **ONE_AFTER_THE_OTHER),
    ):
        delayed = site.until(lambda: transitions(site, group_id, Cause.UNREAD), "they are returned")
        assert (offsets(delayed), {entry.delivery_count for entry in delayed}) == (list(range(5)), {0})
        assert {entry.deadline_ms - entry.time_ms for entry in delayed} == {1_000}
        assert transitions(site, group_id, Cause.RELEASE) == []
        site.produce(topic, 0, 5)
        site.until(lambda: site.is_drained(group_id, topic), "all are finished")
    assert offsets(transitions(site, group_id, Cause.RELEASE)) == list(range(5))
    assert {counts[-1] for (_, offset), counts in seen.delivery_counts.items() if offset >= 5} == {1}
    names = [str(r.msg).split()[0] for r in caplog.records]
    assert names.count("event=handler_broken") == names.count("event=handler_recovered") == 1


def test_without_bisection_a_handler_that_fails_again_releases_its_range(site: SparkSite) -> None:
    topic = site.new_topic(record_count=10)
    group_id = site.new_group()
    seen = FailsWith(3)
    config = {"worker.bisect.on.error": "false", "worker.ranges.in.flight": 1}
    drain(site, group_id, topic, seen, **ONE_AFTER_THE_OTHER, **config)
    assert {offset: counts for (_, offset), counts in seen.delivery_counts.items()} == {
        offset: [1, 1, 2] if offset < 5 else [1] for offset in range(10)
    }


@pytest.mark.long("delays of records with which the handler fails")
@pytest.mark.parametrize(
    "mistake",
    [
        lambda records: raises(records),
        lambda records: [],
        lambda records: acknowledged(records, "relase"),
        lambda: None,
    ],
    ids=["the sink is away", "a list", "unknown type", "wrong signature"],
)
def test_a_handler_that_always_fails_uses_up_no_delivery_and_goes_on_when_it_is_mended(
    site: SparkSite, caplog: pytest.LogCaptureFixture, mistake: Handler
) -> None:
    is_mended = threading.Event()

    def handle(records: DataFrame) -> DataFrame | None:
        return None if is_mended.is_set() else mistake(records)

    topic = site.new_topic(record_count=10)
    group_id = site.new_group()
    with (
        caplog.at_level(logging.ERROR, "sharegroup.spark.worker"),
        working(site, group_id, topic, handle, **ONE_AFTER_THE_OTHER),
    ):
        site.until(
            lambda: len(offsets(transitions(site, group_id, Cause.UNREAD))) > 10, "they are returned, some again"
        )
        is_mended.set()
        site.until(lambda: site.is_drained(group_id, topic), "all are finished")
    assert transitions(site, group_id, Cause.RELEASE) == []
    assert {entry.delivery_count for entry in transitions(site, group_id, Cause.ACCEPT)} == {1}
    assert [str(r.msg).split()[0] for r in caplog.records].count("event=handler_broken") == 1


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [(raises, "cannot do it"), (lambda records: True, "builtins.bool"), (lambda: None, "positional argument")],
    ids=["raises", "True", "wrong signature"],
)
def test_once_ends_with_the_error_of_a_handler_that_accepts_nothing(
    site: SparkSite, mistake: Handler, complaint: str
) -> None:
    topic = site.new_topic(record_count=50)
    group_id = site.new_group()
    config = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic}
    with pytest.raises(HandlerFailedError, match=complaint):
        process(site.spark, config, mistake, once_timeout_s=DEADLINE_S)
    led = site.share_partition(group_id)
    assert led is not None
    assert [(run.state, run.delivery_count) for run in led.share_partition.runs] == [(RecordState.AVAILABLE, 0)]


def test_once_ends_with_the_error_of_a_quarantined_group(site: SparkSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("nobody foresaw this")

    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    config = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic}
    with monkeypatch.context() as patched:
        patched.setattr(share_requests.ShareRequests, "fetch", fail)
        with pytest.raises(GroupQuarantinedError, match="nobody foresaw this"):
            process(site.spark, config, Seen(), once_timeout_s=DEADLINE_S)


def test_several_ranges_are_in_the_air_at_once(site: SparkSite) -> None:
    both = threading.Barrier(2)

    class Meets(Seen):
        def handle(self, records: DataFrame) -> None:
            both.wait(DEADLINE_S)

    topic = site.new_topic(record_count=20)
    seen = Meets()
    drain(site, site.new_group(), topic, seen, **{"max.poll.records": 10, "worker.ranges.in.flight": 2})
    assert seen.calls == 2


def test_stop_finishes_what_was_begun_and_gives_back_the_rest_unread(site: SparkSite) -> None:
    topic = site.new_topic(record_count=30)
    group_id = site.new_group()
    begun, go_on = threading.Event(), threading.Event()

    class Waits(Seen):
        def handle(self, records: DataFrame) -> None:
            begun.set()
            go_on.wait(DEADLINE_S)

    seen = Waits()
    config = {"max.poll.records": 10, "worker.ranges.in.flight": 1}
    with working(site, group_id, topic, seen, **config):
        assert begun.wait(DEADLINE_S)
        site.until(
            lambda: len(offsets(transitions(site, group_id, Cause.ACQUIRE))) == 20, "the next range waits to be taken"
        )
        threading.Timer(0.5, go_on.set).start()
    led = site.share_partition(group_id)
    assert led is not None
    assert led.share_partition.start_offset == 10
    runs = [(run.first_offset, run.last_offset, run.state, run.delivery_count) for run in led.share_partition.runs]
    assert runs == [(10, 19, RecordState.AVAILABLE, 0)]
    assert list(seen.delivery_counts) == [(0, offset) for offset in range(10)]


def test_locks_are_renewed_while_the_last_handler_ends(site: SparkSite) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group(share_record_lock_duration_ms="1500")
    begun, go_on = threading.Event(), threading.Event()

    class Waits(Seen):
        def handle(self, records: DataFrame) -> None:
            begun.set()
            go_on.wait(DEADLINE_S)

    def ends_after_two_renewals() -> None:
        before = len(transitions(site, group_id, Cause.RENEW))
        site.until(
            lambda: (
                len(transitions(site, group_id, Cause.RENEW)) > before + 1
                or transitions(site, group_id, Cause.LOCK_TIMEOUT)
            ),
            "the locks are renewed, or end",
        )
        go_on.set()

    with working(site, group_id, topic, Waits()):
        assert begun.wait(DEADLINE_S)
        watcher = threading.Timer(0.0, ends_after_two_renewals)
        watcher.start()
    watcher.join()
    assert transitions(site, group_id, Cause.LOCK_TIMEOUT) == []
    assert offsets(transitions(site, group_id, Cause.ACCEPT)) == list(range(5))


def test_a_handler_that_does_not_end_keeps_nobody_waiting_and_its_records_are_released(
    site: SparkSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_loop, "_HANDLER_TIMEOUT_S", 1)
    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    begun, go_on = threading.Event(), threading.Event()

    class Hangs(Seen):
        def handle(self, records: DataFrame) -> None:
            begun.set()
            go_on.wait()

    try:
        with working(site, group_id, topic, Hangs()):
            assert begun.wait(DEADLINE_S)
        released = site.until(lambda: transitions(site, group_id, Cause.SESSION_CLOSE), "its records are released")
    finally:
        go_on.set()
    assert offsets(released) == list(range(5))
    assert {entry.delivery_count for entry in released} == {1}


@pytest.mark.long("locks end by time, and are renewed before")
def test_locks_are_renewed_while_the_handler_works(site: SparkSite) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group(share_record_lock_duration_ms="6000")

    class OutlastsItsLocks(Seen):
        def handle(self, records: DataFrame) -> None:
            site.until(lambda: len(transitions(site, group_id, Cause.RENEW)) >= 2, "the locks are renewed again")

    seen = OutlastsItsLocks()
    drain(site, group_id, topic, seen)
    assert seen.delivery_counts == {(0, offset): [1] for offset in range(5)}
    assert transitions(site, group_id, Cause.LOCK_TIMEOUT) == []


@pytest.mark.long("renewals end by time")
def test_a_handler_that_takes_too_long_loses_its_records(site: SparkSite, caplog: pytest.LogCaptureFixture) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    delivered_again = threading.Event()

    class TakesTooLongAtFirst(Seen):
        def handle(self, records: DataFrame) -> None:
            if len(self.delivery_counts[0, 0]) == 1:
                assert delivered_again.wait(DEADLINE_S)
            else:
                delivered_again.set()

    seen = TakesTooLongAtFirst()
    config = {"worker.ranges.in.flight": 2, "worker.renew.max.ms": 5_000, "worker.bisect.on.error": "false"}
    with caplog.at_level(logging.WARNING, "sharegroup.spark.worker"):
        drain(site, group_id, topic, seen, **config)
    assert seen.delivery_counts == {(0, offset): [1, 2] for offset in range(5)}
    assert offsets(transitions(site, group_id, Cause.RELEASE)) == list(range(5))
    assert [str(r.msg).split()[0] for r in caplog.records].count("event=handler_cancelled") == 1


@pytest.mark.core
@pytest.mark.long("renewals end by time")
def test_the_spark_job_of_a_handler_that_takes_too_long_is_cancelled(site: SparkSite) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    ended: list[str] = []

    class SleepsInSparkAtFirst(Seen):
        def handle(self, records: DataFrame) -> None:
            if self.calls > 1:
                return
            for_ever_ms = 1_000 * int(2 * DEADLINE_S)
            try:
                records.select(F.expr(f"reflect('java.lang.Thread', 'sleep', {for_ever_ms}L)")).collect()
            except Exception as error:
                ended.append(str(error))
                raise

    seen = SleepsInSparkAtFirst()
    config = {"worker.ranges.in.flight": 2, "worker.renew.max.ms": 5_000, "worker.bisect.on.error": "false"}
    with working(site, group_id, topic, seen, **config):
        site.until(lambda: ended, "the job is cancelled")
        site.until(lambda: site.is_drained(group_id, topic), "the records come again")
    assert "cancel" in ended[0].lower()
    assert offsets(transitions(site, group_id, Cause.RELEASE)) == list(range(5))


def test_renewed_records_come_again_to_the_same_worker_in_the_same_delivery(site: SparkSite) -> None:
    class RenewsAtFirst(Seen):
        def handle(self, records: DataFrame) -> DataFrame | None:
            return acknowledged(records.where("offset = 2"), "renew") if self.calls == 1 else None

    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    seen = RenewsAtFirst()
    drain(site, group_id, topic, seen)
    assert seen.delivery_counts == {(0, offset): [1, 1] if offset == 2 else [1] for offset in range(5)}
    assert offsets(transitions(site, group_id, Cause.RENEW)) == [2]


@pytest.mark.long("locks end by time, and are renewed before")
def test_renewed_records_stay_locked_until_a_thread_is_free(site: SparkSite) -> None:
    topic = site.new_topic(record_count=10)
    group_id = site.new_group(share_record_lock_duration_ms="6000")

    class RenewsAtFirstThenIsBusy(Seen):
        def handle(self, records: DataFrame) -> DataFrame | None:
            if self.calls == 1:
                return acknowledged(records.where("offset = 2"), "renew")
            if self.calls == 2:
                site.until(
                    lambda: offsets(transitions(site, group_id, Cause.RENEW)).count(2) >= 4, "2 is renewed again"
                )
            return None

    seen = RenewsAtFirstThenIsBusy()
    config = {"max.poll.records": 5, "worker.ranges.in.flight": 1}
    drain(site, group_id, topic, seen, **config)
    assert seen.delivery_counts == {(0, offset): [1, 1] if offset == 2 else [1] for offset in range(10)}
    assert transitions(site, group_id, Cause.LOCK_TIMEOUT) == []


@pytest.mark.long("renewals end by time")
def test_renewed_records_that_wait_for_too_long_are_released(site: SparkSite, caplog: pytest.LogCaptureFixture) -> None:
    topic = site.new_topic(record_count=10)
    group_id = site.new_group()

    class RenewsAtFirstThenIsBusy(Seen):
        def handle(self, records: DataFrame) -> DataFrame | None:
            if self.calls == 1:
                return acknowledged(records.where("offset = 2"), "renew")
            if self.calls == 2:
                site.until(lambda: 2 in offsets(transitions(site, group_id, Cause.RELEASE)), "2 is released")
            return None

    seen = RenewsAtFirstThenIsBusy()
    config = {"max.poll.records": 5, "worker.ranges.in.flight": 1}
    with caplog.at_level(logging.WARNING, "sharegroup.spark.worker"):
        drain(
            site, group_id, topic, seen, **config, **{"worker.renew.max.ms": 5_000, "worker.bisect.on.error": "false"}
        )
    assert seen.delivery_counts[0, 2] == [1, 2]
    assert [str(r.msg).split()[0] for r in caplog.records].count("event=renewed_records_released") == 1


@pytest.mark.long("the end is certain after seconds only")
def test_once_ends_when_nothing_is_left(site: SparkSite) -> None:
    topic = site.new_topic(partition_count=2, record_count=50)
    group_id = site.new_group()

    class ReleasesAtFirst(Seen):
        def handle(self, records: DataFrame) -> DataFrame:
            return acknowledged(records.where("delivery_count = 1"), "release")

    config = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic, "max.poll.records": 20}
    for handler in (ReleasesAtFirst(), Seen()):
        process(site.spark, config, handler, once_timeout_s=DEADLINE_S)
        assert site.is_drained(group_id, topic)
    assert handler.calls == 0, "the second run finds nothing"


def test_once_ends_when_the_topic_does_not_exist(site: SparkSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_condition, "_UNASSIGNED_S", 1.0)
    seen = Seen()
    config = {"log.path": str(site.log_path), "group.id": site.new_group(), "topics": "nowhere"}
    process(site.spark, config, seen, once_timeout_s=DEADLINE_S)
    assert seen.calls == 0


def test_records_that_are_gone_are_gaps(site: SparkSite) -> None:
    topic = site.new_topic(record_count=10)
    group_id = site.new_group()

    class Deletes(Seen):
        def handle(self, records: DataFrame) -> None:
            if self.calls == 1:
                site.until(lambda: 3 in offsets(transitions(site, group_id, Cause.ACQUIRE)), "the next range is held")
                site.log.delete_records(topic, 0, 4)

    seen = Deletes()
    config = {"max.poll.records": 2, "worker.ranges.in.flight": 1}
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
        def handle(self, records: DataFrame) -> None:
            if self.calls == 1:
                site.log.delete_topic(topic)
                site.log.create_topic(topic, 1)
                site.produce(topic, 0, 3)

    seen = Replaces()
    # One range at a time: the next one of the old topic is not read before the topic is replaced.
    config = {"max.poll.records": 2, "share.acquire.mode": "record_limit", "worker.ranges.in.flight": 1}
    with working(site, group_id, topic, seen, **config):

        def is_done() -> bool:
            partitions = site.folded(group_id).partitions
            return any(
                key[0] != old_id and folded.share_partition.start_offset == 3 for key, folded in partitions.items()
            )

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
