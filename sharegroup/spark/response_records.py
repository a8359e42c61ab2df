"""Records of the response topic: an answer that the topic does not take is replaced by one that says so."""

from __future__ import annotations

import logging

from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import MessageTooLargeError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log, NewRecord
from sharegroup.protocol.messages import ErrorResponse, ResponseEnvelope
from sharegroup.spark.link_topics import MAX_MESSAGE_BYTES, MAX_MESSAGE_CONFIG

logger = logging.getLogger("sharegroup.spark.processor")

_SURE_TO_FIT_BYTES = 1_000_000
"""Less than any topic takes that nobody gave a smaller `max.message.bytes` than Kafka's own."""
_OVERHEAD_BYTES = 8 * 1024
"""More than a batch of one record has beside the value: its key, a member id, has 1,024 characters at most."""


class ResponseRecords:
    """Makes the records of answers.

    Kafka's brokers bound what a request may ask for, and so their answers. The requests here are bounded, too, but what
    hostile ones ask for, such as errors that repeat long names ten thousand times, is told by the answer only.

    Args:
        log: where the response topic is.
        config: its name.
    """

    def __init__(self, log: Log, config: ProcessorConfig) -> None:
        self._log = log
        self._topic = config.response_topic_name

    def record(self, response: ResponseEnvelope) -> NewRecord:
        """The record of an answer, or of MESSAGE_TOO_LARGE in its place."""
        value = response.encoded()
        if len(value) > _SURE_TO_FIT_BYTES and len(value) > (limit := self._max_bytes()):
            logger.warning(
                Event(
                    "response_too_large",
                    group=response.group_id,
                    member=response.member_id,
                    api_key=response.api_key,
                    bytes=len(value),
                    limit=limit,
                )
            )
            value = _too_large(response, len(value), self._topic, limit).encoded()
        return NewRecord(response.member_id.encode(), value)

    def _max_bytes(self) -> int:
        """The longest value that the topic takes now."""
        try:
            config = self._log.describe_topic(self._topic).config
        except UnknownTopicError:
            # It is going to be made again.
            config = {}
        return int(config.get(MAX_MESSAGE_CONFIG, MAX_MESSAGE_BYTES)) - _OVERHEAD_BYTES


def _too_large(response: ResponseEnvelope, size: int, topic: str, limit: int) -> ResponseEnvelope:
    error = MessageTooLargeError(
        f"The answer has {size} bytes; topic {topic} takes {limit}. What was asked for is done.",
        f"Ask for less at once, or raise {MAX_MESSAGE_CONFIG} of topic {topic}.",
    )
    body = ErrorResponse(error_code=error.code, error_message=str(error)).model_dump(mode="json")
    return response.model_copy(update={"body": body})
