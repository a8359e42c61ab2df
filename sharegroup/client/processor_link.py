"""The way from a member to its processor and back: the request log, and the member's part of the response log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sharegroup.client.settings import LinkTopics
from sharegroup.errors import InvalidRequestError, LogUnavailableError, UnknownTopicError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message, ResponseEnvelope, decoded_response, request

_RECORDS_PER_READ = 1_000
_BYTES_PER_READ = 16 * 1024 * 1024
_LOOK_INTERVAL_S = 5.0
"""How long it may go unnoticed that the response topic was deleted and created again."""

_logger = logging.getLogger(__name__)


class ProcessorLink:
    """Sends requests of one member and receives what is answered to it; requests by one thread at a time.

    Args:
        log: where both topics are.
        group_id: the share group.
        member_id: who asks; answers have it as their key.
        client_id: free name, for people.
        topics: names of the two topics.

    Raises:
        UnknownTopicError: a topic is missing, because no processor was ever started on this log.
    """

    def __init__(
        self, log: Log, group_id: str, member_id: str, client_id: str = "", topics: LinkTopics | None = None
    ) -> None:
        topics = topics or LinkTopics()
        request_partition_count = log.describe_topic(topics.request_topic_name).partition_count
        response_partition_count = log.describe_topic(topics.response_topic_name).partition_count
        self._log = log
        self._group_id = group_id
        self._member_id = member_id
        self._client_id = client_id
        self._request_topic = topics.request_topic_name
        self._request_partition = partition_for(group_id, request_partition_count)
        self._response_topic = topics.response_topic_name
        self._response_partition = partition_for(member_id, response_partition_count)
        self._position = self._end_offset()
        self._next_look_s = time.monotonic() + _LOOK_INTERVAL_S

    def send(self, requests: Sequence[tuple[int, ApiKey, Message]]) -> None:
        """Append (correlation id, kind, body) requests, all or none.

        Raises:
            LogUnavailableError: the log cannot be written, or the request topic was deleted; trying again may help.
        """
        records = [
            NewRecord(
                self._group_id.encode(),
                request(
                    api_key,
                    self._group_id,
                    body,
                    member_id=self._member_id,
                    client_id=self._client_id,
                    correlation_id=correlation_id,
                    reply_partition=self._response_partition,
                ).encoded(),
            )
            for correlation_id, api_key, body in requests
        ]
        try:
            self._log.append(self._request_topic, self._request_partition, records)
        except UnknownTopicError as error:
            raise LogUnavailableError(
                f"The topic {self._request_topic} is gone.", "Start the processor, which creates it again."
            ) from error

    def wait(self, timeout_ms: int) -> bool:
        """Block until there is something in the response partition that was not received; false when time is over.

        Raises:
            LogUnavailableError: the log cannot be read, or the response topic was deleted; trying again may help.
        """
        with self._response_topic_needed():
            if self._log.wait({(self._response_topic, self._response_partition): self._position}, timeout_ms):
                return True
            if time.monotonic() < self._next_look_s:
                return False
            self._next_look_s = time.monotonic() + _LOOK_INTERVAL_S
            return self._end_offset() < self._position

    def receive(self) -> list[ResponseEnvelope]:
        """The answers of its group to this member since the last call; all others are passed over.

        Whoever gives this member's id in a request, be it to another group, has the answer put before this member.

        Raises:
            LogUnavailableError: as `wait`.
        """
        with self._response_topic_needed():
            return self._received()

    def _received(self) -> list[ResponseEnvelope]:
        end_offset = self._end_offset()
        if end_offset < self._position:
            # Another topic has its name now.
            self._position = 0
        answers: list[ResponseEnvelope] = []
        while self._position < end_offset:
            records = self._log.read(
                self._response_topic,
                self._response_partition,
                self._position,
                end_offset,
                _RECORDS_PER_READ,
                _BYTES_PER_READ,
            )
            for record in records:
                if record.key == self._member_id.encode():
                    answers += self._decoded(record.value)
            self._position = records[-1].offset + 1 if records else end_offset
        return answers

    @contextmanager
    def _response_topic_needed(self) -> Iterator[None]:
        try:
            yield
        except UnknownTopicError as error:
            self._position = 0
            raise LogUnavailableError(
                f"The topic {self._response_topic} is gone.", "Start the processor, which creates it again."
            ) from error

    def _decoded(self, value: bytes | None) -> list[ResponseEnvelope]:
        try:
            answer = decoded_response(value)
            return [answer] if (answer.group_id, answer.member_id) == (self._group_id, self._member_id) else []
        except InvalidRequestError as error:
            # The request times out and is sent again; a member that died of it would help nobody.
            _logger.warning("An answer to member %s is not readable: %s", self._member_id, error)
            return []

    def _end_offset(self) -> int:
        return self._log.offsets(self._response_topic)[self._response_partition].end_offset
