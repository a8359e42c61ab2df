"""AdminClient: changes to a group that its processor has to make."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.client.settings import ChannelTopics
from sharegroup.errors import ApiError, RequestTimedOutError, api_error
from sharegroup.logs.port import Log
from sharegroup.logs.topic_id import new_topic_id
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from sharegroup.protocol.group_messages import AlterGroupConfigRequest, ResumeShareGroupRequest
from sharegroup.protocol.messages import ErrorResponse, Message, parsed

DEFAULT_TIMEOUT_S = 60.0
TopicPartition = tuple[str, int]
"""Topic name and partition."""


class AdminClient:
    """Asks the processor of a group for changes, and waits for its answer.

    Args:
        log: where the requests and responses are; the caller closes it.
        client_id: free name, for people.
        topics: names of the topics between members and the processor.
    """

    def __init__(self, log: Log, client_id: str = "", topics: ChannelTopics | None = None) -> None:
        self._log = log
        self._client_id = client_id
        self._topics = topics
        self._client = new_topic_id()
        self._correlation_ids = itertools.count(1)
        self._leader_epoch = -1

    def alter_group_config(
        self,
        group_id: str,
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Change the group's own configuration, all or nothing; the group need not exist yet.

        Args:
            group_id: the share group.
            set: key → new value.
            delete: keys that go back to the broker's default.
            timeout: seconds to wait for the answer.

        Raises:
            InvalidConfigError: a key or value is not acceptable.
            RequestTimedOutError: no answer came in time; the change may still be made.
        """
        body = AlterGroupConfigRequest(set=dict(set or {}), delete=list(delete))
        self._ask(group_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, timeout)

    def resume_group(self, group_id: str, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Let a quarantined group go on.

        Raises:
            RequestTimedOutError: no answer came in time; the group may still go on.
        """
        self._ask(group_id, ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest(), timeout)

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[TopicPartition, ApiError | None]:
        """Begin the state of share-partitions anew at other start offsets; a group that is not there is made.

        What was in flight, and all delivery counts, are gone. A start offset may lie past the end of the log.

        Args:
            group_id: the share group, which must have no members.
            offsets: (topic, partition) → new start offset, 0 or higher.
            timeout: seconds to wait for the answer.

        Returns:
            (topic, partition) → why it was not altered; None when it was.

        Raises:
            InvalidRequestError: an offset or a partition is negative, or too many topics are named.
            NonEmptyGroupError: the group has members; nothing changed.
            RequestTimedOutError: no answer came in time; the offsets may still be altered.
        """
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, partition), start_offset in offsets.items():
            topics.setdefault(topic, []).append({"partition_index": partition, "start_offset": start_offset})
        fields = [{"topic_name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        body = parsed(AlterShareGroupOffsetsRequest, {"topics": fields})
        answer = parsed(
            AlterShareGroupOffsetsResponse, self._ask(group_id, ApiKey.ALTER_SHARE_GROUP_OFFSETS, body, timeout)
        )
        return {
            (topic.topic_name, result.partition_index): _error(result)
            for topic in answer.responses
            for result in topic.partitions
        }

    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, ApiError | None]:
        """Delete the state of all share-partitions of some topics; members that come back begin anew.

        Args:
            group_id: the share group, which must have no members.
            topics: topic names.
            timeout: seconds to wait for the answer.

        Returns:
            Topic → why its state was not deleted; None when it was.

        Raises:
            InvalidRequestError: too many topics are named.
            GroupIdNotFoundError: there is no such group.
            NonEmptyGroupError: the group has members; nothing changed.
            RequestTimedOutError: no answer came in time; the state may still be deleted.
        """
        body = parsed(DeleteShareGroupOffsetsRequest, {"topics": [{"topic_name": topic} for topic in topics]})
        answer = parsed(
            DeleteShareGroupOffsetsResponse, self._ask(group_id, ApiKey.DELETE_SHARE_GROUP_OFFSETS, body, timeout)
        )
        return {result.topic_name: _error(result) for result in answer.responses}

    def delete_share_groups(
        self, group_ids: Iterable[str], timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, ApiError | None]:
        """Delete groups without members, the state of their share-partitions, and their configuration.

        Args:
            group_ids: the share groups.
            timeout: seconds to wait for the answer of each.

        Returns:
            Group id → why it was not deleted; None when it was.
        """
        results: dict[str, ApiError | None] = {}
        for group_id in group_ids:
            try:
                self._ask(group_id, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(), timeout)
                results[group_id] = None
            except ApiError as error:
                results[group_id] = error
        return results

    def _ask(self, group_id: str, api_key: ApiKey, body: Message, timeout: float) -> dict[str, Any]:
        """Ask a group, and return the body of its answer."""
        channel = ProcessorChannel(self._log, group_id, self._client, self._client_id, self._topics)
        with closing(channel):
            correlation_id = next(self._correlation_ids)
            channel.send([(correlation_id, api_key, body)])
            deadline = time.monotonic() + timeout
            while (remaining := deadline - time.monotonic()) > 0:
                for envelope in channel.receive(round(remaining * 1000)):
                    # Answers of a processor that another one has taken over from count no more.
                    if envelope.leader_epoch < self._leader_epoch:
                        continue
                    self._leader_epoch = envelope.leader_epoch
                    if envelope.correlation_id == correlation_id and envelope.api_key == api_key:
                        answer = parsed(ErrorResponse, envelope.body)
                        if answer.error_code:
                            raise api_error(answer.error_code, answer.error_message)
                        return envelope.body
        raise RequestTimedOutError(
            f"Group {group_id} did not answer {api_key.name} within {timeout} s.",
            "Check that a processor is running on this log; the request stays there, and may still be carried out.",
        )


def _error(result: ErrorResponse) -> ApiError | None:
    return api_error(result.error_code, result.error_message) if result.error_code else None
