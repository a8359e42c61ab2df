"""The Spark session of an application.

It gets what concerns the JVM and its executors: jars, scheduler pools, caches and Arrow. All that decides on results,
plans, files and times of queries keeps Spark's defaults, or what spark-submit says; the queries of this package run in
sessions of their own (`internal_session`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark import SparkConf
from pyspark.sql import SparkSession

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import EnvironmentNotReadyError, SparkEndedError
from sharegroup.spark import classic, cluster, connect, sources
from sharegroup.spark.jar_sets import DELTA, KAFKA, LOCAL_FILES, PROOFS, S3A, jar_set, spark_minor_version
from sharegroup.spark.jvm import start_jvm

CONTROL_POOL = "control"
"""FAIR pool of the processor's query, with a minimum share, so that it never waits for data tasks."""

WORKER_POOL = "workers"
"""FAIR pool of the handlers' jobs."""

_FAIR_POOLS = cluster.package_file("spark/fair_pools.xml")

FILE_SYSTEM_KEY = "spark.hadoop.fs.file.impl"

BARE_FILE_SYSTEM = PROOFS[LOCAL_FILES]
"""Hadoop's file system for local files, without permissions."""

SETTINGS: Mapping[str, str] = {
    # A web server in each driver, several of which may run on one machine.
    "spark.ui.enabled": "false",
    # The pools keep the processor's jobs and those of handlers apart.
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": _FAIR_POOLS.as_uri(),
    # Delta is known to a JVM from its first session on.
    "spark.sql.extensions": PROOFS[DELTA],
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Frames of pandas travel as columns; without it, row by row. Spark falls back to rows where Arrow lacks a type.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Arrow's own allocators keep what the tasks of a worker have freed: 50 MB of each, and more with each task.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    # Each read of a range has consumers of its own. By default Spark keeps them, and the megabyte that each polled
    # last, for five minutes after the read: some hundred small ranges fill a heap of a gigabyte.
    "spark.kafka.consumer.cache.timeout": "10s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "2s",
}
"""Settings of a new session; those of spark-submit, its flags or its defaults file win."""

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    # Hadoop's own local file system forks a chmod for each file it writes: 29 ms for each checkpoint file.
    FILE_SYSTEM_KEY: BARE_FILE_SYSTEM,
}
"""More settings for a local master; the file system sets no file permissions."""

_LOADED_SETS = {"spark.sql.extensions": DELTA, FILE_SYSTEM_KEY: LOCAL_FILES}
"""Setting that names a class of a jar that is not part of PySpark → the set of the jar."""


def build_session(app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session of a notebook or a cluster unchanged, or a new one with the settings above.

    Where Spark is remote (`SPARK_REMOTE`, a platform's Spark Connect, or pyspark-client), it is a session of Spark
    Connect: no JVM starts, and jars, master and this package are those of its server.

    Where no JVM runs yet, it starts with the jars and the Java options that spark-submit would lack (`jvm`); the jars
    are retrieved once.

    Args:
        settings: settings of a new session that win over all others; those of the JVM need one that is not running yet.

    Raises:
        EnvironmentNotReadyError: as of `start_jvm`; or a class of the settings is on no class path, or the executors of
            a cluster lack it; or the server of Spark Connect is named nowhere, or does not respond.
    """
    builder = SparkSession.builder
    if connect.is_wanted():
        spark = connect.build(builder.appName(app_name), settings or {})
        sources.register(spark)
        return spark
    is_new = not classic.has_context()
    if is_new:
        for key, value in _new_settings(app_name, settings or {}).items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if is_new and cluster.is_cluster(spark):
        cluster.send_package(spark)
        cluster.check_executors(spark, [PROOFS[DELTA]])
    sources.register(spark)
    return spark


def check_jars() -> None:
    """Check that a new session finds its classes; start the JVM if there is none.

    Raises:
        EnvironmentNotReadyError: as of `start_jvm`; or a class of the settings is on no class path.
    """
    if not (connect.is_wanted() or classic.has_context()):
        _new_settings("", {})


def is_running(spark: SparkSession) -> bool:
    """Return False if the session was stopped or its JVM has ended."""
    return connect.is_running(spark) if connect.is_connect(spark) else classic.is_running(spark)


def check_running(spark: SparkSession) -> None:
    """Check that the session can still be used.

    Raises:
        SparkEndedError: it was stopped, or its JVM has ended.
    """
    if not is_running(spark):
        raise SparkEndedError("The Spark session was stopped, or its JVM ended.", "Start the program again.")


def check_kafka_source() -> None:
    """Check that the driver has Spark's Kafka source; `check_log` asks the server of Spark Connect.

    Raises:
        EnvironmentNotReadyError: its jars are on no class path.
    """
    _check_jars_of(KAFKA, "Kafka")


def check_s3_client() -> None:
    """Check that the driver has Hadoop's client for S3; a server of Spark Connect says so itself.

    Raises:
        EnvironmentNotReadyError: its jars are on no class path.
    """
    _check_jars_of(S3A, "S3")


def check_log(spark: SparkSession, log: str | KafkaConfig) -> None:
    """Check that the tasks of a session can read a log: it is theirs to read what a member has acquired.

    Args:
        log: path or address of the embedded log, or the Kafka cluster.

    Raises:
        ConfigurationError: the log is embedded, and the executors are on other machines.
        EnvironmentNotReadyError: driver or executors lack the jars of Spark's Kafka source.
    """
    if isinstance(log, str):
        if cluster.is_cluster(spark):
            raise cluster.embedded_log_refused(log)
        return
    check_kafka_source()
    cluster.check_executors(spark, [PROOFS[KAFKA]])


def _new_settings(app_name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new session, without those that spark-submit or its defaults file have set."""
    # 1. Start the JVM, or connect to the one of spark-submit: it knows the defaults.
    start_jvm(settings)
    existing = SparkConf().setAll(list(settings.items()))
    # 2. Add the settings that are missing.
    added = dict(SETTINGS)
    is_local = not cluster.is_cluster_master(existing.get("spark.master", "local"))
    if is_local:
        added |= LOCAL_SETTINGS
        # By default Python workers run the first `python3` of the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    added = {key: value for key, value in added.items() if not existing.contains(key)}
    # 3. Check their classes.
    for key, kind in _LOADED_SETS.items():
        if key in added:
            _check_jars_of(kind, key)
    # 4. Send executors the driver's jars.
    if not is_local:
        class_path = existing.get("spark.driver.extraClassPath", "")
        if jars := cluster.jars_to_send(existing.get("spark.jars", ""), class_path):
            added["spark.jars"] = jars
    return {**added, **settings, "spark.app.name": app_name}


def _check_jars_of(kind: str, use: str) -> None:
    """Check that the driver has the class of a set of jars; without a JVM in this process there is nothing to check.

    Args:
        use: what needs the class, for the error.
    """
    name = PROOFS[kind]
    if not classic.has_jvm() or classic.is_loadable(name):
        return
    jars = jar_set(kind)
    raise EnvironmentNotReadyError(
        f"The jars for {use} are missing: class {name} is not on the driver's class path.",
        "They must be there when its JVM starts. Give them to spark-submit, or to what starts the JVM here: "
        + (f"--packages {jars.packages}" if jars else f"those of {kind} for Spark {spark_minor_version()}."),
    )
