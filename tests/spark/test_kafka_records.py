"""Which spans of offsets are read for acquired ranges, and what reading them leaves behind."""

from __future__ import annotations

from itertools import repeat
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from benchmarks.broker import fill
from sharegroup.client.held_records import HeldRange
from sharegroup.spark.acquired_records import MAX_READS, SKIPPED_OFFSETS, RecordCount, kafka_records, spans_of
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker

FAR = SKIPPED_OFFSETS + 1


def held(*bounds: tuple[int, int], partition: int = 0) -> list[HeldRange]:
    return [HeldRange("id", "t", partition, first, last, 1) for first, last in bounds]


@pytest.mark.parametrize(
    ("ranges", "spans"),
    [
        ([(5, 5)], [(5, 6)]),
        ([(0, 9), (10, 19)], [(0, 20)]),
        ([(10, 19), (0, 9)], [(0, 20)]),
        ([(0, 9), (10 + SKIPPED_OFFSETS, 20 + SKIPPED_OFFSETS)], [(0, 21 + SKIPPED_OFFSETS)]),
        ([(0, 9), (10 + FAR, 20 + FAR)], [(0, 10), (10 + FAR, 21 + FAR)]),
        ([(n * FAR * 2, n * FAR * 2) for n in range(3)], [(n * FAR * 2, n * FAR * 2 + 1) for n in range(3)]),
    ],
)
def test_near_ranges_are_read_together(ranges: list[tuple[int, int]], spans: list[tuple[int, int]]) -> None:
    assert spans_of(held(*ranges)) == {("t", 0): spans}


def test_partitions_are_apart() -> None:
    ranges = [*held((0, 9)), *held((0, 4), partition=1)]
    assert spans_of(ranges) == {("t", 0): [(0, 10)], ("t", 1): [(0, 5)]}


def test_the_narrowest_gaps_are_read_along_when_there_are_too_many() -> None:
    starts = [sum(FAR + step for step in range(number)) + number for number in range(MAX_READS + 3)]
    ((_, spans),) = spans_of(held(*((start, start) for start in starts))).items()
    assert len(spans) == MAX_READS
    assert spans[0] == (0, starts[3] + 1)
    assert spans[1:] == [(start, start + 1) for start in starts[4:]]


@pytest.mark.spark
def test_a_record_is_copied_once_on_its_way_to_a_handler_that_chooses_columns(
    spark: SparkSession, kafka_4_3_1: KafkaBroker
) -> None:
    """Each projection copies each record, and a count keeps those on both of its sides apart."""
    ranges = held((0, 9))
    with kafka_4_3_1.open_log() as log:
        records = kafka_records(spark, log.config, ranges, RecordCount(spark)).select("value", "offset")
    plan: str = records._jdf.queryExecution().executedPlan().toString()
    assert plan.count("CollectMetrics") == 1, plan
    assert plan.count("Project") == 1, plan


@pytest.mark.spark
def test_a_filter_that_no_record_passes_reports_no_count(spark: SparkSession, kafka_4_3_1: KafkaBroker) -> None:
    """All records of a range have the same delivery count: Spark knows the result without reading them."""
    topic, count = f"t-{uuid4().hex[:8]}", RecordCount(spark)
    with kafka_4_3_1.open_log() as log:
        log.create_topic(topic, 1)
        fill(kafka_4_3_1, topic, {0: 10}, repeat(b"x"))
        records = kafka_records(spark, log.config, [HeldRange("id", topic, 0, 0, 9, 1)], count)
        assert records.where("delivery_count > 1").count() == 0
    assert count.value() is None


RECORDS = 2_000
READS = 5
READ_RECORDS = 100
CONSUMER_RECORD = "org.apache.kafka.clients.consumer.ConsumerRecord"


@pytest.mark.long("what reads leave behind is dropped after seconds")
@pytest.mark.spark
def test_records_of_ended_reads_leave_the_memory(spark: SparkSession, kafka_4_3_1: KafkaBroker) -> None:
    """Each read has consumers of its own, and a consumer keeps what it polled last, beyond its range, too."""
    topic = f"t-{uuid4().hex[:8]}"
    with kafka_4_3_1.open_log() as log:
        log.create_topic(topic, 1)
        fill(kafka_4_3_1, topic, {0: RECORDS}, repeat(b"x"))
        for first in range(0, READS * READ_RECORDS, READ_RECORDS):
            acquired = HeldRange("id", topic, 0, first, first + READ_RECORDS - 1, 1)
            assert kafka_records(spark, log.config, [acquired]).count() == READ_RECORDS
    wanted = READS * READ_RECORDS
    assert instances(spark, CONSUMER_RECORD) > wanted
    eventually(
        lambda: instances(spark, CONSUMER_RECORD) <= wanted, "consumers of ended reads keep no records", pause_s=1
    )


def instances(spark: SparkSession, class_name: str) -> int:
    """Return the number of reachable objects of a class in the driver's JVM."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None

    def array(of_class: object, *elements: object) -> Any:
        made = gateway.new_array(of_class, len(elements))
        for index, element in enumerate(elements):
            made[index] = element
        return made

    java = jvm.java.lang
    # By the interface: the server's class belongs to a package that is closed.
    types = ("javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", "[Ljava.lang.String;")
    classes = array(java.Class, *map(java.Class.forName, types))
    invoke = java.Class.forName("javax.management.MBeanServer").getMethod("invoke", classes)
    server = java.management.ManagementFactory.getPlatformMBeanServer()
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    options, signature = array(java.Object, array(java.String)), array(java.String, types[3])
    arguments = array(java.Object, commands, "gcClassHistogram", options, signature)
    # A line: number, instances, bytes, class, and the module of some.
    lines: list[str] = invoke.invoke(server, arguments).splitlines()
    counts = {words[3]: int(words[1]) for line in lines if len(words := line.split()) >= 4 and words[1].isdigit()}
    return counts.get(class_name, 0)


@pytest.mark.spark
def test_records_are_a_frame_of_the_session_and_read_by_the_second_version_of_the_source(
    spark: SparkSession, kafka_4_3_1: KafkaBroker
) -> None:
    """A session of an application has Spark's default, the first version, which turns each record into a row."""
    topic, session = f"t-{uuid4().hex[:8]}", spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    session.range(5).withColumnRenamed("id", "offset").createOrReplaceTempView("wanted")
    with kafka_4_3_1.open_log() as log:
        log.create_topic(topic, 1)
        fill(kafka_4_3_1, topic, {0: 10}, repeat(b"x"))
        records = kafka_records(session, log.config, [HeldRange("id", topic, 0, 0, 9, 1)])
        assert records.sparkSession is session
        assert "BatchScan KafkaTable" in records._jdf.queryExecution().executedPlan().toString()
        assert records.join(session.table("wanted"), "offset").count() == 5
        zones = records.selectExpr("current_timezone() AS zone").distinct().collect()
    assert [row.zone for row in zones] == ["America/St_Johns"]
    assert "kafka" in str(session.conf.get("spark.sql.sources.useV1SourceList")).split(",")
