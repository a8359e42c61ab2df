"""Topic ids, which distinguish a topic from an earlier one of the same name (KIP-516)."""

from __future__ import annotations

import base64
import os

_RESERVED_COUNT = 100


def new_topic_id() -> str:
    """Return a random id of 16 bytes in Kafka's form: URL-safe base64 without padding, 22 characters.

    As `org.apache.kafka.common.Uuid.randomUuid` does, it avoids the first hundred ids, which are reserved, and a
    leading dash, which command lines would parse as an option.
    """
    while True:
        identity = os.urandom(16)
        text = base64.urlsafe_b64encode(identity).rstrip(b"=").decode("ascii")
        if int.from_bytes(identity) >= _RESERVED_COUNT and not text.startswith("-"):
            return text
