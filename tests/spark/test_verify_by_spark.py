"""verify by Spark: the same result as without a JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from benchmarks.history import write_history
from sharegroup.audit.verification.verify_table import verify_table
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.row_payloads import FencePayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.active_session import activate
from sharegroup.spark.verify_by_spark import verify_by_spark
from sharegroup.state.maintenance import compact
from tests.audit.test_pruned_table import BROKER, batches_of_a_group
from tests.audit.worked_site import write_table


def rows_of_a_group() -> list[StateRow]:
    """All rows of its commits."""
    return [row.model_copy(update={"leader_epoch": 1}) for rows in batches_of_a_group() for row in rows]


def test_a_table_that_holds_has_the_same_counts(spark: SparkSession, tmp_path: Path) -> None:
    path = write_table(tmp_path / "state", rows_of_a_group())
    compact(path)
    verification = verify_by_spark(spark, path, BROKER, rows_per_task=40)
    assert verification.findings == []
    assert verification == verify_table(path, BROKER)
    assert verification.segment_count > 4


def test_a_table_that_was_changed_has_the_same_findings(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of_a_group()
    updates = [index for index, row in enumerate(rows) if row.record_type is RecordType.SHARE_UPDATE]
    rows[updates[1]] = rows[updates[1]].model_copy(update={"start_offset": 3_999})
    rows[updates[3]] = rows[updates[3]].model_copy(update={"snapshot_epoch": 70})
    rows[updates[5]] = rows[updates[5]].model_copy(update={"group_id": "another"})
    markers = [index for index, row in enumerate(rows) if row.record_type is RecordType.COMMIT_MARKER]
    del rows[updates[4]], rows[markers[2]]
    path = write_table(tmp_path / "state", rows)
    verification = verify_by_spark(spark, path, BROKER, rows_per_task=40)
    assert {finding.violation.invariant for finding in verification.findings} >= {
        "row_agrees_with_its_replay",
        "rows_follow_a_snapshot",
        "each_commit_has_its_marker",
        "each_commit_has_all_its_rows",
    }
    expected = verify_table(path, BROKER)
    assert list(map(str, verification.findings)) == list(map(str, expected.findings))
    assert verification == expected


def test_rows_in_the_partition_of_another_date_are_named(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of_a_group()
    updates = [index for index, row in enumerate(rows) if row.record_type is RecordType.SHARE_UPDATE]
    path = write_table(tmp_path / "state", rows, dates={updates[1]: "2001-02-03", updates[3]: "2001-02-3"})
    verification = verify_by_spark(spark, path, BROKER, rows_per_task=40)
    assert {finding.violation.detail.rpartition(" ")[2] for finding in verification.findings} == {
        "2001-02-03",
        "2001-02-3",
    }
    assert verification == verify_table(path, BROKER)


@pytest.mark.long("many Spark jobs")
def test_a_group_alone_is_checked_by_the_bounds_of_its_processor(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of_a_group()
    group_id = next(row.group_id for row in rows if row.group_id)
    others = BrokerConfig(group_share_record_lock_duration_ms=45_000)
    without = write_table(tmp_path / "without", rows)
    assert verify_by_spark(spark, without, others, group_id).findings != []
    fence = FencePayload(broker={}, pid=1, host="a").model_dump(mode="json")
    path = write_table(
        tmp_path / "state", [StateRow(record_type=RecordType.FENCE, time_ms=0, leader_epoch=1, payload=fence), *rows]
    )
    verification = verify_by_spark(spark, path, others, group_id)
    assert verification.findings == []
    assert verification == verify_table(path, others, group_id)
    assert verification.row_count == sum(row.group_id == group_id for row in rows)


@pytest.fixture
def job_group(spark: SparkSession) -> Iterator[str]:
    """The group of all jobs of this test."""
    group = f"verify-{uuid4().hex[:8]}"
    spark.sparkContext.setJobGroup(group, "")
    yield group
    for key in ("spark.jobGroup.id", "spark.job.description"):
        # Spark takes None for no value; its stub does not say so.
        spark.sparkContext.setLocalProperty(key, None)  # type: ignore[arg-type]


@pytest.mark.classic
@pytest.mark.long("many Spark jobs")
@pytest.mark.parametrize("partition_count", [1, 7])
def test_a_long_history_is_divided_among_tasks(
    spark: SparkSession, job_group: str, tmp_path: Path, partition_count: int
) -> None:
    history = write_history(str(tmp_path / "state"), 6_000, partition_count)
    shuffle_partitions = spark.conf.get("spark.sql.shuffle.partitions")
    verification = verify_by_spark(spark, str(tmp_path / "state"), BROKER, rows_per_task=400)
    assert verification.findings == []
    assert verification.transition_count == history.transition_count
    assert verification == verify_table(str(tmp_path / "state"), BROKER)
    task_count, task_counts = -(-history.row_count // 400), task_counts_of(spark, job_group)
    # Commits, segments and chains; and the counts of commits, with a task for the markers.
    assert (task_counts[task_count], task_counts[task_count + 1]) == (3, 1)
    assert spark.conf.get("spark.sql.shuffle.partitions") == shuffle_partitions


def task_counts_of(spark: SparkSession, group: str) -> Counter[int]:
    """Return number of tasks → stages of a job group that have so many."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return Counter(stage.numTasks for stage in stages if stage is not None)


@pytest.fixture
def own_setting(spark: SparkSession) -> Iterator[str]:
    """A setting that the session has of its own, which `verify` needs, too."""
    key = "spark.sql.files.ignoreMissingFiles"
    spark.conf.set(key, "true")
    yield key
    spark.conf.unset(key)


@pytest.mark.classic
def test_the_active_session_stays(spark: SparkSession, tmp_path: Path) -> None:
    write_history(str(tmp_path / "state"), 200, 1)
    before = SparkSession.getActiveSession()
    own = spark.newSession()
    try:
        activate(own)
        assert verify_by_spark(own, str(tmp_path / "state"), BROKER).findings == []
        assert SparkSession.getActiveSession() is own
        assert own._jvm is not None
        assert own._jvm.SparkSession.getActiveSession().get().equals(own._jsparkSession)
    finally:
        activate(before or spark)


def test_a_page_that_was_changed_is_named(spark: SparkSession, own_setting: str, tmp_path: Path) -> None:
    write_history(str(tmp_path / "state"), 2_000, 3)
    (file, *_) = sorted((tmp_path / "state").glob("date=*/*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 0x40
    file.write_bytes(content)
    (finding, *_) = verify_by_spark(spark, str(tmp_path / "state"), BROKER).findings
    (expected, *_) = verify_table(str(tmp_path / "state"), BROKER).findings
    assert finding == expected
    assert finding.violation.invariant == "data_files_are_as_they_were_written"
    assert spark.conf.get(own_setting, None) == "true"
    assert spark.conf.get("spark.sql.files.ignoreCorruptFiles", None) is None
