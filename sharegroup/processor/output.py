"""The output of a processor as final bytes, and its way into the logs.

`ResponseRecords` makes the responses of the actors what is stored in the outbox and appended; one that is too large for
the response topic is replaced by MESSAGE_TOO_LARGE. `group_listing` is the response to ListGroups, which no group's
actors can give.

`LogPublisher` appends the output of a commit: internal messages to the request log, then responses to the response log.
A log without transactions appends topic by topic. Messages come first: the requests that a member sends after its
response then follow, in the request log, the messages of the commit. After a crash between the two, the next processor
publishes both again from the outbox; a repeated message or response does no harm.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.decoding import refusal
from sharegroup.actor.effects import Effect, Respond, Undecodable, address_of, response_to
from sharegroup.actor.mailbox import version_refusal
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ApiError, LogLockedError, MessageTooLargeError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.logs.topic_properties import MAX_MESSAGE_BYTES_CONFIG
from sharegroup.processor.topics import MAX_MESSAGE_BYTES, check_request_topic, ensure_response_topic
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_description import ListedGroup, ListGroupsRequest, ListGroupsResponse
from sharegroup.protocol.internal_messages import ProcessorStarted, Tick
from sharegroup.protocol.marker import OutboxResponse
from sharegroup.protocol.messages import (
    ErrorResponse,
    RequestEnvelope,
    ResponseEnvelope,
    constructed,
    parsed,
    published_response,
    request,
)

logger = logging.getLogger("sharegroup.processor")

COMMIT_ID_HEADER = "commit_id"
"""Header of responses: the commit that they depend on. It reveals an older copy of the state table."""

LOCKED_ATTEMPTS = 3
"""Attempts of an append, 10 s each, while another writer keeps the embedded log locked."""

_Batches = dict[tuple[str, int], list[NewRecord]]

GROUPS_PER_PAGE = 4_000
"""Groups of a page: about half a megabyte with usual names."""

_SURE_TO_FIT_BYTES = 1_000_000
"""Value length that every topic accepts, unless its `max.message.bytes` is below Kafka's default."""
_OVERHEAD_BYTES = 8 * 1024
"""Bytes of a batch of one record besides the value: its key, a member id, has 1,024 characters at most."""


class ResponseRecords:
    """Builds the outbox entries of responses, and the records that are appended to the response topic.

    Kafka's brokers bound the content of requests, and so of their responses. The requests here are bounded, too, but
    only the response shows the size that hostile requests cause, such as errors that repeat long names 10,000 times.

    Args:
        log: the log of the response topic.
    """

    def __init__(self, log: Log, config: ProcessorConfig) -> None:
        self._log = log
        self._topic = config.response_topic_name
        self._partition_count = config.response_topic_partitions

    def outbox_response(self, effect: Respond) -> OutboxResponse | None:
        """Return a response as it is stored and appended; None if the response topic has no such partition."""
        partition = effect.address.partition
        if not 0 <= partition < self._partition_count:
            return None
        value = effect.value
        # A character has one to four bytes.
        if 4 * len(value) > _SURE_TO_FIT_BYTES:
            value = self._bounded(effect)
        return constructed(OutboxResponse, partition=partition, member_id=effect.address.member_id, value=value)

    def _bounded(self, effect: Respond) -> str:
        size = len(effect.value.encode())
        if size <= _SURE_TO_FIT_BYTES or size <= (limit := self._max_bytes()):
            return effect.value
        response = effect.response
        logger.warning(
            Event(
                "response_too_large",
                group=response.group_id,
                member=response.member_id,
                api_key=response.api_key,
                bytes=size,
                limit=limit,
            )
        )
        return _too_large(response, size, self._topic, limit).encoded().decode()

    def _max_bytes(self) -> int:
        """Return the length of the longest value that the topic accepts now."""
        try:
            config = self._log.describe_topic(self._topic).config
        except UnknownTopicError:
            # The topic is going to be created again.
            config = {}
        return int(config.get(MAX_MESSAGE_BYTES_CONFIG, MAX_MESSAGE_BYTES)) - _OVERHEAD_BYTES


def _too_large(response: ResponseEnvelope, size: int, topic: str, limit: int) -> ResponseEnvelope:
    error = MessageTooLargeError(
        f"The response has {size} bytes; topic {topic} takes {limit}. What was asked for is done.",
        f"Ask for less at once, or raise {MAX_MESSAGE_BYTES_CONFIG} of topic {topic}.",
    )
    body = ErrorResponse(error_code=error.code, error_message=str(error)).model_dump(mode="json")
    return response.model_copy(update={"body": body})


def group_listing(message: LoggedRequest, states: Mapping[str, str], leader_epoch: int) -> Effect:
    """Return the response to a ListGroups request.

    Args:
        states: group → its state, of all groups of the request's partition.
    """
    envelope = message.envelope
    if envelope.reply_partition < 0:
        return Undecodable(message.offset, "A request for a list of groups asks for no response.")
    try:
        if (error := version_refusal(envelope)) is not None:
            raise error
        request = parsed(ListGroupsRequest, envelope.body)
    except ApiError as error:
        return refusal(envelope.encoded(), message.offset, error, leader_epoch)
    wanted = {state.lower() for state in request.states_filter}
    matching = (
        group_id
        for group_id, state in states.items()
        if group_id > request.after_group_id and (not wanted or state.lower() in wanted)
    )
    group_ids = nsmallest(GROUPS_PER_PAGE + 1, matching)
    listed = [ListedGroup(group_id=group_id, group_state=states[group_id]) for group_id in group_ids[:GROUPS_PER_PAGE]]
    body = ListGroupsResponse(groups=listed, has_more=len(group_ids) > GROUPS_PER_PAGE)
    return response_to(address_of(envelope), body, leader_epoch)


