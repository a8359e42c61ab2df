"""Responses as final bytes, and the response to ListGroups, which no group's actors can give.

A response that is too large for the response topic is replaced by MESSAGE_TOO_LARGE.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from heapq import nsmallest

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.decoding import refusal
from sharegroup.actor.effects import Effect, Respond, Undecodable, address_of, response_to
from sharegroup.actor.mailbox import version_refusal
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ApiError, MessageTooLargeError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log
from sharegroup.logs.topic_properties import MAX_MESSAGE_BYTES_CONFIG
from sharegroup.processor.topics import MAX_MESSAGE_BYTES
from sharegroup.protocol.group_description import ListedGroup, ListGroupsRequest, ListGroupsResponse
from sharegroup.protocol.marker import OutboxAnswer
from sharegroup.protocol.messages import ErrorResponse, ResponseEnvelope, constructed, parsed

logger = logging.getLogger("sharegroup.processor")

GROUPS_PER_PAGE = 4_000
"""Groups of a page: about half a megabyte with usual names."""

_SURE_TO_FIT_BYTES = 1_000_000
"""Value length that every topic accepts, unless its `max.message.bytes` is below Kafka's default."""
_OVERHEAD_BYTES = 8 * 1024
"""Bytes of a batch of one record besides the value: its key, a member id, has 1,024 characters at most."""


class AnswerRecords:
    """Builds the outbox entries of responses, and the records that are appended to the response topic.

    Kafka's brokers bound the content of requests, and so of their responses. The requests here are bounded, too, but
    only the response shows the size that hostile requests cause, such as errors that repeat long names 10,000 times.

    Args:
        log: the log of the response topic.
        config: its name and partition count.
    """

    def __init__(self, log: Log, config: ProcessorConfig) -> None:
        self._log = log
        self._topic = config.response_topic_name
        self._partition_count = config.response_topic_partitions

    def outbox_answer(self, effect: Respond) -> OutboxAnswer | None:
        """Return a response as it is stored and appended; None if the response topic has no such partition."""
        partition = effect.address.partition
        if not 0 <= partition < self._partition_count:
            return None
        value = effect.value
        # A character has one to four bytes.
        if 4 * len(value) > _SURE_TO_FIT_BYTES:
            value = self._bounded(effect)
        return constructed(OutboxAnswer, partition=partition, member_id=effect.address.member_id, value=value)

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
        return _too_large(response, size, self._topic, limit).model_dump_json()

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
        f"The answer has {size} bytes; topic {topic} takes {limit}. What was asked for is done.",
        f"Ask for less at once, or raise {MAX_MESSAGE_BYTES_CONFIG} of topic {topic}.",
    )
    body = ErrorResponse(error_code=error.code, error_message=str(error)).model_dump(mode="json")
    return response.model_copy(update={"body": body})


def group_listing(message: LoggedRequest, states: Mapping[str, str], leader_epoch: int) -> Effect:
    """Return the response to a ListGroups request.

    Args:
        message: the request.
        states: group → its state, of all groups of the request's partition.
        leader_epoch: epoch of the processor.
    """
    envelope = message.envelope
    if envelope.reply_partition < 0:
        return Undecodable(message.offset, "A request for a list of groups asks for no answer.")
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
