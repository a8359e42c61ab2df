"""A member of a simulated group: what a client of the protocol sends, and how it reads the responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from sharegroup.protocol.messages import Message, RequestEnvelope, ResponseEnvelope, parsed, request
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    AcknowledgementRange,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from sharegroup.protocol.sink_writes import Sink
from tests.actor.simulated_group import Group

PartitionKey = tuple[str, int]
"""Topic id and partition."""
Range = tuple[int, int, int]
"""First offset, last offset, delivery count."""
Acknowledgement = tuple[int, int, AcknowledgeType]
"""First offset, last offset, acknowledgement type."""


@dataclass
class Fetched:
    """The response to a fetch or an acknowledgement, or its absence."""

    response: ShareFetchResponse | None

    @property
    def is_parked(self) -> bool:
        return self.response is None

    @property
    def error_code(self) -> int:
        assert self.response is not None, "the request got no response"
        return self.response.error_code

    @property
    def partitions(self) -> dict[PartitionKey, PartitionResponse]:
        assert self.response is not None, "the request got no response"
        assert not self.response.error_code, self.response
        return {
            (topic.topic_id, partition.partition_index): partition
            for topic in self.response.responses
            for partition in topic.partitions
        }

    @property
    def acquired(self) -> dict[PartitionKey, list[Range]]:
        """Partition → ranges, only where there are some."""
        return {
            key: [(r.first_offset, r.last_offset, r.delivery_count) for r in partition.acquired_records]
            for key, partition in self.partitions.items()
            if partition.acquired_records
        }

    @property
    def record_count(self) -> int:
        return sum(last - first + 1 for ranges in self.acquired.values() for first, last, _ in ranges)

    @property
    def acknowledge_errors(self) -> dict[PartitionKey, int]:
        """Partition → error code, where there were acknowledgements."""
        return {
            key: partition.acknowledge_error_code
            for key, partition in self.partitions.items()
            if partition.is_acknowledged
        }


class Member:
    """A client of one group: member epoch, share-session epoch and correlation ids as the protocol wants them.

    Methods that begin with `send_` only append to the request log; the others also settle the group.
    """

    def __init__(
        self,
        group: Group,
        member_id: str,
        topics: Sequence[str] = ("orders",),
        reply_partition: int = 0,
        process: str = "",
        sink: Sink | None = None,
    ):
        self.group = group
        self.sink = sink
        self.process = process
        self.member_id = member_id
        self.topics = list(topics)
        self.reply_partition = reply_partition
        self.member_epoch = JOIN_EPOCH
        self.session_epoch = INITIAL_EPOCH
        self.assignment: list[TopicPartitions] = []
        self._correlation_ids = itertools.count(1)

    # Membership.

    def join(self) -> ShareGroupHeartbeatResponse:
        """Join, and wait until the group has settled; what was pushed meanwhile is taken in."""
        return self.heartbeat(member_epoch=JOIN_EPOCH, subscribed_topic_names=self.topics)

    def leave(self) -> ShareGroupHeartbeatResponse:
        return self.heartbeat(member_epoch=LEAVE_EPOCH)

    def heartbeat(
        self, member_epoch: int | None = None, subscribed_topic_names: Sequence[str] | None = None
    ) -> ShareGroupHeartbeatResponse:
        correlation_id = self.send_heartbeat(member_epoch, subscribed_topic_names)
        responses = self.group.settle().responses
        response = self._find_response(correlation_id, responses)
        assert response is not None, "the heartbeat got no response"
        self.take_assignments(responses)
        return parsed(ShareGroupHeartbeatResponse, response.body)

    def send_heartbeat(
        self, member_epoch: int | None = None, subscribed_topic_names: Sequence[str] | None = None
    ) -> int:
        body = ShareGroupHeartbeatRequest(
            member_epoch=self.member_epoch if member_epoch is None else member_epoch,
            client_process=self.process,
            subscribed_topic_names=None if subscribed_topic_names is None else list(subscribed_topic_names),
            has_sink=self.sink is not None,
        )
        return self.send(ApiKey.SHARE_GROUP_HEARTBEAT, body)

    def take_assignments(self, responses: Iterable[ResponseEnvelope] | None = None) -> int:
        """Take in heartbeat responses and pushes; returns how many brought an assignment."""
        brought = 0
        for response in self.group.responses if responses is None else responses:
            if response.member_id != self.member_id or response.api_key != ApiKey.SHARE_GROUP_HEARTBEAT:
                continue
            body = parsed(ShareGroupHeartbeatResponse, response.body)
            if body.error_code:
                continue
            self.member_epoch = max(body.member_epoch, 0)
            if body.assignment is not None:
                self.assignment = list(body.assignment)
                brought += 1
        return brought

    @property
    def assigned(self) -> set[PartitionKey]:
        """Share-partitions that this member may fetch from."""
        return {(topic.topic_id, partition) for topic in self.assignment for partition in topic.partitions}

    # The share session.

    def fetch(
        self,
        partitions: Iterable[PartitionKey] | None = None,
        acknowledge: Mapping[PartitionKey, Sequence[Acknowledgement]] | None = None,
        **fields: Any,
    ) -> Fetched:
        """Fetch, by default from what is assigned; see `send_fetch`."""
        return self.fetched(self.send_fetch(partitions, acknowledge, **fields))

    def acknowledge(
        self, acknowledge: Mapping[PartitionKey, Sequence[Acknowledgement]], epoch: int | None = None
    ) -> Fetched:
        return self.fetched(self.send_acknowledge(acknowledge, epoch))

    def close(self, acknowledge: Mapping[PartitionKey, Sequence[Acknowledgement]] | None = None) -> Fetched:
        return self.acknowledge(acknowledge or {}, FINAL_EPOCH)

    def fetched(self, correlation_id: int) -> Fetched:
        """Settle the group; the response to a request, if there is one by then."""
        self.group.settle()
        return self.response_to(correlation_id)

    def response_to(self, correlation_id: int) -> Fetched:
        """The response that a request had so far."""
        response = self._find_response(correlation_id, self.group.responses)
        return Fetched(None if response is None else parsed(ShareFetchResponse, response.body))

    def send_fetch(
        self,
        partitions: Iterable[PartitionKey] | None = None,
        acknowledge: Mapping[PartitionKey, Sequence[Acknowledgement]] | None = None,
        forget: Iterable[PartitionKey] = (),
        epoch: int | None = None,
        **fields: Any,
    ) -> int:
        body = ShareFetchRequest.model_validate(
            {
                "share_session_epoch": self._next_session_epoch(epoch),
                "topics": fetch_topics(self.assigned if partitions is None else partitions, acknowledge or {}),
                "forgotten_topics_data": [ForgottenTopic(topic_id=t, partitions=[p]) for t, p in forget],
                "sink": self.sink,
                **fields,
            }
        )
        return self.send(ApiKey.SHARE_FETCH, body)

    def send_acknowledge(
        self, acknowledge: Mapping[PartitionKey, Sequence[Acknowledgement]], epoch: int | None = None
    ) -> int:
        body = ShareAcknowledgeRequest(
            share_session_epoch=self._next_session_epoch(epoch), topics=fetch_topics((), acknowledge)
        )
        return self.send(ApiKey.SHARE_ACKNOWLEDGE, body)

    # Below.

    def send(self, api_key: ApiKey, body: Message) -> int:
        """Append a request; returns its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.group.append(self.envelope(api_key, body, correlation_id))
        return correlation_id

    def envelope(self, api_key: ApiKey, body: Message, correlation_id: int) -> RequestEnvelope:
        return request(
            api_key,
            self.group.group_id,
            body,
            member_id=self.member_id,
            client_id="test",
            correlation_id=correlation_id,
            reply_partition=self.reply_partition,
        )

    def _find_response(self, correlation_id: int, responses: Iterable[ResponseEnvelope]) -> ResponseEnvelope | None:
        own = [r for r in responses if r.member_id == self.member_id and r.correlation_id == correlation_id]
        assert len(own) < 2, own
        return own[0] if own else None

    def _next_session_epoch(self, epoch: int | None) -> int:
        sent = self.session_epoch if epoch is None else epoch
        self.session_epoch = sent + 1
        return sent


