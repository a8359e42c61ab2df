"""From the configuration dict of a share consumer to its settings, with confluent-kafka's kinds of errors."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.client.kafka_types import KafkaError, KafkaException
from sharegroup.client.settings import FetchSettings, LinkTopics, MemberSettings
from sharegroup.config.consumer import CONSUMER_REFUSED, ShareConsumerConfig
from sharegroup.config.processor import ProcessorConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.errors import ConfigurationError

LOG_PATH = "log.path"
_LINK_KEYS = ("request.topic.name", "response.topic.name")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What a share consumer was told.

    Attributes:
        log_path: address of the log; takes the place of `bootstrap.servers`.
        consumer: the consumer's own configuration.
        member: settings of its group member.
    """

    log_path: str
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
    own = {key: value for key, value in config.items() if key != LOG_PATH and key not in _LINK_KEYS}
    try:
        if "bootstrap.servers" in config:
            raise ConfigurationError("bootstrap.servers has no meaning here.", f"Set {LOG_PATH} instead.")
        if not config.get(LOG_PATH):
            raise ConfigurationError(
                f"Missing required configuration {LOG_PATH} which has no default value.",
                f"Set {LOG_PATH}: {ProcessorConfig.model_fields['log_path'].description}",
            )
        consumer = ShareConsumerConfig.from_mapping(own)
    except ConfigurationError as error:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(error))) from error
    names = {f"{key.replace('.', '_')}": str(config[key]) for key in _LINK_KEYS if key in config}
    return ConsumerSettings(str(config[LOG_PATH]), consumer, _member_settings(consumer, LinkTopics(**names)))


def _member_settings(consumer: ShareConsumerConfig, topics: LinkTopics) -> MemberSettings:
    return MemberSettings(
        group_id=consumer.group_id,
        client_id=consumer.client_id,
        rack_id=consumer.client_rack,
        fetch=FetchSettings(
            max_records=consumer.max_poll_records,
            batch_size=consumer.max_poll_records,
            acquire_mode=AcquireMode(consumer.share_acquire_mode),
            max_wait_ms=consumer.fetch_max_wait_ms,
            request_timeout_ms=consumer.request_timeout_ms,
        ),
        max_poll_interval_ms=consumer.max_poll_interval_ms,
        topics=topics,
    )
