"""The topic of a dead-letter queue: whether letters may be written to it, and its creation (KIP-1191)."""

from __future__ import annotations

from collections.abc import Collection

from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.logs.port import CREATE_TIME, TIMESTAMP_TYPE_CONFIG, Log, TopicDescription

GROUP_ENABLE_CONFIG = "errors.deadletterqueue.group.enable"
"""Topic configuration key of Kafka 4.4: whether groups may use the topic as dead-letter queue."""

_CREATED_PARTITIONS = 1
_CREATED_CONFIG = {TIMESTAMP_TYPE_CONFIG: CREATE_TIME}


def dead_letter_topic(log: Log, name: str, internal_topics: Collection[str], may_create: bool) -> TopicDescription:
    """The topic that letters are written to; created when it does not exist and may be.

    Args:
        log: the log.
        name: `errors.deadletterqueue.topic.name` of the group.
        internal_topics: topics that are nobody's dead-letter queue.
        may_create: `errors.deadletterqueue.auto.create.topics.enable` of the broker.

    Raises:
        ConfigurationError: there is no such topic that may be written to.
        LogError: the log cannot say.
    """
    if not name:
        raise ConfigurationError(
            "The group has no dead-letter queue any more, but records that wait for their dead letters.",
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
    # Brokers before Kafka 4.4 do not know the key; there, and in the embedded log, a topic may say nothing.
    if topic.config.get(GROUP_ENABLE_CONFIG, "true") != "true":
        raise ConfigurationError(
            f"Topic {name} is no dead-letter topic: its {GROUP_ENABLE_CONFIG} is {topic.config[GROUP_ENABLE_CONFIG]}.",
            f"Set {GROUP_ENABLE_CONFIG} of the topic to true, or errors.deadletterqueue.topic.name to another one.",
        )
    return topic


def _created(log: Log, name: str) -> TopicDescription:
    enabled = {GROUP_ENABLE_CONFIG: "true", **_CREATED_CONFIG}
    try:
        return log.create_topic(name, _CREATED_PARTITIONS, enabled, if_not_exists=True)
    except ConfigurationError:
        # Brokers before Kafka 4.4 refuse the key.
        return log.create_topic(name, _CREATED_PARTITIONS, _CREATED_CONFIG, if_not_exists=True)
