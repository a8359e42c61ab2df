"""Options of Spark's Kafka source that every read needs: the cluster, the log-in, and reading without a wait."""

from __future__ import annotations

from sharegroup.config.kafka import KafkaConfig
from sharegroup.spark.session import check_kafka_source

KAFKA_FORMAT = "kafka"
"""Name for `spark.read.format` and `spark.readStream.format`."""

_NO_WAIT = {
    # A task asks for offsets that are there already. What its consumer fetches beyond them in advance would wait for
    # new records at the broker, half a second by default, and its next request on that connection for that.
    "kafka.fetch.max.wait.ms": "10"
}


def kafka_options(config: KafkaConfig) -> dict[str, str]:
    """Options for every read of a cluster; hold secrets.

    Raises:
        EnvironmentNotReadyError: Spark's Kafka source is on no class path.
        ConfigurationError: a PEM file cannot be read.
    """
    check_kafka_source()
    return _NO_WAIT | {f"kafka.{key}": value for key, value in config.java_client_properties().items()}
