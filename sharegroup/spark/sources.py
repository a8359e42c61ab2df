"""The formats of applications, `sharegroup` and `sharegroup_log`: a session has those that were registered in it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from sharegroup.spark import classic, connect, local_log_source
from sharegroup.spark.active_session import activated
from sharegroup.spark.sink.service import serve_sinks
from sharegroup.spark.source import stream_reader

_REGISTRATIONS = {
    local_log_source.FORMAT: local_log_source.register,
    stream_reader.FORMAT: stream_reader.register,
}


def register(spark: SparkSession) -> None:
    """Make the formats `sharegroup` and `sharegroup_log` known to a session; those that it knows stay as they are."""
    if not connect.is_connect(spark):
        serve_sinks(spark)
    # Spark refuses a format that the active session knows and this one does not.
    with activated(spark):
        for name, register_format in _REGISTRATIONS.items():
            # Spark logs a warning when it replaces a format; a client cannot ask which ones its server knows.
            if connect.is_connect(spark) or not classic.knows_format(spark, name):
                register_format(spark)
