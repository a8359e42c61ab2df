"""Options of Spark's Kafka source that every read needs: the cluster, the log-in, and how its consumers behave."""

from __future__ import annotations

from sharegroup.config.kafka import KafkaConfig
from sharegroup.spark.session import check_kafka_source

KAFKA_FORMAT = "kafka"
"""Name for `spark.read.format` and `spark.readStream.format`."""

_SETTINGS = {
    # A topic that was deleted must not come back with a broker's defaults: it is another one.
    "kafka.allow.auto.create.topics": "false",
    # A task asks for offsets that are there already. What its consumer fetches beyond them in advance would wait for
    # new records at the broker, half a second by default, and its next request on that connection for that.
    "kafka.fetch.max.wait.ms": "10",
}


def kafka_options(config: KafkaConfig) -> dict[str, str]:
    """Options for every read of a cluster; hold secrets.

    Raises:
        EnvironmentNotReadyError: Spark's Kafka source is on no class path.
        ConfigurationError: a PEM file cannot be read.
    """
    check_kafka_source()
    return _SETTINGS | {f"kafka.{key}": value for key, value in config.java_client_properties().items()}
