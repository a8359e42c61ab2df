"""Exchange of an administrator's requests and responses with the processor, also of several pages."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from sharegroup.client.exchange import Request
from sharegroup.client.group_results import TopicPartition
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.client.settings import ChannelTopics
from sharegroup.core.records import PartitionKey
from sharegroup.errors import RequestTimedOutError, api_error
from sharegroup.logs.port import Log
from sharegroup.logs.topic_properties import new_topic_id
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_description import (
    DescribedPartition,
    DescribedTopicFilter,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from sharegroup.protocol.messages import ErrorResponse, Message, parsed

Body = dict[str, Any]
"""The body of a response."""


class Conversation:
    """Requests to one group, or to all partitions of the request log, and their responses.

    Args:
        name: subject of the requests for error messages: `Group g`.
        deadline_s: end of the wait for responses, in seconds of the monotonic clock.
        timeout_s: the same as a duration, for error messages.
    """

    def __init__(
        self, channel: ProcessorChannel, name: str, deadline_s: float, timeout_s: float, administrator: Administrator
    ) -> None:
        self._channel = channel
        self._name = name
        self._deadline_s = deadline_s
        self._timeout_s = timeout_s
        self._administrator = administrator

    @property
    def request_partitions(self) -> range:
        """Partitions of the request log."""
        return range(self._channel.request_partition_count)

    def ask(self, *requests: tuple[ApiKey, Message]) -> list[Body]:
        """Send requests to the group at once, and return their responses.

        Raises:
            ApiError: the first refusal.
            RequestTimedOutError: a response did not come in time.
        """
        numbered = [Request(next(self._administrator.correlation_ids), *request) for request in requests]
        self._channel.send(numbered)
        responses = self._responses({request.correlation_id: request.api_key for request in numbered})
        return [responses[request.correlation_id] for request in numbered]

    def ask_partitions(self, api_key: ApiKey, bodies: Mapping[int, Message]) -> dict[int, Body]:
        """Send a request to partitions of the request log at once, and return their responses.

        Args:
            bodies: partition → body of its request.

        Raises:
            ApiError: the first refusal.
            RequestTimedOutError: a response did not come in time.
        """
        partitions: dict[int, int] = {}
        for partition, body in bodies.items():
            number = next(self._administrator.correlation_ids)
            self._channel.send([Request(number, api_key, body)], partition)
            partitions[number] = partition
        responses = self._responses(dict.fromkeys(partitions, api_key))
        return {partition: responses[number] for number, partition in partitions.items()}

    def _responses(self, missing: dict[int, ApiKey]) -> dict[int, Body]:
        """Return correlation id → response, once all missing ones have come."""
        responses: dict[int, Body] = {}
        while (remaining := self._deadline_s - time.monotonic()) > 0:
            for envelope in self._channel.receive(round(remaining * 1000)):
                if not self._administrator.is_current(envelope.leader_epoch):
                    continue
                if missing.get(envelope.correlation_id) == envelope.api_key:
                    response = parsed(ErrorResponse, envelope.body)
                    if response.error_code:
                        raise api_error(response.error_code, response.error_message)
                    del missing[envelope.correlation_id]
                    responses[envelope.correlation_id] = envelope.body
            if not missing:
                return responses
        # Leader epochs restart with a state table that is created again: the next conversation accepts any.
        self._administrator.forget_processor()
        raise RequestTimedOutError(
            f"{self._name} did not respond to {next(iter(missing.values())).name} within {self._timeout_s} s.",
            "Check that a processor is running on this log; the request stays there, and may still be carried out.",
        )


class Administrator:
    """Exchanges requests and responses with the processor of a log."""

    def __init__(self, log: Log, client_id: str, topics: ChannelTopics | None) -> None:
        self._log = log
        self._client_id = client_id
        self._topics = topics
        self._client = new_topic_id()
        self.correlation_ids = itertools.count(1)
        """Unique numbers of requests."""
        self._leader_epoch = -1

    @contextmanager
    def conversation(self, group_id: str, timeout_s: float) -> Iterator[Conversation]:
        """Open a conversation with a group; with the id "", with the partitions of the request log.

        Raises:
            LogUnavailableError: the log cannot be reached within the time, or a shorter one of its own.
        """
        deadline_s = time.monotonic() + timeout_s
        name = f"Group {group_id}" if group_id else "The processor"
        with (
            self._log.limited(round(timeout_s * 1000)),
            closing(ProcessorChannel(self._log, group_id, self._client, self._client_id, self._topics)) as channel,
        ):
            yield Conversation(channel, name, deadline_s, timeout_s, self)

    def is_current(self, leader_epoch: int) -> bool:
        """Return True if a response is valid: not if another processor has taken over from its processor."""
        self._leader_epoch = max(self._leader_epoch, leader_epoch)
        return leader_epoch == self._leader_epoch

    def forget_processor(self) -> None:
        """Accept the next response, whatever its leader epoch is."""
        self._leader_epoch = -1


def listed_groups(conversation: Conversation, states: list[str]) -> list[ListGroupsResponse]:
    """Return all pages of the groups of all request partitions.

    Args:
        states: only groups in these states; empty is all.

    Raises:
        RequestTimedOutError: not all responses came in time.
    """
    first = ListGroupsRequest(states_filter=states)
    requests = dict.fromkeys(conversation.request_partitions, first)
    pages: list[ListGroupsResponse] = []
    while requests:
        responses = conversation.ask_partitions(ApiKey.LIST_GROUPS, requests)
        listings = {partition: parsed(ListGroupsResponse, response) for partition, response in responses.items()}
        pages += listings.values()
        requests = {
            partition: first.model_copy(update={"after_group_id": page.groups[-1].group_id})
            for partition, page in listings.items()
            if page.has_more
        }
    return pages


@dataclass(frozen=True, slots=True)
class DescribedPartitions:
    """The share-partitions of a group.

    Attributes:
        dead_letter_failure: reason why dead-letter records cannot be written; "" when they can.
    """

    topics: dict[str, str]
    partitions: dict[PartitionKey, DescribedPartition]
    dead_letter_failure: str


def read_partitions(
    conversation: Conversation, wanted: Iterable[TopicPartition] | None, *, include_runs: bool
) -> DescribedPartitions:
    """Request share-partitions of a group until all pages have been received.

    Args:
        wanted: (topic, partition) pairs; None is all.
        include_runs: True to describe records in flight, too.

    Raises:
        ApiError: the group refused.
        RequestTimedOutError: a response did not come in time.
    """
    request = DescribeShareGroupOffsetsRequest(topics=_filters(wanted), include_runs=include_runs)
    described = DescribedPartitions({}, {}, "")
    while True:
        (response,) = conversation.ask((ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request))
        page = parsed(DescribeShareGroupOffsetsResponse, response)
        for topic in page.topics:
            described.topics[topic.topic_id] = topic.topic_name
            for partition in topic.partitions:
                key = (topic.topic_id, partition.partition_index)
                # A share-partition with many runs comes in several pages.
                known = described.partitions.get(key)
                runs = [*(known.runs if known else ()), *partition.runs]
                open_writes = known.open_writes if known else partition.open_writes
                described.partitions[key] = partition.model_copy(update={"runs": runs, "open_writes": open_writes})
        if page.next is None:
            return DescribedPartitions(described.topics, described.partitions, page.dead_letter_failure)
        request = request.model_copy(update={"begin": page.next})


def _filters(wanted: Iterable[TopicPartition] | None) -> list[DescribedTopicFilter] | None:
    if wanted is None:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in wanted:
        topics.setdefault(topic, []).append(partition)
    return [DescribedTopicFilter(topic_name=topic, partitions=partitions) for topic, partitions in topics.items()]
