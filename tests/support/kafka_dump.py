"""The records that a Kafka 4.3.1 broker wrote to its internal topics, and its coordinators' responses in the end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch

DUMP = Path(__file__).parents[1] / "audit" / "kafka_dump"
"""All records of 17 groups, decoded by Kafka's own tool, too."""

RESTARTED = DUMP / "restarted"
"""The state topic after a restart and a clean-up: one snapshot for each share-partition, the first of most are gone."""


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a file of a dump."""
    return [json.loads(line) for line in gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).splitlines()]


def key_and_value(line: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """The bytes of a record."""
    return bytes.fromhex(line["key_hex"]), line["value_hex"] and bytes.fromhex(line["value_hex"])


def returned_batches(response: dict[str, Any]) -> list[StateBatch]:
    """The state batches of a coordinator's response."""
    return [
        StateBatch(b["firstOffset"], b["lastOffset"], b["deliveryCount"], RecordState(b["deliveryState"]))
        for b in response["readState"]["stateBatches"]
    ]
