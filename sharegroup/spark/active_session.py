"""The active session of a thread: what Spark uses where it is given none. Each thread of its JVM has one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


def activate(spark: SparkSession) -> None:
    """Make a session the active one of the current thread, as Spark's own `createDataFrame` does."""
    jvm = spark._jvm
    assert jvm is not None
    SparkSession._activeSession = spark
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


@contextmanager
def activated(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one of the current thread for a while; then it is the one from before again."""
    jvm = spark._jvm
    assert jvm is not None
    sessions = SparkSession._get_j_spark_session_class(jvm)
    before, before_in_python = sessions.getActiveSession(), SparkSession._activeSession
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        SparkSession._activeSession = before_in_python
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
