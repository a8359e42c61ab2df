"""A member of a scenario: a share consumer of either library, and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from confluent_kafka import AcknowledgeType

from tests.kafka.side_by_side import scenario
from tests.kafka.side_by_side.outcome import Delivery
from tests.support.eventually import DEADLINE_S

ACKNOWLEDGE_TYPES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""Kafka's; ours takes them, too."""
POLL_S = 0.2


class ShareConsumer(Protocol):
    """The methods of the share consumers of both libraries."""

    def subscribe(self, topics: list[str]) -> None: ...
    def poll(self, timeout: float) -> Any: ...
    def acknowledge_offset(self, topic: str, partition: int, offset: int, ack_type: AcknowledgeType) -> None: ...
    def commit_sync(self, timeout: float) -> object: ...
    def commit_async(self) -> None: ...
    def set_acknowledgement_commit_callback(self, callback: Callable[[Any, Any], None]) -> None: ...
    def close(self) -> None: ...


class Member:
    """A member that has joined.

    Args:
        consumer: it is closed by `close`.
        topic: subscribed to.
        spec: how it acknowledges.
        name_of: the name of the record of a message.
    """

    def __init__(
        self, consumer: ShareConsumer, topic: str, spec: scenario.Member, name_of: Callable[[Any], str]
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._spec = spec
        self._name_of = name_of
        self._open: dict[tuple[int, int], Delivery] = {}
        """Deliveries without a result, by partition and offset."""
        consumer.set_acknowledgement_commit_callback(self._committed)
        consumer.subscribe([topic])

    @property
    def has_pending(self) -> bool:
        """True if an acknowledgement, or one that the consumer makes by itself, has no result yet."""
        return any(delivery.acknowledgement or self._spec.mode == "implicit" for delivery in self._open.values())

    def polled(self) -> list[Delivery]:
        """Poll once."""
        self._accept_if_implicit()
        deliveries = []
        for message in self._consumer.poll(POLL_S):
            assert message.error() is None, message.error()
            delivery = Delivery(self._name_of(message), message.delivery_count())
            self._open[message.partition(), message.offset()] = delivery
            deliveries.append(delivery)
        return deliveries

    def say(self, delivery: Delivery, acknowledgement: scenario.Say) -> None:
        """Acknowledge a delivery; it is not sent yet. In implicit mode the consumer accepts it by itself."""
        if self._spec.mode == "implicit":
            return
        (offset_key,) = [offset_key for offset_key, candidate in self._open.items() if candidate is delivery]
        self._consumer.acknowledge_offset(self._topic, *offset_key, ACKNOWLEDGE_TYPES[acknowledgement])
        delivery.acknowledgement = acknowledgement

    def held(self, record: str) -> Delivery:
        """The delivery of a record that has no result yet."""
        (held,) = [delivery for delivery in self._open.values() if delivery.record == record]
        return held

    def commit(self) -> None:
        """Send the acknowledgements, in the member's way; where that is by polls, the next poll does it."""
        if self._spec.commit != "poll":
            self._accept_if_implicit()
        if self._spec.commit == "sync":
            self._consumer.commit_sync(DEADLINE_S)
        elif self._spec.commit == "async":
            self._consumer.commit_async()

    def close(self) -> None:
        """Leave; the acknowledgements are sent, the rest is released."""
        self._consumer.close()

    def _accept_if_implicit(self) -> None:
        if self._spec.mode == "implicit":
            for delivery in self._open.values():
                delivery.acknowledgement = "accept"

    def _committed(self, offsets: Mapping[Any, set[int]], exception: Any) -> None:
        for offset_key in _places(offsets):
            # Offsets without a record are acknowledged, too, and nobody polled them.
            if (delivery := self._open.pop(offset_key, None)) is not None:
                delivery.result = "ok" if exception is None else exception.args[0].name()


def _places(offsets: Mapping[Any, set[int]]) -> Iterator[tuple[int, int]]:
    for partition, acknowledged in offsets.items():
        for offset in acknowledged:
            yield partition.partition, offset
