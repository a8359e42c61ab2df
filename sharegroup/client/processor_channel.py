"""The channel between a member and its processor: the request log, and the member's part of the response log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from sharegroup.client.exchange import Request
from sharegroup.client.settings import ChannelTopics
from sharegroup.errors import InvalidRequestError, LogError, LogUnavailableError, UnknownTopicError
from sharegroup.logs.life_signs import LifeSigns
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Follower, Log, LogRecord, NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import MemberAlive
from sharegroup.protocol.internal_messages import MemberEnded
from sharegroup.protocol.messages import Message, RequestEncoder, ResponseEnvelope, decoded_response, request

_RECORDS_PER_RECEIVE = 1_000
_BYTES_PER_RECEIVE = 16 * 1024 * 1024

_logger = logging.getLogger(__name__)


class ProcessorChannel:
    """Sends requests of one member and receives its responses.

    One thread at a time may send, and one receive; any thread may close it.

    Args:
        member_id: id of the member; responses have it as their key.

    Raises:
        UnknownTopicError: a topic is missing, because no processor was ever started on this log.
    """

    def __init__(
        self, log: Log, group_id: str, member_id: str, client_id: str = "", topics: ChannelTopics | None = None
    ) -> None:
        topics = topics or ChannelTopics()
        request_partition_count = log.describe_topic(topics.request_topic_name).partition_count
        response_partition_count = log.describe_topic(topics.response_topic_name).partition_count
        self._log = log
        self._group_id = group_id
        self._member_id = member_id
        self._client_id = client_id
        self._request_topic = topics.request_topic_name
        self._request_partition_count = request_partition_count
        self._request_partition = partition_for(group_id, request_partition_count)
        self._response_topic = topics.response_topic_name
        self._response_partition = partition_for(member_id, response_partition_count)
        self._encoder = RequestEncoder(group_id, member_id, client_id, self._response_partition)
        self._lock = threading.Lock()
        self._is_closed = False
        # Another partition may have no leader.
        offsets = log.offsets(self._response_topic, [self._response_partition])
        self._follower: Follower | None = self._follow(offsets[self._response_partition].end_offset)

    @property
    def request_partition_count(self) -> int:
        """The number of partitions of the request log."""
        return self._request_partition_count

    def send(self, requests: Sequence[Request[Message]], partition: int | None = None) -> None:
        """Append requests, all or none.

        Args:
            partition: partition of the request log; None is the group's.

        Raises:
            LogUnavailableError: the log cannot be written, or the request topic was deleted; a retry may help.
        """
        key = self._group_id.encode()
        records = [
            NewRecord(key, self._encoder.encoded(api_key, correlation_id, body))
            for correlation_id, api_key, body in requests
        ]
        try:
            # A repeated request gets its response again, and is not applied.
            to_partition = self._request_partition if partition is None else partition
            self._log.append(self._request_topic, to_partition, records, may_repeat=True)
        except UnknownTopicError as error:
            raise _topic_gone(self._request_topic) from error

    @property
    def life_signs(self) -> LifeSigns:
        """The messages by which another process speaks for the member."""
        alive = request(
            ApiKey.MEMBER_ALIVE, self._group_id, MemberAlive(), member_id=self._member_id, client_id=self._client_id
        )
        ended = request(ApiKey.MEMBER_ENDED, self._group_id, MemberEnded(member_id=self._member_id))
        return LifeSigns(
            self._request_topic, self._request_partition, self._group_id.encode(), alive.encoded(), ended.encoded()
        )

    def receive(self, timeout_ms: int) -> list[ResponseEnvelope]:
        """Return the next responses of its group to this member, and announcements of processors.

        Blocks until something is appended to the response partition, `close` is called, or the time is over.
        Responses to others are skipped, also those of another group whose request named this member.

        Raises:
            LogUnavailableError: the log cannot be read, or the response topic was deleted; a retry may help. Once
                the topic exists again, it is followed from its start.
        """
        follower = self._attached_follower()
        if follower is None:
            return []
        try:
            records = follower.take(_RECORDS_PER_RECEIVE, _BYTES_PER_RECEIVE, timeout_ms)
        except UnknownTopicError:
            self._detach_follower()
            return []
        except LogError:
            if self._is_closed:
                # Another thread closed the follower before this one waited.
                return []
            raise
        return [response for record in records for response in self._responses(record)]

    def close(self) -> None:
        """End a waiting `receive`, and release all resources; requests can still be sent."""
        with self._lock:
            self._is_closed = True
        self._detach_follower()

    def _follow(self, position: int) -> Follower:
        return self._log.follow(self._response_topic, {self._response_partition: position})

    def _attached_follower(self) -> Follower | None:
        """Return the follower, a new one if the response topic was deleted; None once closed."""
        with self._lock:
            if self._is_closed or self._follower is not None:
                return self._follower
        try:
            follower = self._follow(0)
        except UnknownTopicError as error:
            raise _topic_gone(self._response_topic) from error
        with self._lock:
            if not self._is_closed:
                self._follower = follower
                return follower
        follower.close()
        return None

    def _detach_follower(self) -> None:
        with self._lock:
            follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def _responses(self, record: LogRecord) -> list[ResponseEnvelope]:
        if record.key and record.key != self._member_id.encode():
            return []
        try:
            response = decoded_response(record.value)
        except InvalidRequestError as error:
            # The request times out and is sent again; an error would end the member without need.
            _logger.warning("A response to member %s is not readable: %s", self._member_id, error)
            return []
        addressee = (response.group_id, response.member_id)
        if addressee == (self._group_id, self._member_id):
            return [response]
        return [response] if addressee == ("", "") and response.api_key == ApiKey.PROCESSOR_STARTED else []


def _topic_gone(topic: str) -> LogUnavailableError:
    return LogUnavailableError(f"The topic {topic} is gone.", "Start the processor, which creates it again.")