def fetch_topics(
    partitions: Iterable[PartitionKey], acknowledge: Mapping[PartitionKey, Sequence[Acknowledgement]]
) -> list[FetchTopic]:
    """Partitions to fetch from and acknowledgements, grouped by topic."""
    by_topic: dict[str, list[FetchPartition]] = {}
    for topic_id, partition in sorted({*partitions, *acknowledge}):
        batches = [
            AcknowledgementRange(first_offset=first, last_offset=last, acknowledge_types=[acknowledge_type])
            for first, last, acknowledge_type in acknowledge.get((topic_id, partition), ())
        ]
        by_topic.setdefault(topic_id, []).append(
            FetchPartition(partition_index=partition, acknowledgement_batches=batches)
        )
    return [FetchTopic(topic_id=topic_id, partitions=by_topic[topic_id]) for topic_id in by_topic]


def joined(group: Group, *member_ids: str, topics: Sequence[str] = ("orders",)) -> list[Member]:
    """Members that have joined together and have their assignment."""
    members = [Member(group, member_id, topics) for member_id in member_ids]
    for member in members:
        member.send_heartbeat(JOIN_EPOCH, member.topics)
    group.settle()
    group.advance(2_000)
    for member in members:
        member.take_assignments()
        assert member.member_epoch, member.member_id
    return members
