"""The acknowledgements of a request: each share-partition takes all of its own, or none (KIP-932)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.share_session import PartitionKey
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.errors import ApiError, UnknownTopicOrPartitionError
from sharegroup.protocol.share_fetch import AcknowledgementRange, FetchTopic, PartitionResponse


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The outcome of a request's acknowledgements.

    Attributes:
        responses: partition → its answer, for the partitions that have acknowledgements.
        has_effect: whether a record changed its state.
    """

    responses: dict[PartitionKey, PartitionResponse]
    has_effect: bool


def acknowledge(
    message: LoggedRequest,
    topics: Iterable[FetchTopic],
    partitions: LedPartitions,
    limits: SharePartitionLimits,
) -> Acknowledged:
    """Apply the acknowledgements of a request at its append time.

    Args:
        message: the request.
        topics: the part of its body that holds them.
        partitions: the share-partitions that are led here.
        limits: limits in force.
    """
    responses: dict[PartitionKey, PartitionResponse] = {}
    has_effect = False
    refused_topics: set[str] = set()
    for key, ranges in _ranges_by_partition(topics).items():
        led = partitions.get(key)
        batches = [
            AcknowledgementBatch(r.first_offset, r.last_offset, tuple(r.acknowledge_types), r.redelivery_delay_ms)
            for r in ranges
        ]
        try:
            if led is None:
                raise UnknownTopicOrPartitionError("The share-partitions are not led here.")
            applied = led.share_partition.acknowledge(message.envelope.member_id, batches, limits, message.time_ms)
        except ApiError as error:
            # The text of an error that a whole topic has comes once.
            is_repeated = led is None and key[0] in refused_topics
            refused_topics.update(() if led else (key[0],))
            responses[key] = _refused(key, error, "" if is_repeated else str(error))
            continue
        partitions.record(led, applied, message.time_ms, message.offset, _reason_at(ranges))
        has_effect = has_effect or bool(applied)
        responses[key] = PartitionResponse(partition_index=key[1], is_acknowledged=True)
    return Acknowledged(responses, has_effect)


def acknowledged_before(
    topics: Iterable[FetchTopic], refused: Iterable[tuple[str, int, int]]
) -> dict[PartitionKey, PartitionResponse]:
    """The answer to the acknowledgements of a request that is applied already.

    Args:
        topics: the part of its body that holds them.
        refused: topic id, partition and error code where they were refused; the others succeeded.
    """
    error_codes = {(topic_id, partition): error_code for topic_id, partition, error_code in refused}
    return {
        key: PartitionResponse(
            partition_index=key[1], is_acknowledged=True, acknowledge_error_code=error_codes.get(key, 0)
        )
        for key in _ranges_by_partition(topics)
    }


def _ranges_by_partition(topics: Iterable[FetchTopic]) -> dict[PartitionKey, list[AcknowledgementRange]]:
    ranges: dict[PartitionKey, list[AcknowledgementRange]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                key = (topic.topic_id, partition.partition_index)
                ranges.setdefault(key, []).extend(partition.acknowledgement_batches)
    return ranges


def _refused(key: PartitionKey, error: ApiError, text: str) -> PartitionResponse:
    return PartitionResponse(
        partition_index=key[1],
        is_acknowledged=True,
        acknowledge_error_code=error.code,
        acknowledge_error_message=text,
    )


def _reason_at(ranges: Iterable[AcknowledgementRange]) -> Callable[[int], str]:
    """Return a function: offset → the reason that the member gives for it, "" when it gives none."""
    reasons = sorted((r.first_offset, r.last_offset, r.reason) for r in ranges if r.reason)

    def reason_at(offset: int) -> str:
        index = bisect_right(reasons, offset, key=lambda entry: entry[0]) - 1
        return reasons[index][2] if index >= 0 and offset <= reasons[index][1] else ""

    return reason_at
