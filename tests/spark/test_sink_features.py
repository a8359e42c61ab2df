"""Tables that Spark made, as sinks of members without a JVM: each is written exactly once, or refused by name."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.sink_commits import WritePart
from sharegroup.errors import SinkError
from sharegroup.protocol.sink_writes import UnresolvedWrite


def created(spark: SparkSession, path: Path, columns: str, *properties: str, more: str = "") -> str:
    """A table at a path."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, _, value in (each.partition("=") for each in properties))
    sql = f"CREATE TABLE delta.`{path}` ({columns}) USING delta {more}"
    spark.sql(sql + (f" TBLPROPERTIES ({listed})" if listed else ""))
    return str(path)


def write_of(sink: DeltaSink, version: int) -> UnresolvedWrite:
    table = sink.sink
    return UnresolvedWrite(
        app_id=f"app/{version}",
        version=version,
        table_id=table.table_id,
        address=table.address,
        sink_version=table.version,
        opened_ms=time.time_ns() // 1_000_000,
    )


@pytest.mark.parametrize(
    ("columns", "properties", "more"),
    [
        ("day STRING, value BIGINT", (), ""),
        ("day STRING, value BIGINT", (), "PARTITIONED BY (day)"),
        ("day STRING NOT NULL, value BIGINT NOT NULL", (), ""),
        ("day STRING, value BIGINT", ("delta.appendOnly=true",), ""),
        ("day STRING, value BIGINT", ("delta.setTransactionRetentionDuration=interval 30 days",), ""),
    ],
    ids=["plain", "partitioned", "not null", "append only", "retention"],
)
def test_a_table_that_delta_rs_writes_has_each_result_once(
    spark: SparkSession, tmp_path: Path, columns: str, properties: tuple[str, ...], more: str
) -> None:
    path = created(spark, tmp_path / "sink", columns, *properties, more=more)
    with DeltaSink(path) as sink:
        sink.check()
        write, fenced = write_of(sink, 1), write_of(sink, 2)
        rows = pa.table({"day": ["mo", "tu"], "value": [1, 2]}, schema=sink.schema)
        assert sink.commit([WritePart(write)], rows).is_written
        assert sink.resolve(fenced).others is None
        assert not sink.commit([WritePart(fenced)], rows).is_written
        spark.sql(f"OPTIMIZE delta.`{path}`")
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN more STRING")
        assert sink.resolve(write).others is not None
    assert spark.read.format("delta").load(path).count() == 2


def test_a_check_of_the_table_holds_for_its_results(spark: SparkSession, tmp_path: Path) -> None:
    path = created(spark, tmp_path / "sink", "day STRING, value BIGINT")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (value > 0)")
    with DeltaSink(path) as sink:
        sink.check()
        write = write_of(sink, 1)
        with pytest.raises(SinkError, match="1 rows failed validation check"):
            sink.commit([WritePart(write)], pa.table({"day": ["mo"], "value": [-1]}))
        assert sink.resolve(write).others is None
    assert DeltaTable(path).to_pyarrow_table().num_rows == 0


@pytest.mark.parametrize(
    ("columns", "properties", "more", "reason"),
    [
        ("day STRING, value BIGINT", ("delta.columnMapping.mode=name",), "", "column mapping"),
        ("day STRING, value BIGINT", ("delta.enableDeletionVectors=true",), "", "deletionVectors"),
        ("day STRING, value BIGINT", ("delta.enableRowTracking=true",), "", "row tracking"),
        ("day STRING, value BIGINT", ("delta.enableChangeDataFeed=true",), "", "change data feed"),
        ("day STRING, value BIGINT", (), "CLUSTER BY (day)", "clustering"),
        ("id BIGINT GENERATED ALWAYS AS IDENTITY, value BIGINT", (), "", "Column id .* an identity column"),
        (
            "t TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(t AS DATE))",
            (),
            "PARTITIONED BY (day)",
            "Column day .* a generated column",
        ),
        (
            "day STRING DEFAULT 'mo', value BIGINT",
            ("delta.feature.allowColumnDefaults=supported",),
            "",
            "Column day .* a default value",
        ),
        (
            "day STRING, value BIGINT",
            ("delta.setTransactionRetentionDuration=interval 1 day",),
            "",
            "interval 169 hours",
        ),
    ],
    ids=["mapping", "vectors", "row tracking", "feed", "clustering", "identity", "generated", "default", "retention"],
)
def test_a_table_that_delta_rs_would_not_write_so_is_refused(
    spark: SparkSession, tmp_path: Path, columns: str, properties: tuple[str, ...], more: str, reason: str
) -> None:
    path = created(spark, tmp_path / "sink", columns, *properties, more=more)
    with DeltaSink(path) as sink, pytest.raises(SinkError, match=reason):
        sink.check()
