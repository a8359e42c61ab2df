"""A worker with a sink: the result of each record is in the table once, and a record is accepted exactly if it is."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sharegroup.audit.verification.verify import verify
from sharegroup.client.group_member import GroupMember
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import ConfigurationError, HandlerFailedError, InvalidRequestError, SinkError
from sharegroup.protocol.rows import TransitionEntry
from sharegroup.spark.sink.open_sinks import open_sink
from sharegroup.spark.worker import SinkHandler, process
from tests.spark.spark_site import SparkSite, drain, working
from tests.support.eventually import DEADLINE_S
from tests.support.site import BROKER

OffsetKey = tuple[int, int]


@pytest.fixture
def table(site: SparkSite, tmp_path: Path) -> str:
    path = str(tmp_path / "results")
    site.spark.sql(f"CREATE TABLE delta.`{path}` (partition INT, offset BIGINT, size INT) USING delta")
    return path


def results(records: DataFrame) -> DataFrame:
    return records.select("partition", "offset", F.length("value").alias("size"))


def acknowledged(records: DataFrame, acknowledge_type: str) -> DataFrame:
    return records.select("topic", "partition", "offset", F.lit(acknowledge_type).alias("acknowledge_type"))


def new_group(site: SparkSite, **config: str) -> str:
    return site.new_group(share_exactly_once_enable="true", **config)


def written(site: SparkSite, table: str) -> Counter[OffsetKey]:
    rows = site.spark.sql(f"SELECT partition, offset FROM delta.`{table}`").collect()
    return Counter((row.partition, row.offset) for row in rows)


def accepted(site: SparkSite, group_id: str) -> Counter[OffsetKey]:
    return Counter(
        (row.partition, offset)
        for row in site.rows(group_id)
        for entry in row.transitions
        if entry.cause is Cause.ACCEPT
        for offset in offsets(entry)
    )


def offsets(entry: TransitionEntry) -> range:
    return range(entry.first_offset, entry.last_offset + 1)


def once(partition_count: int, record_count: int) -> Counter[OffsetKey]:
    return Counter((partition, offset) for partition in range(partition_count) for offset in range(record_count))


def test_each_result_is_written_once_and_its_record_accepted(site: SparkSite, table: str) -> None:
    topic = site.new_topic(partition_count=2, record_count=50)
    group_id = new_group(site)
    drain(site, group_id, topic, results, table, **{"max.poll.records": 20})
    assert written(site, table) == accepted(site, group_id) == once(2, 50)
    assert verify(site.rows(), BROKER).findings == []


def test_a_worker_with_a_sink_creates_its_group_with_it(site: SparkSite, table: str) -> None:
    topic = site.new_topic()
    group_id = site.new_name("group")
    with working(site, group_id, topic, results, table):
        site.until(lambda: site.folded(group_id).partitions, "the group has partitions")
        site.produce(topic, 0, 10)
        site.until(lambda: site.is_drained(group_id, topic), "the group is done")
    assert written(site, table) == accepted(site, group_id) == once(1, 10)


def test_a_group_without_it_is_refused_with_the_command(site: SparkSite, table: str) -> None:
    topic = site.new_topic(record_count=1)
    config = {"log.path": str(site.log_path), "group.id": site.new_group(), "topics": topic}
    with pytest.raises(InvalidRequestError, match=r"share.exactly.once.enable"):
        process(site.spark, config, results, once_timeout_s=DEADLINE_S, sink=table)


def test_acknowledgements_are_in_the_commit_of_the_results(site: SparkSite, table: str) -> None:
    topic = site.new_topic(record_count=30)
    group_id = new_group(site)

    def handle(records: DataFrame) -> tuple[DataFrame, DataFrame]:
        bad = records.where("offset % 10 = 3")
        return results(records.where("offset % 10 <> 3")), acknowledged(bad, "reject")

    drain(site, group_id, topic, handle, table)
    rejected = {(0, 3), (0, 13), (0, 23)}
    expected = Counter({key: 1 for key in once(1, 30) if key not in rejected})
    assert written(site, table) == accepted(site, group_id) == expected


@pytest.mark.long("several acquisitions, each with commits")
def test_a_handler_that_fails_with_a_record_writes_all_others_once(site: SparkSite, table: str) -> None:
    topic = site.new_topic(record_count=40)
    group_id = new_group(site, share_delivery_count_limit="2")

    def handle(records: DataFrame) -> DataFrame:
        bad = F.expr("IF(offset = 17, raise_error('bad record'), length(value))")
        return records.select("partition", "offset", bad.alias("size"))

    drain(site, group_id, topic, handle, table, **{"max.poll.records": 40})
    expected = Counter({key: 1 for key in once(1, 40) if key != (0, 17)})
    assert written(site, table) == accepted(site, group_id) == expected
    assert verify(site.rows(), BROKER).findings == []


@pytest.mark.long("several acquisitions, each with commits")
def test_rows_that_the_table_refuses_are_those_of_a_handler_that_fails(site: SparkSite, tmp_path: Path) -> None:
    table = str(tmp_path / "strict")
    site.spark.sql(f"CREATE TABLE delta.`{table}` (partition INT, offset BIGINT, size INT NOT NULL) USING delta")
    topic = site.new_topic(record_count=12)
    group_id = new_group(site, share_delivery_count_limit="2")

    def handle(records: DataFrame) -> DataFrame:
        size = F.expr("IF(offset = 5, NULL, length(value))")
        return records.select("partition", "offset", size.alias("size"))

    drain(site, group_id, topic, handle, table, **{"max.poll.records": 12})
    expected = Counter({key: 1 for key in once(1, 12) if key != (0, 5)})
    assert written(site, table) == accepted(site, group_id) == expected


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda records: acknowledged(records, "accept"), "Return a pair"),
        (lambda records: (results(records), acknowledged(records, "renew")), "is renewed"),
        (lambda records: None, "for the sink"),
        (lambda records: (results(records),), "for the sink"),
    ],
)
def test_mistakes_of_the_program_write_nothing(site: SparkSite, table: str, handler: SinkHandler, text: str) -> None:
    topic = site.new_topic(record_count=4)
    config = {"log.path": str(site.log_path), "group.id": new_group(site), "topics": topic}
    with pytest.raises(HandlerFailedError, match=text):
        process(site.spark, config, handler, once_timeout_s=DEADLINE_S, sink=table)
    assert not written(site, table)


@pytest.mark.long("several acquisitions, each with commits")
def test_results_are_merged_by_their_keys(site: SparkSite, table: str) -> None:
    topic = site.new_topic(record_count=30)
    group_id = new_group(site)

    def latest(records: DataFrame) -> DataFrame:
        return records.groupBy((F.col("offset") % 3).cast("int").alias("partition")).agg(
            F.max("offset").alias("offset"), F.count("*").cast("int").alias("size")
        )

    config = {
        "max.poll.records": 10,
        "sink.mode": "merge",
        "sink.merge.keys": "partition",
        "sink.merge.condition": "source.offset > target.offset",
    }
    drain(site, group_id, topic, latest, table, **config)
    assert written(site, table) == Counter([(0, 27), (1, 28), (2, 29)])
    assert accepted(site, group_id) == once(1, 30)


@pytest.mark.long("several acquisitions, each with commits")
def test_two_results_of_one_key_in_a_batch_are_named_and_parts_go_on(
    site: SparkSite, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = site.new_topic(record_count=4)
    group_id = new_group(site)

    def by_parity(records: DataFrame) -> DataFrame:
        return results(records).withColumn("partition", (F.col("offset") % 2).cast("int"))

    config = {"max.poll.records": 4, "sink.mode": "merge", "sink.merge.keys": "partition"}
    with caplog.at_level(logging.ERROR, "sharegroup.spark.worker"):
        drain(site, group_id, topic, by_parity, table, **config)
    errors = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert any("2 rows of the results have the key partition = " in error for error in errors)
    assert written(site, table) == Counter([(0, 2), (1, 3)])
    assert accepted(site, group_id) == once(1, 4)


@pytest.mark.long("several acquisitions, each with commits")
def test_a_handler_that_takes_too_long_has_no_result_twice(site: SparkSite, table: str, tmp_path: Path) -> None:
    topic = site.new_topic(record_count=5)
    # On a slow machine the commit, too, may take longer than the handler may.
    group_id = new_group(site, share_delivery_count_limit="10")
    released = tmp_path / "released"

    def handle(records: DataFrame) -> DataFrame:
        if not released.exists():
            site.until(lambda: has_released(site, group_id) or None, "the records are released")
            released.touch()
        return results(records)

    drain(site, group_id, topic, handle, table, **{"worker.renew.max.ms": 3_000})
    assert written(site, table) == accepted(site, group_id) == once(1, 5)


def has_released(site: SparkSite, group_id: str) -> bool:
    return any(entry.cause is Cause.RELEASE for row in site.rows(group_id) for entry in row.transitions)


@pytest.mark.long("several acquisitions, each with commits")
def test_writes_of_lost_members_are_looked_up(site: SparkSite, table: str) -> None:
    topic = site.new_topic(record_count=10)
    group_id = new_group(site, share_record_lock_duration_ms="1000")
    sink = open_sink(site.spark, table, SparkSinkConfig())
    settings = MemberSettings(group_id=group_id, sink=sink.sink, fetch=FetchSettings(max_records=10))
    lost = GroupMember(site.log, settings)
    lost.subscribe([topic])
    acquisition = site.until(lambda: lost.next_acquisition(200), "records are acquired")
    assert acquisition.write is not None
    site.until(lambda: is_resolving(site, group_id) or None, "the locks have ended")
    drain(site, group_id, topic, results, table)
    lost.close(1_000)
    assert written(site, table) == accepted(site, group_id) == once(1, 10)


def is_resolving(site: SparkSite, group_id: str) -> bool:
    folded = site.share_partition(group_id)
    return folded is not None and any(run.state is RecordState.RESOLVING for run in folded.share_partition.runs)


def test_keys_of_a_sink_need_one(site: SparkSite) -> None:
    config = {
        "log.path": str(site.log_path),
        "group.id": "g",
        "topics": "t",
        "sink.mode": "merge",
        "sink.merge.keys": "k",
    }
    with pytest.raises(ConfigurationError, match=r"sink\.mode is set, and there is no sink"):
        process(site.spark, config, results)


@pytest.mark.long("several acquisitions, each with commits")
def test_a_table_that_forgets_earlier_than_the_group_looks_writes_up_is_refused(site: SparkSite, table: str) -> None:
    topic = site.new_topic(record_count=3)
    site.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 10 days')")
    ms = 20 * 24 * 60 * 60 * 1_000
    group_id = new_group(site, share_exactly_once_write_expiry_ms=str(ms))
    config = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic}
    with pytest.raises(SinkError, match=r"keeps its log for interval 10 days .* for up to 20 days"):
        process(site.spark, config, results, once_timeout_s=DEADLINE_S, sink=table)
    assert not written(site, table)
    site.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 90 days')")
    # The worker that starts again reads the table again.
    drain(site, group_id, topic, results, table)
    assert written(site, table) == accepted(site, group_id) == once(1, 3)


def test_what_is_no_table_is_refused_before_the_worker_joins(site: SparkSite, tmp_path: Path) -> None:
    config = {"log.path": str(site.log_path), "group.id": site.new_name("group"), "topics": "t"}
    with pytest.raises(SinkError, match="no Delta table"):
        process(site.spark, config, results, sink=tmp_path / "nothing")
