"""The sinks of this process: each is checked and locked once, and then used by all that write to it."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.spark import classic
from sharegroup.spark.sink.spark_sink import SparkSink

_open: dict[tuple[str, str, SparkSinkConfig], SparkSink] = {}
_lock = threading.Lock()


def open_sink(spark: SparkSession, address: str, config: SparkSinkConfig) -> SparkSink:
    """Return the sink of an application at an address.

    Raises:
        SinkError: as of `SparkSink`.
    """
    key = (classic.application_id(spark), address, config)
    with _lock:
        if key not in _open:
            _open[key] = SparkSink(spark, address, config)
        return _open[key]
