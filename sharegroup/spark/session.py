"""The Spark session, with the settings that make small, frequent micro-batches fast (docs/design.md, "Measured")."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sharegroup.errors import EnvironmentNotReadyError, SparkEndedError
from sharegroup.spark import local_log_source

CONTROL_POOL = "control"
"""FAIR pool of the processor's query, with a minimum share, so that data tasks never starve it."""

WORKER_POOL = "workers"
"""FAIR pool of the jobs that handlers start."""

_FAIR_POOLS = Path(__file__).parent / "fair_pools.xml"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
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
"""Of every session made here; what spark-submit, its flags or its defaults file have set wins."""

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    # Hadoop's own local file system forks a chmod for each file it writes: 29 ms for each checkpoint file.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""For a master on this machine, where checkpoints are on a local path; no file permissions are set."""

_KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_LOADED_CLASSES = ("spark.sql.extensions", "spark.hadoop.fs.file.impl")
"""Settings that name a class of a jar that PySpark does not bring."""


def build_session(app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that a notebook or a cluster has made already, as it is; else a new one with the settings above.

    Master, class path and Java's options come from spark-submit or from the defaults file that `make setup` writes:
    they must be known before the JVM starts.

    Args:
        app_name: name of the application.
        settings: settings of a new session that win over all others; those for a JVM count if none runs yet.

    Raises:
        EnvironmentNotReadyError: a class of the settings is on no class path.
    """
    builder = SparkSession.builder
    if SparkContext._active_spark_context is None:
        for key, value in _new_settings(app_name, settings or {}).items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    local_log_source.register(spark)
    # Imported here because the source reads acquired records as a worker does, with this module's check for Kafka.
    from sharegroup.spark import share_group_source

    share_group_source.register(spark)
    return spark


def is_running(spark: SparkSession) -> bool:
    """Whether the session can still be used; it cannot when somebody has stopped it or its JVM is gone."""
    java_context = spark.sparkContext._jsc
    try:
        return java_context is not None and not java_context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def check_running(spark: SparkSession) -> None:
    """As `is_running`, for who needs it.

    Raises:
        SparkEndedError: the session has ended.
    """
    if not is_running(spark):
        raise SparkEndedError("The Spark session was stopped, or its JVM ended.", "Start the program again.")


def check_kafka_source() -> None:
    """Whether the session can read from Kafka.

    Raises:
        EnvironmentNotReadyError: the jars of Spark's Kafka source are on no class path.
    """
    if not _is_loadable(_KAFKA_SOURCE):
        raise EnvironmentNotReadyError(
            f"The jars for Kafka are missing: class {_KAFKA_SOURCE} is not on the driver's class path.",
            "Run: make setup. With a Spark of your own, give it the jars of set kafka in conf/ivy.xml.",
        )


def _new_settings(app_name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What is to be set beside what is set already."""
    # Starts the JVM, or finds the one of spark-submit; only then is it known what is set.
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
    given = SparkConf().setAll(list(settings.items()))
    wanted = dict(SETTINGS)
    if given.get("spark.master", "local").startswith("local"):
        wanted |= LOCAL_SETTINGS
        # Without it the workers run whatever `python3` is first in the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {key: value for key, value in wanted.items() if not given.contains(key)}
    for key in _LOADED_CLASSES:
        if key in wanted:
            _check_class(key, wanted[key])
    return {**wanted, **settings, "spark.app.name": app_name}


def _check_class(key: str, name: str) -> None:
    if not _is_loadable(name):
        raise EnvironmentNotReadyError(
            f"The jars are missing: class {name} of {key} is not on the driver's class path.",
            "Run: make setup. With a Spark of your own, give it the jars of conf/ivy.xml.",
        )


def _is_loadable(name: str) -> bool:
    jvm = SparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True
