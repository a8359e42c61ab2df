"""The sinks of this process: each is checked and locked once, and then used by all that write to it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

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


def sink_config(values: Mapping[str, object]) -> SparkSinkConfig:
    """Return the configuration of a sink among other values, by their keys."""
    return SparkSinkConfig.from_mapping({key: values[key] for key in SparkSinkConfig.key_names() if key in values})
