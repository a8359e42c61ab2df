"""Configuration of a share consumer, parsed from confluent-kafka's keys; its errors have confluent-kafka's types."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharegroup.client.client_events import ClientEvents, take_callbacks
from sharegroup.client.kafka_exceptions import construction_error, kafka_exception
from sharegroup.client.settings import (
    BOOTSTRAP_SERVERS,
    CHANNEL_TOPIC_KEYS,
    LOG_KEYS,
    ChannelTopics,
    FetchSettings,
    MemberSettings,
    channel_topics,
    log_address,
)
from sharegroup.config.connections import ALIASES, OAUTHBEARER, PASSED
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.members import CONSUMER_REFUSED, ShareConsumerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.errors import ConfigurationError, ShareGroupError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log

MAX_AHEAD_RECORDS = 100_000
"""Maximum number of records of a fetch. A group's `share.partition.max.record.locks` mostly allows fewer."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The parts of a consumer's configuration.

    Attributes:
        log: address of its log.
        properties: keys for the clients of librdkafka.
        callbacks: the application's callbacks and its logger, by key.
        config: the configuration of the consumer itself.
        member: the settings of its member.
    """

    log: str | KafkaConfig
    properties: Mapping[str, object]
    callbacks: Mapping[str, Any]
    config: ShareConsumerConfig
    member: MemberSettings


def consumer_settings(config: object, further: Mapping[str, object]) -> ConsumerSettings:
    """Return the parts of a consumer's configuration dict.

    Args:
        config: the dict; None if there are only keyword arguments.
        further: keyword arguments, which replace the dict's.

    Raises:
        TypeError: config is no dict, or a callback cannot be called.
        ValueError: group.id is missing, a key is not for share consumers, or values contradict each other.
        KafkaException: a key is unknown, or a value is not acceptable.
    """
    if not isinstance(config, dict) and not (config is None and further):
        raise TypeError("expected configuration dict")
    entries = {str(key): value for key, value in {**(config or {}), **further}.items() if value is not None}
    callbacks = take_callbacks(entries)
    values = _by_own_names(entries)
    _check_keys(values)
    properties = _taken_properties(values)
    own = {key: values[key] for key in values if key not in (*LOG_KEYS, *CHANNEL_TOPIC_KEYS)}
    try:
        log = log_address(values)
        consumer = ShareConsumerConfig.from_mapping(own)
    except ConfigurationError as error:
        raise construction_error(error) from error
    if not isinstance(log, KafkaConfig) and (unused := [*properties, *callbacks]):
        _logger.warning("%s: no effect, since the embedded log has no connections.", ", ".join(unused))
    elif consumer.client_id:
        properties["client.id"] = consumer.client_id
    return ConsumerSettings(
        log=log,
        properties=properties,
        callbacks=callbacks,
        config=consumer,
        member=_member_settings(consumer, channel_topics(values)),
    )


def open_consumer_log(settings: ConsumerSettings, events: ClientEvents) -> Log:
    """Open the log of a consumer.

    Args:
        events: gets what the clients of the log report.

    Raises:
        ValueError: values contradict each other, or a file that they name cannot be used.
        KafkaException: a value is not acceptable, or the log cannot be opened.
    """
    try:
        return open_log(settings.log, options=events.options(settings.properties))
    except ConfigurationError as error:
        raise construction_error(error) from error
    except ShareGroupError as error:
        raise kafka_exception(error) from error


def _by_own_names(entries: Mapping[str, object]) -> dict[str, object]:
    """Return the values as texts, as librdkafka takes them, under the names that the keys have here."""
    values: dict[str, object] = {}
    for key, value in entries.items():
        is_number = isinstance(value, int)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        values[ALIASES.get(key, key)] = text if is_number else value
    return values


def _check_keys(values: Mapping[str, object]) -> None:
    refused = next((key for key in values if key in CONSUMER_REFUSED), None)
    if refused is not None:
        raise ValueError(
            f"Failed to create share consumer: `{refused}` is not applicable for share consumer. "
            f"{CONSUMER_REFUSED[refused]}"
        )
    if not values.get("group.id"):
        raise ValueError("Failed to create consumer: group.id must be set")
    misplaced = next((key for key in values if key in KafkaConfig.refused and key not in PASSED), None)
    if misplaced is not None:
        raise kafka_exception(KafkaConfig.unknown_key(misplaced))


def _taken_properties(values: dict[str, object]) -> dict[str, object]:
    """Remove the keys that are passed to librdkafka, and return them.

    A log-in by OAUTHBEARER is librdkafka's alone: `KafkaConfig` is for all programs, and has none.
    """
    passed = set(PASSED)
    if values.get("sasl.mechanism") == OAUTHBEARER and values.get(BOOTSTRAP_SERVERS):
        passed |= {"sasl.mechanism", "security.protocol"}
    return {key: values.pop(key) for key in list(values) if key in passed}


def _member_settings(consumer: ShareConsumerConfig, topics: ChannelTopics) -> MemberSettings:
    acquire_mode = AcquireMode(consumer.share_acquire_mode)
    is_exact = acquire_mode is AcquireMode.RECORD_LIMIT
    # An explicit max.poll.records is used from the first poll on; the default is reached step by step.
    is_set = "max_poll_records" in consumer.model_fields_set
    return MemberSettings(
        group_id=consumer.group_id,
        client_id=consumer.client_id,
        rack_id=consumer.client_rack,
        fetch=FetchSettings(
            max_records=consumer.max_poll_records if is_set else 1,
            max_ahead_records=0 if is_exact else MAX_AHEAD_RECORDS,
            max_poll_records=consumer.max_poll_records,
            batch_size=MAX_AHEAD_RECORDS,
            acquire_mode=acquire_mode,
            max_wait_ms=consumer.fetch_max_wait_ms,
            request_timeout_ms=consumer.request_timeout_ms,
            acknowledge_timeout_ms=consumer.default_api_timeout_ms,
        ),
        max_poll_interval_ms=consumer.max_poll_interval_ms,
        topics=topics,
    )
