"""Acknowledgements in a request, and their outcome in its response.

Records that were acknowledged differently one by one are one range with a type for each offset, as in Kafka's consumers
(KIP-932): a range of its own for each of them would take thirty times as many bytes, and as long to parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.records import PartitionKey
from sharegroup.errors import ApiError, UnknownServerError, api_error
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.share_fetch import AcknowledgementRange, FetchPartition, FetchTopic, PartitionResponse


def topics_with(added: Iterable[PartitionKey], acknowledgements: Iterable[Acknowledgement]) -> list[FetchTopic]:
    """Return the topics of a request: partitions to add to the session, and acknowledgements."""
    joined: dict[PartitionKey, list[list[Acknowledgement]]] = {key: [] for key in sorted(added)}
    for ack in acknowledgements:
        ranges = joined.setdefault(ack.key, [])
        if ranges and ack.continues(ranges[-1][-1]):
            ranges[-1].append(ack)
        else:
            ranges.append([ack])
    topics: dict[str, list[FetchPartition]] = {}
    for (topic_id, partition), ranges in joined.items():
        topics.setdefault(topic_id, []).append(
            constructed(
                FetchPartition, partition_index=partition, acknowledgement_batches=[_range(each) for each in ranges]
            )
        )
    return [
        constructed(FetchTopic, topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
    ]


def acknowledge_error(response: PartitionResponse | None) -> ApiError | None:
    """Return the error of a partition's acknowledgements; None is success."""
    if response is not None:
        if response.acknowledge_error_code:
            return api_error(response.acknowledge_error_code, response.acknowledge_error_message)
        if response.is_acknowledged:
            return None
        if response.error_code:
            return api_error(response.error_code, response.error_message)
    return UnknownServerError("The response has no outcome of the acknowledgements.")


def _range(joined: Sequence[Acknowledgement]) -> AcknowledgementRange:
    """Return one range of acknowledgements of which each continues the one before."""
    first, last = joined[0], joined[-1]
    is_mixed = len(joined) > 1
    types = [ack.acknowledge_type for ack in joined for _ in ack.offsets] if is_mixed else [first.acknowledge_type]
    return constructed(
        AcknowledgementRange,
        first_offset=first.first_offset,
        last_offset=last.last_offset,
        acknowledge_types=types,
        reason=first.reason,
        redelivery_delay_ms=first.redelivery_delay_ms,
        write_version=first.write_version,
        is_begun=first.is_begun,
    )
