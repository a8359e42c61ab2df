"""Audits by Spark of a state table on an object store: the same results as without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from benchmarks.history import write_history
from sharegroup.audit.verification.verify_table import verify_table
from sharegroup.config.table_location import TableLocation
from sharegroup.errors import ConfigurationError
from sharegroup.spark.audit_rows import SparkRows
from sharegroup.spark.stored_table import spark_address
from sharegroup.spark.verify_by_spark import verify_by_spark
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter
from tests.audit.test_pruned_table import BROKER
from tests.support.s3proxy import S3Proxy, s3_options


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    with S3Proxy(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def table(s3: S3Proxy) -> TableLocation:
    """A table with three share-partitions."""
    location = s3.new_table()
    write_history(location, 3_000, 3)
    return location


@pytest.mark.long("an S3 server")
def test_rows_and_verification_are_those_without_a_jvm(spark: SparkSession, table: TableLocation) -> None:
    rows = SparkRows(lambda: spark, table).rows(RowFilter())
    assert list(rows) == StateTableReader(table).rows()
    verification = verify_by_spark(spark, table, BROKER, rows_per_task=1_000)
    assert verification.findings == []
    assert verification == verify_table(table, BROKER)


@pytest.mark.long("an S3 server")
def test_an_object_that_is_lost_is_named_and_the_others_are_read(
    spark: SparkSession, s3: S3Proxy, table: TableLocation
) -> None:
    lost = sorted(s3.objects(table).glob("date=*/*.parquet"))[0]
    lost.unlink()
    verification = verify_by_spark(spark, table, BROKER)
    assert str(lost.relative_to(s3.objects(table))) in str(verification.findings[0])
    assert list(map(str, verification.findings)) == list(map(str, verify_table(table, BROKER).findings))
    rows = SparkRows(lambda: spark, table)
    reader = StateTableReader(table)
    assert list(rows.rows(RowFilter())) == list(reader.stored(RowFilter(), reader.lost_files()))


@pytest.mark.long("the jars of Hadoop's client for S3")
@pytest.mark.usefixtures("spark")
def test_options_become_those_of_hadoops_client() -> None:
    address = spark_address(TableLocation("s3://tables/a/state", s3_options("http://127.0.0.1:1")))
    assert address.path == "s3a://tables/a/state"
    assert address.options == {
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": "test-key",
        "fs.s3a.secret.key": "test-secret-Lk2",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    own = {"aws_session_token": "t", "aws_access_key_id": "k", "aws_virtual_hosted_style_request": "true"}
    assert spark_address(TableLocation("s3a://tables/state", own)).options == {
        "fs.s3a.session.token": "t",
        "fs.s3a.access.key": "k",
        "fs.s3a.path.style.access": "false",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    }


def test_other_addresses() -> None:
    for path in ("/data/state", "abfss://tables@account.dfs.core.windows.net/state", "gs://tables/state"):
        assert spark_address(path) == (path, {})
    with pytest.raises(ConfigurationError, match="abfss://tables@ACCOUNT"):
        spark_address("az://tables/state")
