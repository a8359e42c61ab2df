"""The Python side of the example: a ShareConsumer that writes flown flights into its own Delta table, exactly once."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from examples.flights.flights import TOPIC, decision, fails_at_first
from sharegroup.client.message import Message
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import WriteFencedError

_FIELDS = ("carrier", "flight", "origin", "dest", "dep_time", "dep_delay", "arr_delay")


def run_member(config: Mapping[str, object], sink: Path) -> None:
    """Consume until SIGTERM: the results of a poll and its acknowledgements are one commit of the sink.

    Args:
        config: configuration of the ShareConsumer.
        sink: its Delta table.
    """
    stopping = False

    def stop(signal_number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    with ShareConsumer({**config, "share.acknowledgement.mode": "explicit", "sink": str(sink)}) as consumer:
        consumer.subscribe([TOPIC])
        while not stopping:
            if messages := consumer.poll(timeout=0.5):
                # If the locks had ended, nothing is written, and the records come again.
                with suppress(WriteFencedError), consumer.transaction() as results:
                    flights = [Flight.of(message) for message in messages]
                    results.append([flight.row for flight in flights if flight.decision is AcknowledgeType.ACCEPT])
                    for message, flight in zip(messages, flights, strict=True):
                        consumer.acknowledge(message, flight.decision)


@dataclass(frozen=True)
class Flight:
    """A consumed flight: its acknowledgement, and its row for the sink."""

    decision: AcknowledgeType
    row: dict[str, object]

    @classmethod
    def of(cls, message: Message) -> Flight:
        """Read a message."""
        value = message.value()
        fields = json.loads(value if isinstance(value, bytes) else b"{}")
        key = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "delivery_count": message.delivery_count(),
        }
        fails = message.delivery_count() == 1 and fails_at_first(message.partition(), message.offset())
        return cls(decision(fields, fails), {**key, **{field: fields[field] for field in _FIELDS}})
