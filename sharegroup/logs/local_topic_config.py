"""The local log's topics: their names, and the keys, bounds and effective values of their configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sharegroup.config.model import is_topic_name
from sharegroup.errors import ConfigurationError
from sharegroup.logs.topic_properties import (
    CLEANUP_POLICY_CONFIG,
    CREATE_TIME,
    DEAD_LETTER_QUEUE_ENABLE_CONFIG,
    LOG_APPEND_TIME,
    MAX_MESSAGE_BYTES_CONFIG,
    RETENTION_BYTES_CONFIG,
    RETENTION_MS_CONFIG,
    TIMESTAMP_TYPE_CONFIG,
)

_DELETE = "delete"
_UNLIMITED = -1
_CHOICES = {
    TIMESTAMP_TYPE_CONFIG: (CREATE_TIME, LOG_APPEND_TIME),
    CLEANUP_POLICY_CONFIG: (_DELETE,),
    DEAD_LETTER_QUEUE_ENABLE_CONFIG: ("true", "false"),
}
"""Key → its accepted values."""
_LOWEST = {RETENTION_MS_CONFIG: _UNLIMITED, RETENTION_BYTES_CONFIG: _UNLIMITED, MAX_MESSAGE_BYTES_CONFIG: 0}
"""Key of a number → its minimum."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective configuration of a topic.

    Attributes:
        is_log_append_time: True if the log stamps the records.
        retention_ms: age at which records may be deleted; None is never.
        retention_bytes: bytes of a partition that are retained; None is all.
        max_message_bytes: maximum bytes of a record's key, value and headers; None is the maximum of the log.
    """

    is_log_append_time: bool
    retention_ms: int | None
    retention_bytes: int | None
    max_message_bytes: int | None

    @property
    def has_retention(self) -> bool:
        """Return True if records may be deleted by time or size."""
        return self.retention_ms is not None or self.retention_bytes is not None


@lru_cache(maxsize=1_000)
def topic_config(stored: str) -> TopicConfig:
    """Return the effective configuration from its stored form."""
    config = json.loads(stored)
    return TopicConfig(
        config.get(TIMESTAMP_TYPE_CONFIG) == LOG_APPEND_TIME,
        _limit(config, RETENTION_MS_CONFIG),
        _limit(config, RETENTION_BYTES_CONFIG),
        _limit(config, MAX_MESSAGE_BYTES_CONFIG),
    )


def check_topic(name: str, partition_count: int, config: Mapping[str, str]) -> None:
    """Check that a topic can be created.

    Raises:
        ConfigurationError: the name, the partition count or a configuration value is not acceptable.
    """
    if not is_topic_name(name):
        raise ConfigurationError(
            f"The topic name {name!r} is not legal.",
            "Use 1 to 249 letters, digits, dots, underscores and dashes, but neither '.' nor '..'.",
        )
    if partition_count < 1:
        raise ConfigurationError(f"The partition count of topic {name} is {partition_count}.", "It must be at least 1.")
    _check_config(name, config)


def _check_config(topic: str, config: Mapping[str, str]) -> None:
    """Check that the local log supports a configuration."""
    for key, value in config.items():
        if key in _CHOICES:
            if value not in _CHOICES[key]:
                raise ConfigurationError(f"{key} of topic {topic} is {value!r}.", f"Use {' or '.join(_CHOICES[key])}.")
        elif key in _LOWEST:
            if not _is_int(value) or not _LOWEST[key] <= int(value) < 2**63:
                bound = f"a whole number from {_LOWEST[key]} on"
                raise ConfigurationError(f"{key} of topic {topic} is {value!r}.", f"It must be {bound}.")
        else:
            known = ", ".join(sorted([*_CHOICES, *_LOWEST]))
            raise ConfigurationError(
                f"Unknown configuration {key} of topic {topic}.", f"Topics of the embedded log have {known}."
            )


def _limit(config: Mapping[str, str], key: str) -> int | None:
    value = config.get(key, "")
    # Earlier releases accepted any value.
    return int(value) if _is_int(value) and int(value) >= 0 else None


def _is_int(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()
