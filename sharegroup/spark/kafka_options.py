"""Options of Spark's Kafka source: the cluster, the log-in, and how long an outage is waited for."""

from __future__ import annotations

from sharegroup.config.kafka import KafkaConfig
from sharegroup.spark.session import check_kafka_source

KAFKA_FORMAT = "kafka"
"""Name for `spark.read.format` and `spark.readStream.format`."""


def kafka_options(config: KafkaConfig) -> dict[str, str]:
    """Options for every read of a cluster; hold secrets.

    Raises:
        EnvironmentNotReadyError: Spark's Kafka source is on no class path.
        ConfigurationError: a PEM file cannot be read.
    """
    check_kafka_source()
    return {f"kafka.{key}": value for key, value in config.java_client_properties().items()}
