"""Tables of sinks, and writes into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.spark.sink.spark_sink import SparkSink

OpenSink = Callable[..., SparkSink]


@pytest.fixture(scope="package", autouse=True)
def few_tasks(spark: SparkSession) -> Iterator[None]:
    """Small tables, in as few tasks."""
    settings = {"spark.databricks.delta.snapshotPartitions": "1", "spark.sql.shuffle.partitions": "1"}
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, kept in before.items():
        spark.conf.unset(key) if kept is None else spark.conf.set(key, kept)


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table with one row, whose value is 0."""
    folder = str(tmp_path / "totals")
    spark.sql(f"CREATE TABLE delta.`{folder}` (key STRING, value BIGINT) USING delta")
    spark.sql(f"INSERT INTO delta.`{folder}` VALUES ('a', 0)")
    return folder


@pytest.fixture
def open_sink(spark: SparkSession, path: str) -> OpenSink:
    """Opens the table as a sink, with `sink_mode="merge"` and so on."""

    def open_table(address: str = path, **config: object) -> SparkSink:
        values = {name.replace("_", "."): value for name, value in config.items()}
        return SparkSink(spark, address, SparkSinkConfig.from_mapping(values))

    return open_table
