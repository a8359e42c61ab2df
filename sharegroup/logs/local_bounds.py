"""What the local log accepts: topics and records within their bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sharegroup.errors import ConfigurationError, RecordTooLargeError
from sharegroup.logs.local_headers import encode_headers
from sharegroup.logs.port import CREATE_TIME, LOG_APPEND_TIME, TIMESTAMP_TYPE_CONFIG, NewRecord

_LEGAL_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

MAX_RECORD_BYTES = 104_857_600
"""Bytes of a record's key, value and headers, as many as Kafka's `socket.request.max.bytes` has for a request."""


def check_topic(name: str, partition_count: int, config: Mapping[str, str]) -> None:
    """Refuse a topic that cannot be created.

    Raises:
        ConfigurationError: the name, the partition count or a configuration value is not acceptable.
    """
    if not _LEGAL_TOPIC_NAME.fullmatch(name):
        raise ConfigurationError(
            f"The topic name {name!r} is not legal.",
            "Use 1 to 249 letters, digits, dots, underscores and dashes, but neither '.' nor '..'.",
        )
    if partition_count < 1:
        raise ConfigurationError(f"The partition count of topic {name} is {partition_count}.", "It must be at least 1.")
    timestamp_type = config.get(TIMESTAMP_TYPE_CONFIG, CREATE_TIME)
    if timestamp_type not in (CREATE_TIME, LOG_APPEND_TIME):
        raise ConfigurationError(
            f"{TIMESTAMP_TYPE_CONFIG} of topic {name} is {timestamp_type!r}.",
            f"Use {CREATE_TIME} or {LOG_APPEND_TIME}.",
        )


def check_size(topic: str, partition: int, record: NewRecord) -> None:
    """Refuse a record that is too large.

    Raises:
        RecordTooLargeError: it has more than `MAX_RECORD_BYTES`.
    """
    size_bytes = len(record.key or b"") + len(record.value or b"") + len(encode_headers(record.headers) or b"")
    if size_bytes > MAX_RECORD_BYTES:
        raise RecordTooLargeError(
            f"A record for partition {topic}-{partition} has {size_bytes} bytes; the most is {MAX_RECORD_BYTES}.",
            "Append less in one record.",
        )
