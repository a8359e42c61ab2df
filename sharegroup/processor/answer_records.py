"""Answers as final bytes: one that the response topic does not take is replaced by MESSAGE_TOO_LARGE."""

from __future__ import annotations

import logging

from sharegroup.actor.effects import Respond
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import MessageTooLargeError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log
from sharegroup.processor.topics import MAX_MESSAGE_BYTES, MAX_MESSAGE_CONFIG
from sharegroup.protocol.marker import OutboxAnswer
from sharegroup.protocol.messages import ErrorResponse, ResponseEnvelope

logger = logging.getLogger("sharegroup.processor")

_SURE_TO_FIT_BYTES = 1_000_000
"""Less than any topic takes, unless its `max.message.bytes` is smaller than Kafka's own default."""
_OVERHEAD_BYTES = 8 * 1024
"""More than a batch of one record has beside the value: its key, a member id, has 1,024 characters at most."""


class AnswerRecords:
    """Makes the outbox entries of answers, and the records that are appended to the response topic.

    Kafka's brokers bound what a request may ask for, and so their answers. The requests here are bounded, too, but only
    an answer itself shows what hostile requests ask for, such as errors that repeat long names ten thousand times.

    Args:
        log: the log of the response topic.
        config: its name and partition count.
        leader_epoch: epoch of the processor; every answer carries it.
    """

    def __init__(self, log: Log, config: ProcessorConfig, leader_epoch: int) -> None:
        self._log = log
        self._leader_epoch = leader_epoch
        self._topic = config.response_topic_name
        self._partition_count = config.response_topic_partitions

    def outbox_answer(self, effect: Respond) -> OutboxAnswer | None:
        """Return an answer as it is stored and appended; None if the response topic has no such partition."""
        if not 0 <= effect.partition < self._partition_count:
            return None
        response = effect.response.model_copy(update={"leader_epoch": self._leader_epoch})
        value = response.model_dump_json()
        # A character has one byte to four.
        if 4 * len(value) > _SURE_TO_FIT_BYTES:
            value = self._bounded(response, value)
        return OutboxAnswer(partition=effect.partition, member_id=response.member_id, value=value)

    def _bounded(self, response: ResponseEnvelope, value: str) -> str:
        size = len(value.encode())
        if size <= _SURE_TO_FIT_BYTES or size <= (limit := self._max_bytes()):
            return value
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
        """Return the length of the longest value that the topic takes now."""
        try:
            config = self._log.describe_topic(self._topic).config
        except UnknownTopicError:
            # It is going to be created again.
            config = {}
        return int(config.get(MAX_MESSAGE_CONFIG, MAX_MESSAGE_BYTES)) - _OVERHEAD_BYTES


def _too_large(response: ResponseEnvelope, size: int, topic: str, limit: int) -> ResponseEnvelope:
    error = MessageTooLargeError(
        f"The answer has {size} bytes; topic {topic} takes {limit}. What was asked for is done.",
        f"Ask for less at once, or raise {MAX_MESSAGE_CONFIG} of topic {topic}.",
    )
    body = ErrorResponse(error_code=error.code, error_message=str(error)).model_dump(mode="json")
    return response.model_copy(update={"body": body})
