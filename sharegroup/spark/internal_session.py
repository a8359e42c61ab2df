"""The sessions of this package's own queries and reads; an application's session keeps the settings that it has.

Such a session shares context, executors, jars and catalog with the application's. It has its own SQL settings,
temporary views, registered formats and streaming queries (`session.streams`): no setting of an application changes what
the processor and the audits do, and theirs change no result of an application.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from sharegroup.spark import classic, connect
from sharegroup.spark.session import BARE_FILE_SYSTEM, FILE_SYSTEM_KEY

SETTINGS: Mapping[str, str] = {
    # The queries are small: Spark's 200 tasks of a shuffle would each take longer to start than to run. What is large
    # chooses its own number.
    "spark.sql.shuffle.partitions": "2",
    # It would plan these jobs again after each stage, and merge the tasks that audits divide the rows into.
    "spark.sql.adaptive.enabled": "false",
    # Texts and dates that are made of times must not depend on the machine.
    "spark.sql.session.timeZone": "UTC",
    # By default 100 batches: each one keeps files in the checkpoint, and its deletion lists them all.
    "spark.sql.streaming.minBatchesToRetain": "3",
    # By default Spark reads the Delta log in 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Spark's default without kafka: the first version of that source turns each record into a row and back again.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}
"""Settings of all such sessions, whatever the application's session or its launch has set."""

_CHECKPOINT_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINT_MANAGERS = tuple(
    f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"
    # Before Spark 4.1 it was in the package above.
    for package in ("checkpointing.", "")
)
"""The class for checkpoints on local files with the bare file system of `build_session`.

Spark's own choice would not use that file system, and fork a chmod for each file.
"""

_STORE_PREFIX = "fs."
"""Settings of Hadoop's file systems: a platform's notebook gives its session the keys of a store by them."""

_readers: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_readers_lock = threading.Lock()


def internal_session(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a new session of the same context for queries of this package.

    Args:
        spark: the application's session; only its access to object stores is taken over. One of Spark Connect is
            copied, or used itself where the server copies none.
        settings: more settings.
    """
    if connect.is_connect(spark):
        return connect.internal_session(spark, {**SETTINGS, **(settings or {})})
    session = spark.newSession()
    stores = {key: value for key, value in spark.conf.getAll.items() if key.startswith(_STORE_PREFIX)}
    for key, value in {**stores, **SETTINGS, **_bare_file_settings(spark), **(settings or {})}.items():
        session.conf.set(key, value)
    return session


def reading_session(spark: SparkSession) -> SparkSession:
    """Return the one internal session that loads frames for an application's session; `moved` hands them over.

    No client of Spark Connect can move a frame, so that it is loaded in the application's session.
    """
    if connect.is_connect(spark):
        return spark
    with _readers_lock:
        if spark not in _readers:
            _readers[spark] = internal_session(spark)
        return _readers[spark]


def moved(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return a frame that was loaded in the reading session as one of the application's; see `classic.moved`."""
    return frame if frame.sparkSession is spark else classic.moved(frame, spark)


def _bare_file_settings(spark: SparkSession) -> dict[str, str]:
    if classic.launch_setting(spark, FILE_SYSTEM_KEY) != BARE_FILE_SYSTEM:
        return {}
    manager = classic.first_loadable(_CHECKPOINT_MANAGERS)
    return {} if manager is None else {_CHECKPOINT_MANAGER_KEY: manager}
