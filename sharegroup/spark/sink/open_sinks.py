"""The sinks of this process: each is checked and locked when a member starts, and then used by all that write to it."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.errors import ConfigurationError
from sharegroup.spark import classic, connect
from sharegroup.spark.sink.spark_sink import SparkSink

_Key = tuple[str, str, SparkSinkConfig]

_open: dict[_Key, SparkSink] = {}
_lock = threading.Lock()


def new_sink(spark: SparkSession, address: str, config: SparkSinkConfig) -> SparkSink:
    """Open a sink for a member that starts: its table may be another one since the last member did.

    Raises:
        ConfigurationError: the session is one of Spark Connect.
        SinkError: as of `SparkSink`.
    """
    key = _key(spark, address, config)
    with _lock:
        _open[key] = SparkSink(spark, address, config)
        return _open[key]


def open_sink(spark: SparkSession, address: str, config: SparkSinkConfig) -> SparkSink:
    """Return the sink of an application at an address, and open it if it is not open.

    Raises:
        ConfigurationError: the session is one of Spark Connect.
        SinkError: as of `SparkSink`.
    """
    key = _key(spark, address, config)
    with _lock:
        if key not in _open:
            _open[key] = SparkSink(spark, address, config)
        return _open[key]


def _key(spark: SparkSession, address: str, config: SparkSinkConfig) -> _Key:
    if connect.is_connect(spark):
        # Its client neither reads the log of the table, nor keeps the server from committing once it has ended.
        raise ConfigurationError(
            f"The sink {address} needs a classic session, whose JVM is in this program; this one is of Spark Connect.",
            "Run the program beside a JVM of its own (sharegroup[spark], without SPARK_REMOTE), or use a ShareConsumer "
            "with the key sink, which needs no Spark.",
        )
    return classic.application_id(spark), address, config
