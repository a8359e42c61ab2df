"""Configuration of a share consumer, parsed from confluent-kafka's keys; its errors have confluent-kafka's types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sharegroup.client.client_events import ClientEvents
from sharegroup.client.connection_settings import ClientValues, ConnectionSettings
from sharegroup.client.kafka_exceptions import construction_error, kafka_exception
from sharegroup.client.settings import ChannelTopics, FetchSettings, MemberSettings, channel_topics
from sharegroup.config.connections import PASSED
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.members import CONSUMER_REFUSED, ShareConsumerConfig
from sharegroup.config.table_location import TableLocation
from sharegroup.core.acquisition import AcquireMode
from sharegroup.errors import ConfigurationError, ShareGroupError
from sharegroup.logs.port import Log

MAX_AHEAD_RECORDS = 100_000
"""Maximum number of records of a fetch. A group's `share.partition.max.record.locks` mostly allows fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The parts of a consumer's configuration.

    Attributes:
        connection: where its log is, and how it connects.
        config: the configuration of the consumer itself.
        member: the settings of its member.
        sink: the table that its results are written to exactly once; None without one.
    """

    connection: ConnectionSettings
    config: ShareConsumerConfig
    member: MemberSettings
    sink: TableLocation | None = None


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
    values = ClientValues.of({**(config or {}), **further})
    _check_keys(values.by_key)
    try:
        connection = values.connection()
        consumer = ShareConsumerConfig.from_mapping(values.own())
    except ConfigurationError as error:
        raise construction_error(error) from error
    member = _member_settings(consumer, channel_topics(values.by_key))
    sink = TableLocation(consumer.sink, consumer.sink_storage) if consumer.sink else None
    return ConsumerSettings(connection=connection, config=consumer, member=member, sink=sink)


def open_consumer_log(settings: ConsumerSettings, events: ClientEvents) -> Log:
    """Open the log of a consumer.

    Args:
        events: gets what the clients of the log report.

    Raises:
        ValueError: values contradict each other, or a file that they name cannot be used.
        KafkaException: a value is not acceptable, or the log cannot be opened.
    """
    try:
        return settings.connection.open(events)
    except ConfigurationError as error:
        raise construction_error(error) from error
    except ShareGroupError as error:
        raise kafka_exception(error) from error


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
