"""The live auditor as a streaming query: a real session, and the table of a real processor."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest
from deltalake import DeltaTable
from prometheus_client.exposition import generate_latest
from pyspark.sql import SparkSession

from sharegroup.audit.live.result_tables import FINDINGS, STATISTICS
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.metrics.live_audit_metrics import LiveAuditMetrics
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.connect import is_connect
from sharegroup.spark.live_audit import CHECKPOINT, LiveAuditor
from sharegroup.state.commit_log import versions
from sharegroup.state.maintenance import compact, take_snapshot
from sharegroup.state.reader import StateTableReader
from tests.actor.group_harness import group_with, joined
from tests.support.site import BROKER, Site
from tests.support.stored_commit import store

NEVER_MS = 2**62
ORDERS_0 = ("orders-id", 0)


SHOWN = ("deliveries", "redeliveries", "accepted", "released", "lock_timeouts", "in_flight_ms", "in_flight_records")
MINUTES = [(10, 0, 4, 6, 0, 100_000, 6), (6, 6, 5, 0, 1, 130_000, 1), (0, 0, 0, 0, 0, 0, 1)]
"""The columns of `SHOWN` in the minutes of `rows_of_minutes`: the third one has a record in flight, and no row."""


def run(
    spark: SparkSession, table: Path, output: Path, metrics: LiveAuditMetrics | None = None, most_commits: int = 10
) -> None:
    """Start an auditor, let it check all commits, and stop it."""
    query = LiveAuditor(spark, str(table), BROKER, output, 0, metrics, most_commits).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def rows_of_minutes() -> list[list[StateRow]]:
    """Rows of four minutes, in two parts; a record's lock ends in the second minute."""
    group = group_with(30)
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=10)
    group.advance(10_000)
    anna.acknowledge({ORDERS_0: [(0, 3, AcknowledgeType.ACCEPT), (4, 9, AcknowledgeType.RELEASE)]})
    group.advance(60_000)
    ben.fetch(max_records=5)
    first = list(group.rows)
    group.advance(20_000)
    ben.acknowledge({ORDERS_0: [(4, 8, AcknowledgeType.ACCEPT)]})
    group.advance(120_000)
    (carl,) = joined(group, "carl")
    assert carl.fetch(max_records=1).record_count == 1
    return [first, list(group.rows)[len(first) :]]


def shown(spark: SparkSession, output: Path) -> list[tuple[int, ...]]:
    """The statistics in the table, by minute."""
    minutes = spark.read.format("delta").load(str(output / STATISTICS)).orderBy("minute").collect()
    return [tuple(minute[name] for name in SHOWN) for minute in minutes]


@pytest.mark.long("several streaming queries, one after the other")
def test_it_writes_statistics_once_and_continues_after_it_was_stopped(spark: SparkSession, tmp_path: Path) -> None:
    table, output = tmp_path / "state", tmp_path / "audit"
    metrics = LiveAuditMetrics(max_series=10)
    first, second = rows_of_minutes()
    store(str(table), first)
    run(spark, table, output)
    take_snapshot(str(table), NEVER_MS)
    store(str(table), second)
    assert compact(str(table)) > 0
    run(spark, table, output, metrics)
    assert shown(spark, output) == MINUTES
    minutes = spark.read.format("delta").load(str(output / STATISTICS)).orderBy("minute").collect()
    assert [minute["oldest_in_flight_ms"] for minute in minutes] == [58_000, 118_000, 178_000]
    assert not (output / FINDINGS).exists()
    text = generate_latest(metrics.registry).decode()
    assert 'sharegroup_live_audit_deliveries_total{group="group-1",partition="0",topic="orders"} 6.0' in text
    assert "sharegroup_live_audit_commit_id 1.0" in text


@pytest.mark.long("several streaming queries, one after the other")
def test_a_late_auditor_writes_each_minute_once_also_without_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, output = tmp_path / "state", tmp_path / "audit"
    rows = [row for part in rows_of_minutes() for row in part]
    for row in rows[:-1]:
        store(str(table), [row])
    # Batches of one commit: the time of the log passes a minute within a batch, between two, and after the last one.
    run(spark, table, output, most_commits=1)
    store(str(table), rows[-1:])
    run(spark, table, output, most_commits=1)
    assert shown(spark, output) == MINUTES
    rmtree(output / CHECKPOINT)
    run(spark, table, output)
    assert shown(spark, output) == MINUTES


@pytest.mark.core
@pytest.mark.long("a streaming query beside a processor")
def test_it_reports_what_is_wrong_beside_a_running_processor(spark: SparkSession, tmp_path: Path) -> None:
    output = tmp_path / "audit"
    # Results are written beside the server there, where no metrics of this process are.
    metrics = None if is_connect(spark) else LiveAuditMetrics(max_series=10)
    site = Site(tmp_path)
    try:
        with site.running():
            topic = site.new_topic(record_count=20)
            group_id = site.new_group()
            with site.consumer(group_id, topic) as consumer:
                site.poll(consumer, 20)
            run(spark, site.state_path, output, metrics)
            assert not (output / FINDINGS).exists()
            DeltaTable(str(site.state_path)).optimize.compact()
            version = versions(str(site.state_path))[-1]
            with site.consumer(group_id, topic):
                site.produce(topic, 0, 5)
            run(spark, site.state_path, output, metrics)
        last = StateTableReader(str(site.state_path)).rows([RecordType.SHARE_UPDATE], group_id)[-1]
        wrong = last.model_copy(update={"request_offset": last.request_offset + 1_000, "delivery_complete_count": 99})
        store(str(site.state_path), [wrong])
        run(spark, site.state_path, output, metrics)
    finally:
        site.close()
    written = spark.read.format("delta").load(str(output / FINDINGS)).collect()
    findings = {row.invariant: row.location for row in written}
    assert findings["only_processors_write_rows"] == f"version {version} of the Delta log"
    assert findings["row_agrees_with_its_replay"] == f"group {group_id} {topic}-0"
    assert (output / CHECKPOINT).is_dir()
    if metrics is not None:
        text = generate_latest(metrics.registry).decode()
        assert 'sharegroup_live_audit_findings_total{invariant="only_processors_write_rows"} 1.0' in text


@pytest.mark.parametrize("known", [True, False])
def test_series_are_bounded(known: bool) -> None:
    metrics = LiveAuditMetrics(max_series=1)
    names = ("deliveries", "redeliveries", "ended_deliveries", "in_flight_ms", "oldest_in_flight_ms")
    for partition in (0, 0 if known else 1):
        metrics.add_minute({"group_id": "g", "topic": "t", "partition": partition, **dict.fromkeys(names, 1)})
    text = generate_latest(metrics.registry).decode()
    assert ('sharegroup_live_audit_deliveries_total{group="g",partition="",topic=""} 1.0' in text) is not known
