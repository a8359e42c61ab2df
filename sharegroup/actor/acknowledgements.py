"""The acknowledgements of a request: each share-partition takes all of its own, or none (KIP-932)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.core.records import AcknowledgementBatch, PartitionKey, SharePartitionLimits
from sharegroup.errors import ApiError, InvalidRequestError
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.share_fetch import AcknowledgementRange, FetchTopic, PartitionResponse, TopicResponse


def acknowledge(
    message: LoggedRequest,
    topics: Iterable[FetchTopic],
    partitions: LedPartitions,
    limits: SharePartitionLimits,
) -> tuple[dict[PartitionKey, PartitionResponse], bool]:
    """Apply the acknowledgements of a request at its append time.

    Returns:
        Partition → its response, for the partitions that have acknowledgements; and True if a record changed its state.
    """
    responses: dict[PartitionKey, PartitionResponse] = {}
    has_effect = False
    refused_topics: set[str] = set()
    for key, ranges in _ranges_by_partition(topics).items():
        led = partitions.get(key)
        batches = [acknowledged.batch for acknowledged in ranges]
        try:
            if led is None:
                raise partitions.not_led_error(key)
            _check_ascending(batches)
            applied = led.share_partition.acknowledge(message.envelope.member_id, batches, limits, message.time_ms)
        except ApiError as error:
            # An error text that is the same for a whole topic is sent once.
            is_repeated = led is None and key[0] in refused_topics
            refused_topics.update(() if led else (key[0],))
            responses[key] = _refused(key, error, "" if is_repeated else str(error))
            continue
        partitions.record(led, applied, message.time_ms, message.offset, _reason_at(ranges))
        has_effect = has_effect or bool(applied)
        responses[key] = constructed(PartitionResponse, partition_index=key[1], is_acknowledged=True)
    return responses, has_effect


def acknowledged_before(
    topics: Iterable[FetchTopic], refused: Iterable[tuple[str, int, int]]
) -> dict[PartitionKey, PartitionResponse]:
    """Return the response to the acknowledgements of a request that is already applied."""
    error_codes = {(topic_id, partition): error_code for topic_id, partition, error_code in refused}
    return {
        key: constructed(
            PartitionResponse,
            partition_index=key[1],
            is_acknowledged=True,
            acknowledge_error_code=error_codes.get(key, 0),
        )
        for key in _ranges_by_partition(topics)
    }


def grouped_by_topic(partitions: Mapping[PartitionKey, PartitionResponse]) -> list[TopicResponse]:
    """Group the responses for partitions by topic, in the order of first appearance."""
    topics: dict[str, list[PartitionResponse]] = {}
    for (topic_id, _), response in partitions.items():
        topics.setdefault(topic_id, []).append(response)
    return [
        constructed(TopicResponse, topic_id=topic_id, partitions=responses) for topic_id, responses in topics.items()
    ]


def _check_ascending(batches: Iterable[AcknowledgementBatch]) -> None:
    """Refuse batches that descend or overlap, as Kafka's broker does before it asks the share-partition.

    Raises:
        InvalidRequestError: a batch begins within the one before it, or below it.
    """
    for before, batch in pairwise(batches):
        if batch.first_offset <= before.last_offset:
            raise InvalidRequestError(
                f"Acknowledgement batch {batch.first_offset}..{batch.last_offset} comes after "
                f"{before.first_offset}..{before.last_offset}; batches ascend and do not overlap."
            )


def _ranges_by_partition(topics: Iterable[FetchTopic]) -> dict[PartitionKey, list[AcknowledgementRange]]:
    ranges: dict[PartitionKey, list[AcknowledgementRange]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                key = (topic.topic_id, partition.partition_index)
                ranges.setdefault(key, []).extend(partition.acknowledgement_batches)
    return ranges


def _refused(key: PartitionKey, error: ApiError, text: str) -> PartitionResponse:
    return constructed(
        PartitionResponse,
        partition_index=key[1],
        is_acknowledged=True,
        acknowledge_error_code=error.code,
        acknowledge_error_message=text,
    )


def _reason_at(ranges: Iterable[AcknowledgementRange]) -> Callable[[int], str]:
    """Return a function: offset → the member's reason, "" when there is none."""
    reasons = sorted((r.first_offset, r.last_offset, r.reason) for r in ranges if r.reason)

    def reason_at(offset: int) -> str:
        index = bisect_right(reasons, offset, key=lambda entry: entry[0]) - 1
        return reasons[index][2] if index >= 0 and offset <= reasons[index][1] else ""

    return reason_at
