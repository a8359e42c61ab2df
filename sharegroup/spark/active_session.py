"""The active session of a thread: what Spark uses where it is given none. Each thread has one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from sharegroup.spark import classic, connect


def activate(spark: SparkSession) -> None:
    """Make a session the active one of the current thread, as Spark's own `createDataFrame` does."""
    if connect.is_connect(spark):
        connect.activate(spark)
    else:
        classic.activate(spark)


@contextmanager
def activated(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one of the current thread for a while; then it is the one from before again.

    Where a session of Spark Connect is given, the active one has no part in its plans.
    """
    if connect.is_connect(spark):
        yield
        return
    with classic.activated(spark):
        yield
