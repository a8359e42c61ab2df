"""The processes that may commit to a sink: all need one way to create a commit file only if there is none.

On a local disk Spark's commit is atomic within one JVM only. So a lock file beside the table is held by one Spark
application alone, or by any number of processes that write with delta-rs, which share it. The JVM holds it until it
ends: it may still commit when the Python program beside it is dead.

On S3 Spark's own log store serves one driver, which nothing here can check: the user says so. Azure, Google's store and
HDFS create a file only if there is none, for all processes.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from sharegroup.client.sink_lock import DELTA_RS, sink_lock_path
from sharegroup.config.table_location import AZURE_SCHEMES, GOOGLE_SCHEMES, S3_SCHEMES
from sharegroup.errors import SinkError
from sharegroup.spark import classic
from sharegroup.spark.sink.sink_table import SinkTable

_ATOMIC_SCHEMES = (*AZURE_SCHEMES, *GOOGLE_SCHEMES, "hdfs", "viewfs", "wasb", "wasbs")
_LOCAL_SCHEMES = ("", "file")
_LOG_STORE_KEY = "spark.delta.logStore.{scheme}.impl"
_ATOMIC_LOG_STORES = ("io.delta.storage.S3DynamoDBLogStore",)
_WRITERS_KEY = "sink.writers"
_ONE_DRIVER = f"Set {_WRITERS_KEY} to one if this driver is the only program that writes to the table"


def check_writers(spark: SparkSession, table: SinkTable, writers: str) -> None:
    """Check that commits of this session and of the table's other writers exclude each other; lock a local table.

    Args:
        writers: `sink.writers`: what the user says of them.

    Raises:
        SinkError: they do not, or another program has the lock.
    """
    if table.is_named and _scheme(table) not in (*_LOCAL_SCHEMES, *S3_SCHEMES):
        return
    scheme = _scheme(table)
    if scheme in _LOCAL_SCHEMES:
        _lock(spark, str(sink_lock_path(_local_path(table))))
    elif scheme in _ATOMIC_SCHEMES or writers:
        return
    elif spark.conf.get(_LOG_STORE_KEY.format(scheme=scheme), None) not in _ATOMIC_LOG_STORES:
        raise SinkError(
            f"{table.address} is on {scheme}, where commits of two Spark drivers may overwrite each other.",
            f"{_ONE_DRIVER}; or to atomic if the session has a log store for several of them "
            f"({_LOG_STORE_KEY.format(scheme=scheme)}).",
        )


def _lock(spark: SparkSession, path: str) -> None:
    try:
        name = classic.lock_file(spark, path, _own_name(spark))
    except classic.JVM_ERRORS as error:
        raise SinkError(
            f"{path} cannot be locked: {classic.first_line(error)}", "Give this program the right to write there."
        ) from error
    if name is None:
        return
    holder = "members without Spark, such as a ShareConsumer," if name == DELTA_RS else name or "another program"
    raise SinkError(
        f"{path} is locked: {holder} may write to the table. On a local disk the commits of two JVMs, or of a JVM and "
        "of others, may overwrite each other.",
        "Give each Spark application on this machine a table of its own, or put the table on an object store.",
    )


def _own_name(spark: SparkSession) -> str:
    name = classic.application_name(spark).encode("ascii", "replace").decode()
    application_id = classic.application_id(spark)
    return f"Spark application {name} ({application_id}), process {os.getpid()} on {socket.gethostname()}"


def _scheme(table: SinkTable) -> str:
    scheme = urlsplit(table.location).scheme.lower()
    return scheme if "://" in table.location or scheme == "file" else ""


def _local_path(table: SinkTable) -> Path:
    return Path(unquote(urlsplit(table.location).path) if _scheme(table) else table.location)
