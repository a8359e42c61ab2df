"""The topic of a dead-letter queue: its lookup, its creation, and appends of dead-letter records to it (KIP-1191)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sharegroup.errors import ConfigurationError, RecordTooLargeError, UnknownTopicError
from sharegroup.logs.port import CREATE_TIME, TIMESTAMP_TYPE_CONFIG, Log, NewRecord, TopicDescription

GROUP_ENABLE_CONFIG = "errors.deadletterqueue.group.enable"
"""Topic configuration key of Kafka 4.4: true if groups may use the topic as dead-letter queue."""
NOT_COPIED_HEADER = "__dlq.errors.record.not.copied"
"""Header of ours: why a dead-letter record has neither key nor value, although the group has its records copied."""

_CREATED_PARTITIONS = 1
_CREATED_CONFIG = {TIMESTAMP_TYPE_CONFIG: CREATE_TIME}


def dead_letter_topic(log: Log, name: str, internal_topics: Collection[str], may_create: bool) -> TopicDescription:
    """Return the topic that dead-letter records are appended to; create it when it is missing and may be created.

    Args:
        log: the log.
        name: `errors.deadletterqueue.topic.name` of the group.
        internal_topics: topics that cannot be a dead-letter queue.
        may_create: `errors.deadletterqueue.auto.create.topics.enable` of the broker.

    Raises:
        ConfigurationError: there is no such topic, or groups may not use it.
        LogError: the log cannot be read.
    """
    if not name:
        raise ConfigurationError(
            "The group has no dead-letter queue any more, but records that wait for their dead-letter records.",
            "Set errors.deadletterqueue.topic.name again.",
        )
    if name in internal_topics:
        raise ConfigurationError(
            f"Dead-letter topic {name} is an internal topic.", "Set errors.deadletterqueue.topic.name to another one."
        )
    try:
        topic = log.describe_topic(name)
    except UnknownTopicError:
        if may_create:
            return _created(log, name)
        raise ConfigurationError(
            f"Dead-letter topic {name} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false.",
            "Create it, or set the key to true.",
        ) from None
    # Brokers before Kafka 4.4 do not know the key; there, and in the embedded log, a topic may be without it.
    if topic.config.get(GROUP_ENABLE_CONFIG, "true") != "true":
        raise ConfigurationError(
            f"Topic {name} is no dead-letter topic: its {GROUP_ENABLE_CONFIG} is {topic.config[GROUP_ENABLE_CONFIG]}.",
            f"Set {GROUP_ENABLE_CONFIG} of the topic to true, or errors.deadletterqueue.topic.name to another one.",
        )
    return topic


def append_dead_letter_records(log: Log, topic: str, records: Mapping[int, Sequence[NewRecord]]) -> int:
    """Append dead-letter records by partition, together if the topic takes them all as they are.

    A record that is too large with the copy of its source is appended without it.

    Returns:
        Number of records that were appended without the copy.

    Raises:
        LogError: they cannot be appended, or one is too large without a copy; some may have been appended.
    """
    try:
        log.append_all([(topic, partition, batch) for partition, batch in records.items()])
    except RecordTooLargeError:
        return sum(_append_halves(log, topic, partition, batch) for partition, batch in records.items())
    return 0


def _append_halves(log: Log, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
    """Append records of which some may be too large: a log names neither the record, nor if it was only their sum."""
    try:
        log.append(topic, partition, records)
    except RecordTooLargeError as error:
        middle = len(records) // 2
        if middle:
            halves = (records[:middle], records[middle:])
            return sum(_append_halves(log, topic, partition, half) for half in halves)
        record = records[0]
        if record.key is None and record.value is None:
            raise
        reason = (NOT_COPIED_HEADER, str(error).encode())
        log.append(topic, partition, [replace(record, key=None, value=None, headers=(*record.headers, reason))])
        return 1
    return 0


def _created(log: Log, name: str) -> TopicDescription:
    enabled = {GROUP_ENABLE_CONFIG: "true", **_CREATED_CONFIG}
    try:
        return log.create_topic(name, _CREATED_PARTITIONS, enabled, if_not_exists=True)
    except ConfigurationError:
        # Brokers before Kafka 4.4 refuse the key.
        return log.create_topic(name, _CREATED_PARTITIONS, _CREATED_CONFIG, if_not_exists=True)
