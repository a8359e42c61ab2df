"""The settings of an application's session, and those of the sessions for this package's own queries and reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.audit.verification.verify import verify
from sharegroup.audit.verification.verify_table import verify_table
from sharegroup.spark import register
from sharegroup.spark.audit_rows import SparkRows
from sharegroup.spark.internal_session import SETTINGS, internal_session
from sharegroup.spark.processor_query import ProcessorQuery
from sharegroup.spark.verify_by_spark import verify_by_spark
from sharegroup.spark.worker import process
from sharegroup.state.row_filter import RowFilter
from tests.spark.spark_site import SparkSite
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.site import BROKER, Site

OURS = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.sql.execution.arrow.pyspark.enabled"}
"""Settings of SQL that `build_session` makes: Delta and Arrow."""

SPARKS = {"spark.sql.artifact.isolation.enabled", "spark.sql.warehouse.dir"}
"""Settings that Spark itself writes there."""

DEFAULTS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,kafka,orc,parquet,text",
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.stopTimeout": "0ms",
}
UNSET = (
    "spark.databricks.delta.snapshotPartitions",
    "spark.databricks.delta.stats.collect",
    "spark.sql.streaming.checkpointFileManagerClass",
)
ODD = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.caseSensitive": "true",
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.files.maxPartitionBytes": "1000",
    "spark.sql.session.timeZone": "America/St_Johns",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,kafka,orc,parquet,text",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stopTimeout": "7",
}


@pytest.fixture
def odd(spark: SparkSession) -> SparkSession:
    """A session with settings that an application may have."""
    session = spark.newSession()
    for key, value in ODD.items():
        session.conf.set(key, value)
    return session


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """Folders, logs and members; its processor is not started."""
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_session_has_sparks_defaults(spark: SparkSession, key: str) -> None:
    assert spark.newSession().conf.get(key) == DEFAULTS[key]


@pytest.mark.parametrize("key", UNSET)
def test_a_session_leaves_settings_unset(spark: SparkSession, key: str) -> None:
    assert spark.newSession().conf.get(key, None) is None


def test_a_session_has_the_time_zone_of_the_machine(spark: SparkSession) -> None:
    assert spark._jvm is not None
    zone = spark._jvm.java.util.TimeZone.getDefault().getID()
    assert spark.newSession().conf.get("spark.sql.session.timeZone") == zone


def test_a_session_has_no_other_setting_of_sql(spark: SparkSession) -> None:
    keys = {key for key, _ in spark.sparkContext.getConf().getAll()}
    assert {key for key in keys if key.startswith(("spark.sql.", "spark.databricks."))} - SPARKS == OURS


def test_an_internal_session_has_its_settings_and_no_odd_ones(spark: SparkSession, odd: SparkSession) -> None:
    session = internal_session(odd, {"spark.sql.streaming.stopTimeout": "5"})
    assert {key: session.conf.get(key) for key in SETTINGS} == SETTINGS
    assert session.conf.get("spark.sql.streaming.stopTimeout") == "5"
    assert session.conf.get("spark.sql.caseSensitive") == "false"
    assert {key: odd.conf.get(key) for key in ODD} == ODD


def test_an_internal_session_reaches_the_stores_of_its_application(odd: SparkSession) -> None:
    key = "fs.azure.account.key.store.dfs.core.windows.net"
    odd.conf.set(key, "secret")
    assert internal_session(odd).conf.get(key) == "secret"


@pytest.mark.long("a processor in a query, and audits by Spark")
def test_a_processor_and_audits_keep_to_their_settings_in_any_session(odd: SparkSession, own_site: Site) -> None:
    topic = own_site.new_topic(partition_count=2, record_count=20)
    query = ProcessorQuery(odd, own_site.settings)
    query.start()
    try:
        group_id = own_site.new_group()
        with own_site.consumer(group_id, topic) as consumer:
            assert len(own_site.poll(consumer, 40)) == 40
            consumer.commit_sync()
            own_site.until(lambda: own_site.is_drained(group_id, topic), "the topic is drained")
        assert {key: query.session.conf.get(key) for key in SETTINGS} == SETTINGS
        assert len(query.session.streams.active) == 1
        assert odd.streams.active == []
    finally:
        query.stop()
    path = str(own_site.state_path)
    by_table = verify_table(path, BROKER)
    assert by_table.findings == []
    assert verify_by_spark(odd, path, BROKER) == by_table
    rows = list(SparkRows(lambda: odd, path).rows(RowFilter()))
    assert len(rows) == by_table.row_count
    assert verify(rows, BROKER).findings == []
    assert {key: odd.conf.get(key) for key in ODD} == ODD


def test_a_handler_gets_frames_of_its_own_session(site: SparkSite, odd: SparkSession) -> None:
    topic, group_id = site.new_topic(partition_count=2, record_count=10), site.new_group()
    odd.range(5).withColumnRenamed("id", "offset").createOrReplaceTempView("wanted")
    zones: list[str | None] = []
    joined: list[tuple[int, int]] = []

    def handle(records: DataFrame) -> DataFrame:
        zones.append(records.sparkSession.conf.get("spark.sql.session.timeZone"))
        wanted = records.join(odd.table("wanted"), "offset")
        joined.extend((row.partition, row.offset) for row in wanted.collect())
        last = records.where("offset = 9").withColumn("acknowledge_type", F.lit("reject"))
        return last.select("topic", "partition", "offset", "acknowledge_type")

    config = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic}
    process(odd, config, handle, once_timeout_s=DEADLINE_S)
    assert {*zones} == {"America/St_Johns"}
    assert sorted(joined) == [(partition, offset) for partition in range(2) for offset in range(5)]
    site.until(lambda: site.is_drained(group_id, topic), "the topic is drained")


@pytest.mark.long("a stateful query")
def test_the_last_window_before_a_watermark_is_emitted(site: SparkSite, tmp_path: Path) -> None:
    topic, group_id = site.new_topic(record_count=10), site.new_group()
    session = site.spark.newSession()
    # Spark's 200 tasks would only take time.
    session.conf.set("spark.sql.shuffle.partitions", "1")
    register(session)
    options = {"log.path": str(site.log_path), "group.id": group_id, "subscribe": topic}
    records = session.readStream.format("sharegroup").options(**options).load()
    timed = records.select(F.timestamp_seconds("offset").alias("time")).withWatermark("time", "0 seconds")
    counts: list[int] = []

    def collect(batch: DataFrame, batch_id: int) -> None:
        counts.extend(row["count"] for row in batch.collect())

    # The last record has second 9, and ends the windows of seconds 0 to 2, 3 to 5 and 6 to 8.
    writer = timed.groupBy(F.window("time", "3 seconds")).count().writeStream.foreachBatch(collect)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        eventually(lambda: len(counts) >= 3, "the windows are emitted, though no record follows")
    finally:
        query.stop()
    assert counts == [3, 3, 3]
