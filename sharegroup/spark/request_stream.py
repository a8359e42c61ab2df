"""The request log as a stream: from the embedded log by this package's source, from Kafka by Spark's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import Settings
from sharegroup.logs.open import ENDLESS_MS
from sharegroup.spark.kafka_options import KAFKA_FORMAT, kafka_options
from sharegroup.spark.local_log_source import FORMAT

POLLING_DELAY_MS = 50
"""How long an idle query waits between two looks at the ends of Kafka's partitions; each look is a request."""

_PATIENCE = {
    # While Kafka is away the driver and its tasks wait: a query that failed would be started again to do the same. A
    # consumer looks up its position within the default API timeout, and fetches within the poll timeout.
    "fetchOffset.numRetries": str(ENDLESS_MS),
    "kafkaConsumer.pollTimeoutMs": str(ENDLESS_MS),
    "kafka.default.api.timeout.ms": str(ENDLESS_MS),
    # A broker that comes back is asked again within seconds.
    "kafka.request.timeout.ms": "10000",
    "kafka.reconnect.backoff.max.ms": "1000",
}
_COLUMNS = ("partition", "offset", "timestamp", "value")


def request_stream(spark: SparkSession, settings: Settings, start_offsets: Mapping[int, int]) -> DataFrame:
    """The messages of the request log: partition, offset, timestamp (the log's own), value.

    Args:
        spark: the session that reads them.
        settings: where the log is, and how much a micro-batch takes.
        start_offsets: partition → first offset that a query without a checkpoint reads.

    Raises:
        EnvironmentNotReadyError: the log is in Kafka, and Spark's source for it is on no class path.
    """
    config, log = settings.processor, settings.log
    stream = spark.readStream.option("maxOffsetsPerTrigger", str(config.max_requests_per_batch))
    if isinstance(log, KafkaConfig):
        starts = {config.request_topic_name: start_offsets}
        stream = (
            stream.format(KAFKA_FORMAT)
            .options(**kafka_options(log), **_PATIENCE)
            .option("subscribe", config.request_topic_name)
            .option("startingOffsets", json.dumps(starts))
        )
        return stream.load().select(*_COLUMNS)
    stream = (
        stream.format(FORMAT)
        .option("path", str(Path(log).absolute()))
        .option("topic", config.request_topic_name)
        .option("startingOffsets", json.dumps(dict(start_offsets)))
    )
    return stream.load().withColumnRenamed("timestamp_ms", "timestamp").select(*_COLUMNS)
