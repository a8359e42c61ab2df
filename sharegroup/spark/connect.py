"""Sessions of Spark Connect: this process is a client, and Spark is beside a server, mostly on another machine.

What runs where:

- beside the server: tasks, the process of a streaming source, and the function of `foreachBatch`;
- in this process: all else, the worker with its handler included.

So a session counts as one of a cluster, unless `LOCAL_SERVER` says that the server is on this machine.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from sharegroup.errors import EnvironmentNotReadyError
from sharegroup.event_log import Event
from sharegroup.spark import classic

logger = logging.getLogger(__name__)

LOCAL_SERVER = "spark.sharegroup.local.server"
"""Setting of a session, or of its server: `true` if the server is on the machine of the client."""

_RANGE_ROWS = 1_000
"""Rows of a range that Spark divides among as many tasks as run at once; no server has more cores."""


def is_connect(spark: SparkSession) -> bool:
    """Return True for a session of Spark Connect."""
    return not hasattr(spark, "_jsparkSession")


def is_wanted() -> bool:
    """Return True if a new session of this process is one of Spark Connect."""
    if is_remote():
        return True
    is_named = "SPARK_REMOTE" in os.environ or os.environ.get("SPARK_API_MODE", "").lower() == "connect"
    return is_named and not classic.has_context()


def build(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    """Return the active session, or a new one of the server that the environment names.

    Args:
        settings: settings of a new session; the server keeps those that it does not let clients set.

    Raises:
        EnvironmentNotReadyError: no server is named, it does not respond, or this Python lacks the client's libraries.
    """
    for key, value in settings.items():
        builder = builder.config(key, value)
    # For a server that PySpark starts in this process (`SPARK_REMOTE=local`): its default is `python3` of the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = builder.getOrCreate()
        # The first request to the server.
        logger.debug(Event("connected", spark=spark.version))
    except PySparkException as error:
        server = os.environ.get("SPARK_REMOTE", "SPARK_REMOTE, which is not set,")
        raise EnvironmentNotReadyError(
            f"There is no session of Spark Connect: {server} gives {first_line(error)}",
            "Set SPARK_REMOTE=sc://HOST:15002 to the address of a server that runs; for a Spark of this machine "
            "install sharegroup[spark], and unset SPARK_REMOTE and SPARK_API_MODE.",
        ) from error
    return spark


def is_running(spark: SparkSession) -> bool:
    """Return False if the session was stopped."""
    return not spark.is_stopped  # type: ignore[attr-defined]  # of the client's class


def is_server_here(spark: SparkSession) -> bool:
    """Return True if the server is on this machine, as `LOCAL_SERVER` says."""
    try:
        return (spark.conf.get(LOCAL_SERVER, "false") or "").lower() == "true"
    except PySparkException as error:
        # A platform may show its own settings only.
        logger.debug(Event("setting_not_readable", key=LOCAL_SERVER, reason=first_line(error)))
        return False


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run at once, by a Spark job."""
    tasks = spark.range(_RANGE_ROWS).select(F.spark_partition_id().alias("task"))
    return tasks.distinct().count()


def internal_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a copy of a session with other settings; where clients cannot make one, the session itself with them.

    What the server does not let clients set keeps its value: it costs time, and changes no result.
    """
    session = _cloned(spark)
    for key, value in settings.items():
        try:
            session.conf.set(key, value)
        except PySparkException as error:
            logger.debug(Event("setting_kept", key=key, reason=first_line(error)))
    return session


def activate(spark: SparkSession) -> None:
    """Make a session the active one of the current thread, unless it has one."""
    spark._set_default_and_active_session(spark)  # type: ignore[attr-defined]  # of the client's class


def observed(observation: Observation, name: str) -> int | None:
    """Return a figure of the first action on an observed frame; None if the action reported none."""
    figures = observation.get
    return int(figures[name]) if name in figures else None


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return str(error).strip().partition("\n")[0]


def _cloned(spark: SparkSession) -> SparkSession:
    if not hasattr(type(spark), "cloneSession"):
        return spark
    try:
        copy: SparkSession = spark.cloneSession()  # type: ignore[attr-defined]  # of the client's class
    except PySparkException as error:
        logger.debug(Event("session_not_cloned", reason=first_line(error)))
        return spark
    return copy
