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
    """Make a session the active one of the current thread for a while, for calls into the JVM."""
    jvm = spark._jvm
    assert jvm is not None
    sessions = SparkSession._get_j_spark_session_class(jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
