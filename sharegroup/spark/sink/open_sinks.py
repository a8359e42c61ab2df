"""The sinks of this process: each is checked and locked once, and then used by all that write to it."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.errors import ConfigurationError
from sharegroup.spark import classic, connect
from sharegroup.spark.sink.spark_sink import SparkSink

_open: dict[tuple[str, str, SparkSinkConfig], SparkSink] = {}
_lock = threading.Lock()


def open_sink(spark: SparkSession, address: str, config: SparkSinkConfig) -> SparkSink:
    """Return the sink of an application at an address.

    Raises:
        ConfigurationError: the session is one of Spark Connect.
        SinkError: as of `SparkSink`.
    """
    if connect.is_connect(spark):
        # Its client knows neither the log of the table nor who else commits to it.
        raise ConfigurationError(
            f"A sink needs a classic session, whose JVM is in this program; this one is of Spark Connect: {address}.",
            "Run the program beside its own JVM, or write from a ShareConsumer, which needs no Spark.",
        )
    key = (classic.application_id(spark), address, config)
    with _lock:
        if key not in _open:
            _open[key] = SparkSink(spark, address, config)
        return _open[key]
