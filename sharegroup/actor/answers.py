"""Building answers: the response envelope, and partitions grouped by topic as the protocol has them."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.actor.share_session import PartitionKey
from sharegroup.protocol.messages import Message, RequestEnvelope, ResponseEnvelope
from sharegroup.protocol.share_fetch import PartitionResponse, TopicResponse


def response_to(envelope: RequestEnvelope, body: Message) -> ResponseEnvelope:
    """The response that answers a request."""
    return ResponseEnvelope(
        api_key=envelope.api_key,
        correlation_id=envelope.correlation_id,
        group_id=envelope.group_id,
        member_id=envelope.member_id,
        body=body.model_dump(mode="json", exclude_defaults=True),
    )


def grouped_by_topic(partitions: Mapping[PartitionKey, PartitionResponse]) -> list[TopicResponse]:
    """Partition answers under their topics, in the order in which they were made."""
    topics: dict[str, list[PartitionResponse]] = {}
    for (topic_id, _), response in partitions.items():
        topics.setdefault(topic_id, []).append(response)
    return [TopicResponse(topic_id=topic_id, partitions=responses) for topic_id, responses in topics.items()]
