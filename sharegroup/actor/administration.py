"""Administrators' requests to a group: altering and deleting start offsets, and deleting the group.

Each takes several cuts: the watcher reports the topics, the coordinator records the changes, the leader applies them,
and only then the request gets its response. A waiting request is part of the group's records, so it continues after a
takeover. Recorded changes are applied even if the requester no longer waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharegroup.config.model import is_topic_name
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.group_state import RequestKey
from sharegroup.errors import (
    ApiError,
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import (
    AlteredPartition,
    AlteredPartitionResult,
    AlteredTopicResult,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeletedTopicResult,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from sharegroup.protocol.group_records import GroupRecord, ShareGroupRequestCompleted, ShareGroupRequestWaiting
from sharegroup.protocol.messages import ErrorResponse, Message, RequestEnvelope, parsed

_NO_TOPIC = ("", 0)
MAX_WAITING_REQUESTS = 10
"""Requests of one group that may wait at once: each may be as large as a request can be."""
MAX_WAIT_MS = 300_000
"""A request that waits longer gets the error that it timed out; its sender waits no longer."""
SeenTopics = Mapping[str, tuple[str, int]]
"""Topic name → (topic id, or "" when there is none; partition count), as the watcher reports."""
Response = tuple[ShareGroupRequestWaiting, ErrorResponse]
"""A request, and the body of its response."""

_BODIES: dict[int, type[Message]] = {
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: AlterShareGroupOffsetsRequest,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsRequest,
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest,
}
_RESPONSES: dict[int, type[ErrorResponse]] = {
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: AlterShareGroupOffsetsResponse,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsResponse,
}


class Administration:
    """Handler of the administrators' requests that wait for their response; the group's state holds them."""

    def __init__(self, group_id: str, group: GroupCoordinator) -> None:
        self._group_id = group_id
        self._group = group
        self._waiting = group.state.waiting_requests
        self._topic_names = {key: _topic_names(waiting.body) for key, waiting in self._waiting.items()}

    def take(self, envelope: RequestEnvelope, time_ms: int) -> list[GroupRecord]:
        """Accept a request, unless it already waits.

        Returns:
            The records that were applied.

        Raises:
            InvalidRequestError: a field is missing or has a wrong value.
            GroupIdNotFoundError: there is no group to delete, or to delete offsets of.
            NonEmptyGroupError: the group has members.
            CoordinatorLoadInProgressError: too many requests wait.
        """
        body = parsed(_BODIES[envelope.api_key], envelope.body)
        key = (envelope.member_id, envelope.correlation_id)
        if key in self._waiting:
            return []
        self._check(envelope.api_key)
        if len(self._waiting) >= MAX_WAITING_REQUESTS:
            raise CoordinatorLoadInProgressError(
                f"{len(self._waiting)} requests of administrators wait already; the most is {MAX_WAITING_REQUESTS}.",
                "Try again later.",
            )
        waiting = ShareGroupRequestWaiting(
            api_key=envelope.api_key,
            correlation_id=envelope.correlation_id,
            client_id=envelope.client_id,
            member_id=envelope.member_id,
            reply_partition=envelope.reply_partition,
            time_ms=time_ms,
            # Not the original body: a field that this release does not know may hold a value that a row cannot.
            body=body.model_dump(mode="json", exclude_defaults=True),
        )
        self._topic_names[key] = _topic_names(waiting.body)
        return self._group.record_request(waiting)

    @property
    def topic_names(self) -> set[str]:
        """Topics that the watcher must report before requests can be handled."""
        return {
            name
            for key, waiting in self._waiting.items()
            if waiting.response is None
            for name in self._topic_names[key]
        }

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which the first request times out; None when none waits."""
        return min((waiting.time_ms + MAX_WAIT_MS for waiting in self._waiting.values()), default=None)

    def advance(self, seen: SeenTopics, now_ms: int) -> tuple[list[GroupRecord], list[Response]]:
        """Advance all requests as far as is possible now.

        Returns:
            The records that were applied, and the responses to the requests that are done.
        """
        records: list[GroupRecord] = []
        responses: list[Response] = []
        for key, waiting in list(self._waiting.items()):
            try:
                response = self._response(key, seen, now_ms, records)
            except ApiError as error:
                response = ErrorResponse(error_code=error.code, error_message=str(error))
            if response is not None:
                del self._topic_names[key]
                completed = ShareGroupRequestCompleted(member_id=key[0], correlation_id=key[1])
                records += self._group.record_request(completed)
                responses.append((waiting, response))
        return records, responses

    def _response(
        self, key: RequestKey, seen: SeenTopics, now_ms: int, records: list[GroupRecord]
    ) -> ErrorResponse | None:
        """Advance one request and return its response, None while it has to wait; records are added to `records`."""
        waiting = self._waiting[key]
        if waiting.api_key == ApiKey.DELETE_GROUPS:
            response = self._delete_group(records)
        else:
            response = self._change_offsets(key, seen, records)
        if response is None and now_ms >= waiting.time_ms + MAX_WAIT_MS:
            raise RequestTimedOutError(f"It waited for {MAX_WAIT_MS} ms; recorded changes are applied still.")
        return response

    def _delete_group(self, records: list[GroupRecord]) -> ErrorResponse | None:
        """Delete the state of all topics, including those added meanwhile; then remove the group."""
        self._check(ApiKey.DELETE_GROUPS)
        topics = self._group.state.topics
        records += self._group.delete_topics([topic_id for topic_id, topic in topics.items() if not topic.deleting])
        if topics:
            return None
        records += self._group.remove("deleted")
        return ErrorResponse()

    def _change_offsets(self, key: RequestKey, seen: SeenTopics, records: list[GroupRecord]) -> ErrorResponse | None:
        waiting = self._waiting[key]
        if waiting.response is None:
            if not self._can_handle(key, seen):
                return None
            self._check(waiting.api_key)
            waiting = self._handle(waiting, seen, records)
            if self._is_changing(waiting):
                records += self._group.record_request(waiting)
        return None if self._is_changing(waiting) else _RESPONSES[waiting.api_key].model_validate(waiting.response)

    def _check(self, api_key: int) -> None:
        if self._group.state.is_dead and api_key != ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            raise GroupIdNotFoundError(f"Group {self._group_id} not found.")
        self._group.check_empty()

    def _can_handle(self, key: RequestKey, seen: SeenTopics) -> bool:
        """Return True if all topics of a request are known, and none of them is in deletion."""
        names, state = self._topic_names[key], self._group.state
        return seen.keys() >= names and not any(
            state.topics[topic_id].deleting and state.topics[topic_id].topic in names
            for topic_id in state.changing_topic_ids
        )

    def _is_changing(self, waiting: ShareGroupRequestWaiting) -> bool:
        """Return True while the leader has not yet applied the changes of a request."""
        topics = ((self._group.state.topics.get(topic_id), epoch) for topic_id, epoch in waiting.changing.items())
        return any(
            topic.deleting or any(new.state_epoch <= epoch for new in topic.initializing.values())
            for topic, epoch in topics
            if topic is not None
        )

    def _handle(
        self, waiting: ShareGroupRequestWaiting, seen: SeenTopics, records: list[GroupRecord]
    ) -> ShareGroupRequestWaiting:
        """Record the changes of a request; return it with its response and the leader's work before that."""
        response: ErrorResponse
        if waiting.api_key == ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            response, changing = self._alter(parsed(AlterShareGroupOffsetsRequest, waiting.body), seen, records)
        else:
            response, changing = self._delete(parsed(DeleteShareGroupOffsetsRequest, waiting.body), seen, records)
        return waiting.model_copy(
            update={"body": {}, "response": response.model_dump(mode="json"), "changing": changing}
        )

    def _alter(
        self, request: AlterShareGroupOffsetsRequest, seen: SeenTopics, records: list[GroupRecord]
    ) -> tuple[AlterShareGroupOffsetsResponse, dict[str, int]]:
        results = []
        changing: dict[str, int] = {}
        for topic in request.topics:
            topic_id, count = seen.get(topic.topic_name, _NO_TOPIC)
            existing = {p.partition_index: p for p in topic.partitions if p.partition_index < count}
            if existing:
                records += self._group.alter_offsets(topic.topic_name, topic_id, count, existing.values())
                changing[topic_id] = self._group.state.group_epoch
            partitions = [
                _altered(partition, exists=partition.partition_index in existing) for partition in topic.partitions
            ]
            results.append(AlteredTopicResult(topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions))
        return AlterShareGroupOffsetsResponse(responses=results), changing

    def _delete(
        self, request: DeleteShareGroupOffsetsRequest, seen: SeenTopics, records: list[GroupRecord]
    ) -> tuple[DeleteShareGroupOffsetsResponse, dict[str, int]]:
        names = [topic.topic_name for topic in request.topics]
        known = {name: topic for name in names if (topic := self._group.state.topic_named(name)) is not None}
        results = [
            DeletedTopicResult(topic_name=name, topic_id=known[name].topic_id)
            if name in known
            else _nothing_to_delete(name, seen.get(name, _NO_TOPIC)[0])
            for name in names
        ]
        changing = {topic.topic_id: self._group.state.group_epoch for topic in known.values()}
        records += self._group.delete_topics(changing)
        return DeleteShareGroupOffsetsResponse(responses=results), changing


def _topic_names(body: Mapping[str, Any]) -> frozenset[str]:
    """Return the valid names of a request's topics: no topic has an invalid name."""
    names = (topic["topic_name"] for topic in body.get("topics", ()))
    return frozenset(name for name in names if is_topic_name(name))


def _altered(partition: AlteredPartition, *, exists: bool) -> AlteredPartitionResult:
    error = None if exists else UnknownTopicOrPartitionError()
    return AlteredPartitionResult(
        partition_index=partition.partition_index,
        error_code=error.code if error else 0,
        error_message=str(error) if error else "",
    )


def _nothing_to_delete(topic: str, topic_id: str) -> DeletedTopicResult:
    error = UnknownTopicOrPartitionError("There is no offset information to delete." if topic_id else "")
    return DeletedTopicResult(topic_name=topic, topic_id=topic_id, error_code=error.code, error_message=str(error))
