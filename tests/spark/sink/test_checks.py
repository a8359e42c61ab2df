"""Tables that are refused as sinks at the start, and the programs that may commit to one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sharegroup.client.sink_lock import sink_lock_path
from sharegroup.errors import ConfigurationError, SinkError
from sharegroup.spark.sink.commit_lock import check_writers
from sharegroup.spark.sink.sink_table import SinkTable
from tests.spark.sink.conftest import OpenSink

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
file.write({"EX": "Spark application other (local-1), process 1 on here\\n", "SH": "delta-rs\\n"}[sys.argv[2]])
file.flush()
fcntl.lockf(file, getattr(fcntl, "LOCK_" + sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: str, kind: str) -> Iterator[None]:
    """Another process that holds the lock of a table."""
    command = [sys.executable, "-c", HOLD, str(sink_lock_path(Path(path))), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.kill()


def altered(spark: SparkSession, path: str, **properties: str) -> None:
    assigned = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({assigned})")


def in_store(location: str) -> SinkTable:
    return SinkTable(location, f"delta.`{location}`", location, {}, frozenset())


@pytest.mark.parametrize("address", ["nothing", "/nowhere/at/all"])
def test_what_is_no_table_is_refused(open_sink: OpenSink, address: str) -> None:
    with pytest.raises(SinkError, match="no Delta table"):
        open_sink(address)


def test_a_table_of_another_format_is_refused(spark: SparkSession, open_sink: OpenSink, tmp_path: Path) -> None:
    spark.range(1).write.parquet(str(tmp_path / "files"))
    with pytest.raises(SinkError, match="no Delta table"):
        open_sink(str(tmp_path / "files"))


def test_a_table_that_forgets_transactions_is_refused(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    altered(spark, path, setTransactionRetentionDuration="interval 30 days")
    with pytest.raises(SinkError, match=r"forgets transactions.*UNSET TBLPROPERTIES"):
        open_sink()
    spark.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')")
    open_sink()


def test_a_table_that_keeps_its_log_for_too_short_is_refused(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    altered(spark, path, deletedFileRetentionDuration="interval 1 day", logRetentionDuration="interval 2 days")
    with pytest.raises(SinkError, match="keeps its log for interval 2 days"):
        open_sink()
    altered(spark, path, enableExpiredLogCleanup="false")
    open_sink()
    altered(spark, path, enableExpiredLogCleanup="true", logRetentionDuration="interval 1 week")
    open_sink()


def test_a_merge_needs_a_table_that_can_be_updated_and_its_columns(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    with pytest.raises(SinkError, match=r"no column customer of sink.merge.keys; it has key, value"):
        open_sink(sink_mode="merge", sink_merge_keys="key,customer")
    altered(spark, path, appendOnly="true")
    with pytest.raises(SinkError, match="appended rows only"):
        open_sink(sink_mode="merge", sink_merge_keys="key")
    open_sink()


@pytest.mark.parametrize(
    "config",
    [
        {"sink_mode": "merge"},
        {"sink_merge_keys": "key"},
        {"sink_merge_condition": "true"},
        {"sink_mode": "overwrite"},
    ],
)
def test_a_configuration_that_says_no_mode_clearly_is_refused(open_sink: OpenSink, config: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"sink\."):
        open_sink(**config)


def test_a_local_table_of_another_spark_application_is_refused_by_its_name(path: str, open_sink: OpenSink) -> None:
    with locked(path, "EX"), pytest.raises(SinkError, match="Spark application other"):
        open_sink()
    open_sink()


def test_a_local_table_of_members_without_spark_is_refused(path: str, open_sink: OpenSink) -> None:
    with locked(path, "SH"), pytest.raises(SinkError, match="members without Spark"):
        open_sink()


def test_a_local_table_is_kept_from_others_until_the_jvm_ends(path: str, open_sink: OpenSink) -> None:
    open_sink()
    open_sink()
    for kind in ("EX", "SH"):
        script = HOLD.replace('LOCK_" + sys.argv[2])', 'LOCK_" + sys.argv[2]) | fcntl.LOCK_NB')
        command = [sys.executable, "-c", script, str(sink_lock_path(Path(path))), kind]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert "BlockingIOError" in ended.stderr
    assert "Spark application sharegroup-tests" in sink_lock_path(Path(path)).read_text()


def test_a_store_where_spark_drivers_overwrite_each_other_needs_a_word_of_the_user(spark: SparkSession) -> None:
    with pytest.raises(SinkError, match=r"sink.writers to one .*spark.delta.logStore.s3a.impl"):
        check_writers(spark, in_store("s3a://bucket/totals"), "")
    for writers in ("one", "atomic"):
        check_writers(spark, in_store("s3a://bucket/totals"), writers)
    session = spark.newSession()
    session.conf.set("spark.delta.logStore.s3a.impl", "io.delta.storage.S3SingleDriverLogStore")
    with pytest.raises(SinkError, match=r"sink.writers to one"):
        check_writers(session, in_store("s3a://bucket/totals"), "")
    session.conf.set("spark.delta.logStore.s3a.impl", "io.delta.storage.S3DynamoDBLogStore")
    check_writers(session, in_store("s3a://bucket/totals"), "")
    for store in ("abfss://container@account.dfs.core.windows.net/totals", "gs://bucket/totals", "hdfs://name/totals"):
        check_writers(spark, in_store(store), "")
