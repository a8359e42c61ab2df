"""Administrators' requests to a group: altering and deleting start offsets, and deleting the group.

Each takes several batches: the driver says which topics there are, the coordinator records what is to change, the
leader changes it, and only then the request is answered. What was recorded is done even if nobody waits any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sharegroup.config.model import is_topic_name
from sharegroup.coordinator.group_coordinator import GroupCoordinator
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
    AlteredTopic,
    AlteredTopicResult,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeletedTopicResult,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from sharegroup.protocol.group_records import GroupRecord
from sharegroup.protocol.messages import ErrorResponse, Message, RequestEnvelope, parsed

_NO_TOPIC = ("", 0)
MAX_WAITING_REQUESTS = 10
"""Requests of one group that may wait at once: each may be as large as a request can be."""
MAX_WAIT_MS = 300_000
"""A request that waits longer is answered that it timed out; its sender has long given up."""
SeenTopics = Mapping[str, tuple[str, int]]
"""Topic name → (topic id, or "" when there is none; partition count), as the driver told."""
Answer = tuple[RequestEnvelope, ErrorResponse]
"""A request, and the body that answers it."""


@dataclass
class _Waiting:
    """A request that is not answered yet.

    Attributes:
        envelope: the request.
        time_ms: when it came; epoch ms.
        response: its answer, once it is known what will be done.
        changing: topic id → state epoch of what the leader is to change before it is answered.
    """

    envelope: RequestEnvelope
    time_ms: int
    response: ErrorResponse | None = None
    changing: dict[str, int] = field(default_factory=dict)


_BODIES: dict[ApiKey, type[Message]] = {
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: AlterShareGroupOffsetsRequest,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsRequest,
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest,
}
_RESPONSES: dict[ApiKey, type[ErrorResponse]] = {
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: AlterShareGroupOffsetsResponse,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsResponse,
    ApiKey.DELETE_GROUPS: ErrorResponse,
}


class Administration:
    """The administrators' requests that a group has not answered yet.

    Args:
        group: the group; it is changed as the requests want it.
        plain: the requests, as `to_plain` wrote them.
    """

    def __init__(self, group: GroupCoordinator, plain: Iterable[Any] = ()) -> None:
        self._group = group
        self._waiting = [_waiting(*fields) for fields in plain]

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold the requests."""
        return [
            [
                waiting.envelope.model_dump(mode="json"),
                waiting.time_ms,
                None if waiting.response is None else waiting.response.model_dump(mode="json"),
                waiting.changing,
            ]
            for waiting in self._waiting
        ]

    def take(self, envelope: RequestEnvelope, time_ms: int) -> None:
        """Take in a request.

        Args:
            envelope: the request.
            time_ms: its append time; epoch ms.

        Raises:
            InvalidRequestError: a field is missing or has a wrong value.
            GroupIdNotFoundError: there is no group whose offsets, or which itself, could be deleted.
            NonEmptyGroupError: the group has members.
            CoordinatorLoadInProgressError: too many requests wait.
        """
        parsed(_BODIES[ApiKey(envelope.api_key)], envelope.body)
        self._check(envelope)
        if len(self._waiting) >= MAX_WAITING_REQUESTS:
            raise CoordinatorLoadInProgressError(
                f"{len(self._waiting)} requests of administrators wait already; the most is {MAX_WAITING_REQUESTS}.",
                "Try again later.",
            )
        self._waiting.append(_Waiting(envelope, time_ms))

    @property
    def wanted_topics(self) -> set[str]:
        """Names of topics that the driver must tell of before requests can be judged."""
        return {name for waiting in self._waiting if waiting.response is None for name in _topic_names(waiting)}

    def go_on(self, seen: SeenTopics, now_ms: int) -> tuple[list[GroupRecord], list[Answer]]:
        """Do what can be done now; returns the records that were applied, and the answers to what is done.

        Args:
            seen: topics as told; one that is not in it has not been looked at yet.
            now_ms: the present time; epoch ms.
        """
        records: list[GroupRecord] = []
        answers: list[Answer] = []
        for waiting in list(self._waiting):
            try:
                if waiting.response is None and self._can_judge(waiting, seen):
                    self._check(waiting.envelope)
                    records += self._judged(waiting, seen)
                if waiting.response is None or self._is_changing(waiting):
                    if now_ms < waiting.time_ms + MAX_WAIT_MS:
                        continue
                    raise RequestTimedOutError(f"It waited for {MAX_WAIT_MS} ms; what was recorded is done still.")
                if waiting.envelope.api_key == ApiKey.DELETE_GROUPS:
                    self._check(waiting.envelope)
                    records += self._group.remove("deleted")
                answer = waiting.response
            except ApiError as error:
                answer = ErrorResponse(error_code=error.code, error_message=str(error))
            self._waiting.remove(waiting)
            answers.append((waiting.envelope, answer))
        return records, answers

    def _check(self, envelope: RequestEnvelope) -> None:
        if self._group.state.is_dead and envelope.api_key != ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            raise GroupIdNotFoundError(f"Group {envelope.group_id} not found.")
        self._group.check_empty()

    def _can_judge(self, waiting: _Waiting, seen: SeenTopics) -> bool:
        """Whether all topics of a request are known, and none of them is just losing its state."""
        names = _topic_names(waiting)
        return seen.keys() >= names and not any(
            topic.deleting and topic.topic in names for topic in self._group.state.topics.values()
        )

    def _is_changing(self, waiting: _Waiting) -> bool:
        """Whether the leader has not done yet what a request wants."""
        topics = ((self._group.state.topics.get(topic_id), epoch) for topic_id, epoch in waiting.changing.items())
        return any(
            topic.deleting or any(wanted.state_epoch <= epoch for wanted in topic.initializing.values())
            for topic, epoch in topics
            if topic is not None
        )

    def _judged(self, waiting: _Waiting, seen: SeenTopics) -> list[GroupRecord]:
        match parsed(_BODIES[ApiKey(waiting.envelope.api_key)], waiting.envelope.body):
            case AlterShareGroupOffsetsRequest(topics=topics):
                return self._alter(waiting, topics, seen)
            case DeleteShareGroupOffsetsRequest(topics=deleted):
                return self._delete(waiting, [topic.topic_name for topic in deleted], seen)
        waiting.response = ErrorResponse()
        return self._begin_deletion(waiting, self._group.state.topics)

    def _alter(self, waiting: _Waiting, topics: Iterable[AlteredTopic], seen: SeenTopics) -> list[GroupRecord]:
        records: list[GroupRecord] = []
        results = []
        for topic in topics:
            topic_id, partition_count = seen.get(topic.topic_name, _NO_TOPIC)
            found = {p.partition_index: p.start_offset for p in topic.partitions if p.partition_index < partition_count}
            if found:
                records += self._group.alter_offsets(topic.topic_name, topic_id, partition_count, found)
                waiting.changing[topic_id] = self._group.state.group_epoch
            results.append(
                AlteredTopicResult(
                    topic_name=topic.topic_name,
                    topic_id=topic_id,
                    partitions=[_altered(p, is_found=p.partition_index in found) for p in topic.partitions],
                )
            )
        waiting.response = AlterShareGroupOffsetsResponse(responses=results)
        return records

    def _delete(self, waiting: _Waiting, names: Iterable[str], seen: SeenTopics) -> list[GroupRecord]:
        known = {name: topic for name in names if (topic := self._group.state.topic_named(name)) is not None}
        waiting.response = DeleteShareGroupOffsetsResponse(
            responses=[
                DeletedTopicResult(topic_name=name, topic_id=known[name].topic_id)
                if name in known
                else _nothing_to_delete(name, seen.get(name, _NO_TOPIC)[0])
                for name in names
            ]
        )
        return self._begin_deletion(waiting, [topic.topic_id for topic in known.values()])

    def _begin_deletion(self, waiting: _Waiting, topic_ids: Iterable[str]) -> list[GroupRecord]:
        waiting.changing = dict.fromkeys(topic_ids, self._group.state.group_epoch)
        topics = self._group.state.topics
        return self._group.delete_topics([topic_id for topic_id in waiting.changing if not topics[topic_id].deleting])


def _waiting(
    envelope: dict[str, Any], time_ms: int, response: dict[str, Any] | None, changing: dict[str, int]
) -> _Waiting:
    found = RequestEnvelope.model_validate(envelope)
    answer = None if response is None else _RESPONSES[ApiKey(found.api_key)].model_validate(response)
    return _Waiting(found, time_ms, answer, changing)


def _topic_names(waiting: _Waiting) -> set[str]:
    """Names of a request's topics that can be looked for: there is no topic of a name that is none."""
    names = (topic["topic_name"] for topic in waiting.envelope.body.get("topics", ()))
    return {name for name in names if is_topic_name(name)}


def _altered(partition: AlteredPartition, *, is_found: bool) -> AlteredPartitionResult:
    error = None if is_found else UnknownTopicOrPartitionError()
    return AlteredPartitionResult(
        partition_index=partition.partition_index,
        error_code=error.code if error else 0,
        error_message=str(error) if error else "",
    )


def _nothing_to_delete(topic: str, topic_id: str) -> DeletedTopicResult:
    error = UnknownTopicOrPartitionError("There is no offset information to delete." if topic_id else "")
    return DeletedTopicResult(topic_name=topic, topic_id=topic_id, error_code=error.code, error_message=str(error))