class LogPublisher:
    """Publishes for one processor; any thread may use it.

    Args:
        request_topic_id: the request topic that the processor follows.
    """

    def __init__(self, log: Log, config: ProcessorConfig, request_topic_id: str, leader_epoch: int) -> None:
        self._log = log
        self._config = config
        self._leader_epoch = leader_epoch
        self._request_topic_id = request_topic_id

    def publish(
        self,
        messages: Sequence[tuple[str, str]],
        responses: Sequence[tuple[int, OutboxResponse]],
        commit_id: int,
        now_ms: Callable[[int], int],
    ) -> None:
        """Append internal messages, then responses.

        Args:
            messages: group id, and the envelope in JSON.
            responses: request partition of the group, and the response.
            now_ms: request partition → its time; responses carry it, beside the deadlines of locks.
        """
        header = (COMMIT_ID_HEADER, str(commit_id).encode())

        def batches() -> _Batches:
            made: _Batches = defaultdict(list)
            for group_id, value in messages:
                self._add_message(made, group_id, value.encode())
            for request_partition, response in responses:
                published = published_response(response.value, now_ms(request_partition))
                record = NewRecord(response.member_id.encode(), published, (header,))
                made[self._config.response_topic_name, response.partition].append(record)
            return made

        self._append(batches)

    def send(self, requests: Sequence[RequestEnvelope]) -> None:
        """Append internal messages, each in its group's partition."""
        batches: _Batches = defaultdict(list)
        for envelope in requests:
            self._add_message(batches, envelope.group_id, envelope.model_dump_json(exclude_defaults=True).encode())
        self._append(lambda: batches)

    def tick(self, group_id: str, time_ms: int) -> tuple[str, str]:
        """Return a Tick for a group at a time of its request partition, in the form that `publish` accepts."""
        envelope = request(ApiKey.TICK, group_id, Tick(time_ms=time_ms), leader_epoch=self._leader_epoch)
        return group_id, envelope.model_dump_json(exclude_defaults=True)

    def check_request_topic(self) -> None:
        """Check that the request topic is still the one that the processor follows.

        Raises:
            UnknownTopicError: it was deleted, or created again.
        """
        check_request_topic(self._log, self._config, self._request_topic_id)

    def announce_to_processors(self, announcement: ProcessorStarted) -> Mapping[int, int]:
        """Append the announcement to every request partition; return its offset in each."""
        value = self._announcement(announcement).model_dump_json(exclude_defaults=True).encode()
        topic = self._config.request_topic_name
        partitions = range(self._config.request_topic_partitions)
        offsets = self._log.append_all([(topic, partition, [NewRecord(None, value)]) for partition in partitions])
        return dict(zip(partitions, offsets, strict=True))

    def announce_to_members(self, announcement: ProcessorStarted) -> None:
        """Append the announcement to every response partition: members reopen their sessions at once."""
        envelope = ResponseEnvelope(
            api_key=ApiKey.PROCESSOR_STARTED,
            correlation_id=-1,
            group_id="",
            member_id="",
            leader_epoch=self._leader_epoch,
            body=announcement.model_dump(mode="json"),
        )
        record = NewRecord(None, envelope.encoded())
        topic = self._config.response_topic_name
        batches = {(topic, p): [record] for p in range(self._config.response_topic_partitions)}
        self._append(lambda: batches)

    def _announcement(self, announcement: ProcessorStarted) -> RequestEnvelope:
        return request(ApiKey.PROCESSOR_STARTED, "", announcement, leader_epoch=self._leader_epoch)

    def _add_message(self, batches: _Batches, group_id: str, value: bytes) -> None:
        partition = partition_for(group_id, self._config.request_topic_partitions)
        batches[self._config.request_topic_name, partition].append(NewRecord(group_id.encode(), value))

    def _append(self, batches: Callable[[], Mapping[tuple[str, int], Sequence[NewRecord]]]) -> None:
        """Append all or nothing; each attempt makes the batches, so that their times are its own."""
        for attempt in range(1, LOCKED_ATTEMPTS + 1):
            appends = [(topic, partition, records) for (topic, partition), records in batches().items()]
            if not appends:
                return
            try:
                self._append_all(appends)
                return
            except LogLockedError as error:
                # Nothing was appended. The outbox has the published messages, or the next processor creates them again.
                if attempt == LOCKED_ATTEMPTS:
                    raise
                logger.warning(Event("log_locked", attempt=attempt, reason=str(error)))

    def _append_all(self, appends: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> None:
        try:
            self._log.append_all(appends)
        except UnknownTopicError:
            # Nothing was appended to the missing topic. Members repeat the requests whose responses were lost with it.
            self.check_request_topic()
            ensure_response_topic(self._log, self._config)
            self._log.append_all(appends)
