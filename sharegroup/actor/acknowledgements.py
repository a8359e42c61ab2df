"""The acknowledgements of a request: each share-partition takes all of its own, or none (KIP-932)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.share_session import PartitionKey
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.errors import ApiError, UnknownTopicOrPartitionError
from sharegroup.protocol.share_fetch import AcknowledgementRange, FetchTopic, PartitionResponse


def acknowledge(
    message: LoggedRequest,
    topics: Iterable[FetchTopic],
    partitions: Mapping[PartitionKey, LedPartition],
    limits: SharePartitionLimits,
) -> dict[PartitionKey, PartitionResponse]:
    """Apply the acknowledgements of a request at its append time.

    Args:
        message: the request.
        topics: the part of its body that holds them.
        partitions: the share-partitions that are led here.
        limits: limits in force.

    Returns:
        Partition → its answer, for the partitions that have acknowledgements.
    """
    asked: dict[PartitionKey, list[AcknowledgementRange]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                key = (topic.topic_id, partition.partition_index)
                asked.setdefault(key, []).extend(partition.acknowledgement_batches)
    return {key: _answer(message, key, ranges, partitions.get(key), limits) for key, ranges in asked.items()}


def _answer(
    message: LoggedRequest,
    key: PartitionKey,
    ranges: Sequence[AcknowledgementRange],
    led: LedPartition | None,
    limits: SharePartitionLimits,
) -> PartitionResponse:
    topic_id, partition = key
    batches = [
        AcknowledgementBatch(r.first_offset, r.last_offset, tuple(r.acknowledge_types), r.redelivery_delay_ms)
        for r in ranges
    ]
    try:
        if led is None:
            raise UnknownTopicOrPartitionError(f"Share-partition {topic_id}-{partition} is not led here.")
        applied = led.share_partition.acknowledge(message.envelope.member_id, batches, limits, message.time_ms)
    except ApiError as error:
        return PartitionResponse(
            partition_index=partition,
            is_acknowledged=True,
            acknowledge_error_code=error.code,
            acknowledge_error_message=str(error),
        )
    led.record(applied, message.time_ms, message.offset, _reason_at(ranges))
    return PartitionResponse(partition_index=partition, is_acknowledged=True)


def _reason_at(ranges: Iterable[AcknowledgementRange]) -> Callable[[int], str]:
    """Offset → the member's words on it, "" when it had none."""
    given = sorted((r.first_offset, r.last_offset, r.reason) for r in ranges if r.reason)

    def reason_at(offset: int) -> str:
        index = bisect_right(given, offset, key=lambda entry: entry[0]) - 1
        return given[index][2] if index >= 0 and offset <= given[index][1] else ""

    return reason_at
