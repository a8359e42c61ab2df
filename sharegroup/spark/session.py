"""The Spark session, with the settings that make small, frequent micro-batches fast (docs/design.md, "Measured")."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from sharegroup.spark import local_log_source

CONTROL_POOL = "control"
"""FAIR pool of the processor's query, with a minimum share, so that data tasks never starve it."""

WORKER_POOL = "workers"
"""FAIR pool of the jobs that handlers start."""

_FAIR_POOLS = Path(__file__).parent / "fair_pools.xml"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": _FAIR_POOLS.as_uri(),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
}
"""Defaults of every session made here; what a caller sets wins."""

LOCAL_FILE_SETTINGS: Mapping[str, str] = {
    # Hadoop's own local file system forks a chmod for each file it writes: 29 ms for each checkpoint file.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""For checkpoints on a local path only; no file permissions are set."""


def build_session(
    app_name: str, jars: Sequence[Path] = (), master: str = "local[4]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session, or the one that spark-submit or a notebook has made already.

    Args:
        app_name: name of the application.
        jars: Delta's jars, and the bare local file system's; empty when spark-submit brings them.
        master: Spark master. On two cores four slots let the processor's query run beside the workers.
        settings: more settings, and other values for those above.
    """
    builder = SparkSession.builder.appName(app_name).master(master)
    wanted = {**SETTINGS, **(settings or {})}
    if jars:
        wanted = {**LOCAL_FILE_SETTINGS, **wanted, "spark.driver.extraClassPath": ":".join(map(str, jars))}
        # A stream that stops recurses deeply in a regular expression.
        wanted.setdefault("spark.driver.extraJavaOptions", "-Xss8m")
    if master.startswith("local"):
        wanted.setdefault("spark.driver.host", "127.0.0.1")
        # Without it the workers run whatever `python3` is first in the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    local_log_source.register(spark)
    return spark
