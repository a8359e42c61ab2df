"""Properties of topics in any log: their ids, and the keys of their configuration as in Kafka's `TopicConfig`."""

from __future__ import annotations

import base64
import os

RETENTION_MS_CONFIG = "retention.ms"
RETENTION_BYTES_CONFIG = "retention.bytes"
CLEANUP_POLICY_CONFIG = "cleanup.policy"
MAX_MESSAGE_BYTES_CONFIG = "max.message.bytes"
DEAD_LETTER_QUEUE_ENABLE_CONFIG = "errors.deadletterqueue.group.enable"
"""Of Kafka 4.4: true if groups may use the topic as dead-letter queue."""
TIMESTAMP_TYPE_CONFIG = "message.timestamp.type"
"""The source of timestamps: `CREATE_TIME` (the producer) or `LOG_APPEND_TIME` (the log)."""

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

_RESERVED_COUNT = 100


def new_topic_id() -> str:
    """Return a random id, which tells a topic from an earlier one of the same name (KIP-516).

    It has 16 bytes in Kafka's form: URL-safe base64 without padding, 22 characters.

    As `org.apache.kafka.common.Uuid.randomUuid` does, it avoids the first hundred ids, which are reserved, and a
    leading dash, which command lines would parse as an option.
    """
    while True:
        identity = os.urandom(16)
        text = base64.urlsafe_b64encode(identity).rstrip(b"=").decode("ascii")
        if int.from_bytes(identity) >= _RESERVED_COUNT and not text.startswith("-"):
            return text
