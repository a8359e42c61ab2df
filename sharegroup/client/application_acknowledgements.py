"""The acknowledgements of the application: their arguments, with Kafka's error texts, and the results that it gets."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Collection, Iterable

from sharegroup.client.kafka_exceptions import (
    INVALID_ARGUMENT,
    KafkaError,
    KafkaException,
    TopicPartition,
    kafka_exception,
)
from sharegroup.client.message import AnyMessage, Message
from sharegroup.client.pending_acknowledgements import (
    Acknowledged,
    Acknowledgement,
    OffsetKey,
    RecordAcknowledgement,
)
from sharegroup.core.cause_rules import ANSWER_CAUSE
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.protocol.share_fetch import MAX_REDELIVERY_DELAY_MS

CommitCallback = Callable[[dict[TopicPartition, set[int]], KafkaException | None], object]
"""callback(offsets by partition, exception or None)."""


def message_key(message: AnyMessage) -> OffsetKey:
    """Return the address of the record that the application acknowledges.

    Raises:
        TypeError: it is no message.
        ValueError: it has no address.
    """
    if not isinstance(message, AnyMessage):
        type_name = "None" if message is None else type(message).__name__
        raise TypeError(f"argument 1 must be {Message.__module__}.Message, not {type_name}")
    return check_offset_key("message", message.topic(), message.partition(), message.offset())


def check_offset_key(what: str, topic: str | None, partition: int | None, offset: int | None) -> OffsetKey:
    """Check the address of the acknowledged record, and return it.

    Raises:
        ValueError: a part is missing or negative.
    """
    if topic is None or partition is None or offset is None or partition < 0 or offset < 0:
        raise ValueError(f"Failed to acknowledge {what}: {INVALID_ARGUMENT}")
    return topic, partition, offset


def check_acknowledgement(what: str, ack_type: int, redelivery_delay_ms: int | None) -> RecordAcknowledgement:
    """Check the acknowledgement of a record, and return it.

    Raises:
        TypeError: the type is no integer.
        ValueError: the type is not for applications, or the delay is out of its bounds or of a record that is not
            released.
    """
    code = operator.index(ack_type)
    if code not in ANSWER_CAUSE:
        raise ValueError(f"Failed to acknowledge {what}: {INVALID_ARGUMENT}")
    is_released = code == AcknowledgeType.RELEASE
    if redelivery_delay_ms is not None and not (is_released and 0 <= redelivery_delay_ms <= MAX_REDELIVERY_DELAY_MS):
        raise ValueError(
            f"Failed to acknowledge {what}: redelivery_delay_ms is {redelivery_delay_ms}; it must be from 0 to "
            f"{MAX_REDELIVERY_DELAY_MS}, and the acknowledgement a RELEASE"
        )
    return RecordAcknowledgement(AcknowledgeType(code), redelivery_delay_ms)


def commit_outcome(
    sent: Iterable[Acknowledgement], results: Iterable[Acknowledged], unconfirmed: Collection[PartitionKey]
) -> dict[TopicPartition, KafkaException | None]:
    """Return the result for each partition that the application acknowledged; None is success.

    Args:
        results: responses that arrived meanwhile, to earlier acknowledgements too.
        unconfirmed: partitions without a response in time.
    """
    outcome: dict[TopicPartition, KafkaException | None] = {}
    for acknowledgement in sent:
        if acknowledgement.acknowledge_type in ANSWER_CAUSE:
            is_timeout = acknowledgement.key in unconfirmed
            partition = TopicPartition(acknowledgement.topic, acknowledgement.partition, 0)
            outcome[partition] = KafkaException(KafkaError(KafkaError._TIMED_OUT)) if is_timeout else None
    for result in results:
        partition = TopicPartition(result.topic, result.partition, 0)
        if partition in outcome and result.error is not None:
            outcome[partition] = kafka_exception(result.error)
    return outcome


class CommitCallbackQueue:
    """Results that wait for the next call of the application, without those of gaps and unread records."""

    def __init__(self) -> None:
        self._callback: CommitCallback | None = None
        self._queue: deque[Acknowledged] = deque()

    def set_callback(self, callback: CommitCallback | None) -> None:
        """Set the callback; None clears it.

        Raises:
            TypeError: it is neither callable nor None.
        """
        if callback is not None and not callable(callback):
            raise TypeError("callback must be callable or None")
        self._callback = callback

    def add(self, results: Iterable[Acknowledged]) -> None:
        """Add results to pass to the callback."""
        self._queue.extend(results)

    def serve(self) -> None:
        """Call the callback for each result; after an exception of the callback, the rest waits for the next call."""
        if self._callback is None:
            self._queue.clear()
        while self._queue:
            result = self._queue.popleft()
            offsets = {
                offset
                for acknowledgement in result.acknowledgements
                if acknowledgement.acknowledge_type in ANSWER_CAUSE
                for offset in acknowledgement.offsets
            }
            if offsets and self._callback is not None:
                exception = None if result.error is None else kafka_exception(result.error)
                self._callback({TopicPartition(result.topic, result.partition, 0): offsets}, exception)
