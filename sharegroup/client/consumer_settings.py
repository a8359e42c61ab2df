"""From the configuration dict of a share consumer to its settings, with confluent-kafka's kinds of errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sharegroup.client.kafka_types import KafkaError, KafkaException
from sharegroup.client.settings import ChannelTopics, FetchSettings, MemberSettings
from sharegroup.config.consumer import CONSUMER_REFUSED, ShareConsumerConfig
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.processor import ProcessorConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.errors import ConfigurationError

LOG_PATH = "log.path"
BOOTSTRAP_SERVERS = "bootstrap.servers"
LOG_KEYS = (LOG_PATH, *KafkaConfig.key_names())
"""What says where the log is."""
CHANNEL_TOPIC_KEYS = ("request.topic.name", "response.topic.name")
"""Names of the topics between members and the processor, where they are not the defaults."""
MAX_AHEAD_RECORDS = 100_000
"""Records that a fetch asks for at most. A group's `share.partition.max.record.locks` mostly ends it before."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What a share consumer was told.

    Attributes:
        log: path or address of the log, or the Kafka cluster that it is in.
        consumer: the consumer's own configuration.
        member: settings of its group member.
    """

    log: str | KafkaConfig
    consumer: ShareConsumerConfig
    member: MemberSettings


def consumer_settings(config: object) -> ConsumerSettings:
    """The settings that a configuration dict asks for.

    Raises:
        TypeError: it is not a dict.
        ValueError: group.id is missing, or a key is not for share consumers.
        KafkaException: a key is unknown, or a value is not acceptable.
    """
    if not isinstance(config, dict):
        raise TypeError("expected configuration dict")
    refused = next((key for key in config if key in CONSUMER_REFUSED), None)
    if refused is not None:
        raise ValueError(
            f"Failed to create share consumer: `{refused}` is not applicable for share consumer. "
            f"{CONSUMER_REFUSED[refused]}"
        )
    if not config.get("group.id"):
        raise ValueError("Failed to create consumer: group.id must be set")
    own = {key: config[key] for key in config if key not in (*LOG_KEYS, *CHANNEL_TOPIC_KEYS)}
    try:
        log = log_address(config)
        consumer = ShareConsumerConfig.from_mapping(own)
    except ConfigurationError as error:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(error))) from error
    return ConsumerSettings(log, consumer, _member_settings(consumer, channel_topics(config)))


def log_address(config: Mapping[str, object]) -> str | KafkaConfig:
    """The log that LOG_KEYS name: a path or address, or a Kafka cluster.

    Raises:
        ConfigurationError: they name none or two, or a value is not acceptable.
    """
    path, servers = config.get(LOG_PATH), config.get(BOOTSTRAP_SERVERS)
    if path and servers:
        raise ConfigurationError(f"{LOG_PATH} and {BOOTSTRAP_SERVERS} are both set.", "A consumer has one log.")
    if servers:
        return KafkaConfig.from_mapping({key: config[key] for key in KafkaConfig.key_names() if key in config})
    if not path:
        raise ConfigurationError(
            f"Missing required configuration {BOOTSTRAP_SERVERS} or {LOG_PATH}, which have no default value.",
            f"Set {BOOTSTRAP_SERVERS} for Kafka, or {LOG_PATH}: {ProcessorConfig.model_fields['log_path'].description}",
        )
    return str(path)


def channel_topics(config: Mapping[str, object]) -> ChannelTopics:
    """The topics that CHANNEL_TOPIC_KEYS name."""
    names = {key.replace(".", "_"): str(config[key]) for key in CHANNEL_TOPIC_KEYS if key in config}
    return ChannelTopics(**names)


def _member_settings(consumer: ShareConsumerConfig, topics: ChannelTopics) -> MemberSettings:
    acquire_mode = AcquireMode(consumer.share_acquire_mode)
    return MemberSettings(
        group_id=consumer.group_id,
        client_id=consumer.client_id,
        rack_id=consumer.client_rack,
        fetch=FetchSettings(
            max_records=consumer.max_poll_records,
            max_ahead_records=0 if acquire_mode is AcquireMode.RECORD_LIMIT else MAX_AHEAD_RECORDS,
            batch_size=consumer.max_poll_records,
            acquire_mode=acquire_mode,
            max_wait_ms=consumer.fetch_max_wait_ms,
            request_timeout_ms=consumer.request_timeout_ms,
            acknowledge_timeout_ms=consumer.default_api_timeout_ms,
        ),
        max_poll_interval_ms=consumer.max_poll_interval_ms,
        topics=topics,
    )
