"""The state table as records of Kafka's topic `__share_group_state`, for whoever wants to read or load them there."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from sharegroup.protocol.kafka_export import to_kafka_record
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.share_state_records import ShareStateRecord, encoded

_TOMBSTONE = "Tombstone"


def kafka_records(rows: Iterable[StateRow]) -> Iterator[ShareStateRecord]:
    """The records that Kafka would have written, in the order of the rows; it has none for some of them."""
    return (record for row in rows if (record := to_kafka_record(row)) is not None)


def record_document(record: ShareStateRecord) -> dict[str, Any]:
    """A record as a JSON object: its fields by name, and the bytes of key and value in base64.

    Raises:
        KafkaRecordError: a value does not fit its field in Kafka.
    """
    key, value = encoded(record)
    return {
        "type": type(record.value).__name__ if record.value is not None else _TOMBSTONE,
        "key": asdict(record.key),
        "value": asdict(record.value) if record.value is not None else None,
        "key_base64": b64encode(key).decode(),
        "value_base64": b64encode(value).decode() if value is not None else None,
    }
