"""The request and response topics: created at the first start, checked at every one."""

from __future__ import annotations

import time
from collections.abc import Callable

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.missing_topic import MissingTopic
from sharegroup.logs.port import Log, TopicDescription
from sharegroup.logs.topic_properties import (
    CLEANUP_POLICY_CONFIG,
    LOG_APPEND_TIME,
    MAX_MESSAGE_BYTES_CONFIG,
    RETENTION_BYTES_CONFIG,
    RETENTION_MS_CONFIG,
    TIMESTAMP_TYPE_CONFIG,
)
from sharegroup.processor.message_retention import SHORTEST_RETENTION_MS
from sharegroup.processor.watches.topic_view import INTERVAL_S

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A large acknowledgement or group description exceeds Kafka's default of a megabyte."""

_UNLIMITED = "-1"


def ensure_topics(log: Log, config: ProcessorConfig) -> TopicDescription:
    """Create the request and response topics when they are missing, and check them; return the request topic.

    Raises:
        ConfigurationError: a topic has another partition count, its messages are not stamped by the log, or they are
            deleted too soon.
        LogError: the log cannot be read or written.
    """
    request_topic = _ensured(log, config, config.request_topic_name, "request.topic.partitions")
    response_topic = _ensured(log, config, config.response_topic_name, "response.topic.partitions")
    _check(
        request_topic,
        TIMESTAMP_TYPE_CONFIG,
        LOG_APPEND_TIME,
        lambda value: value == LOG_APPEND_TIME,
        "locks end by the log's own time, not by a producer's clock",
    )
    if not isinstance(log, LocalLog):
        for topic in (request_topic, response_topic):
            _check_retention(topic, config)
    return request_topic


def ensure_response_topic(log: Log, config: ProcessorConfig) -> None:
    """Create the response topic again: members repeat the requests whose responses were lost with it.

    Raises:
        ConfigurationError: another program created it, with another partition count.
        LogError: the log cannot be read or written.
    """
    _ensured(log, config, config.response_topic_name, "response.topic.partitions")


def check_request_topic(
    log: Log, config: ProcessorConfig, topic_id: str, pause: Callable[[float], None] = time.sleep
) -> None:
    """Check that the request topic is still the one that the processor reads.

    One lookup without the topic proves nothing, since brokers' metadata lags: the lookup is repeated for some seconds.

    Args:
        topic_id: id of the topic that the processor reads.
        pause: waits for some seconds before the next lookup.

    Raises:
        UnknownTopicError: it is another topic; a restarted processor continues from the state table.
        LogError: the log cannot be read.
    """
    missing, paused_s = MissingTopic(), 0.0
    while not (present_id := _present_id(log, config)) and not missing.take_missing(paused_s):
        pause(INTERVAL_S)
        paused_s += INTERVAL_S
    if present_id != topic_id:
        raise UnknownTopicError(
            f"The request topic {config.request_topic_name} was deleted"
            f"{' and created again' if present_id else ''} while the processor ran.",
            "Start the processor again: it goes on from the state table, and members send again what was lost.",
        )


def _present_id(log: Log, config: ProcessorConfig) -> str:
    """Return the id of the request topic that one lookup finds; "" when it finds none."""
    try:
        return log.describe_topic(config.request_topic_name).topic_id
    except UnknownTopicError:
        return ""


def _ensured(log: Log, config: ProcessorConfig, name: str, count_key: str) -> TopicDescription:
    count = config.value(count_key)
    topic = log.create_topic(name, count, _topic_config(log, config), if_not_exists=True)
    if topic.partition_count != count:
        raise ConfigurationError(
            f"{count_key} is {count}, but topic {name} has {topic.partition_count} partitions.",
            f"Set {count_key} to {topic.partition_count}: the count is fixed by the first start.",
        )
    return topic


def _topic_config(log: Log, config: ProcessorConfig) -> dict[str, str]:
    stamped = {TIMESTAMP_TYPE_CONFIG: LOG_APPEND_TIME}
    if isinstance(log, LocalLog):
        # The maintenance deletes its messages, and it accepts any that fits into memory.
        return stamped
    return stamped | {
        CLEANUP_POLICY_CONFIG: "delete",
        RETENTION_MS_CONFIG: str(_retention_ms(config)),
        RETENTION_BYTES_CONFIG: _UNLIMITED,
        MAX_MESSAGE_BYTES_CONFIG: str(MAX_MESSAGE_BYTES),
    }


def _retention_ms(config: ProcessorConfig) -> int:
    return max(config.audit_retention_ms, SHORTEST_RETENTION_MS)


def _check_retention(topic: TopicDescription, config: ProcessorConfig) -> None:
    least_ms = _retention_ms(config)
    _check(topic, CLEANUP_POLICY_CONFIG, "delete", lambda value: value == "delete", "compaction would delete messages")
    _check(
        topic,
        RETENTION_MS_CONFIG,
        str(least_ms),
        lambda value: value == _UNLIMITED or int(value) >= least_ms,
        "messages are kept for audit.retention.ms, and for an hour at least",
    )
    _check(
        topic,
        RETENTION_BYTES_CONFIG,
        _UNLIMITED,
        lambda value: value == _UNLIMITED,
        "how long messages are kept must not depend on how many there are",
    )


def _check(topic: TopicDescription, key: str, needed: str, is_valid: Callable[[str], bool], reason: str) -> None:
    value = topic.config.get(key, "")
    if not value or not is_valid(value):
        raise ConfigurationError(
            f"Topic {topic.name} has {key}={value}, but {needed} is needed: {reason}.",
            f"Set {key}={needed} of topic {topic.name}.",
        )
