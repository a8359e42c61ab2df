"""A stand-in for the processor, to test loaders alone: it responds to each request of a local log at once."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.channel import ChannelSettings
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import LogRecord, NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatResponse, TopicPartitions
from sharegroup.protocol.messages import (
    ErrorResponse,
    Message,
    RequestEnvelope,
    ResponseEnvelope,
    decoded_request,
    parsed,
)
from sharegroup.protocol.share_fetch import (
    AcquiredRecords,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
    TopicResponse,
)


class Responder:
    """Responds to members from a thread, and remembers their requests; a context manager.

    Args:
        path: the log.

    Attributes:
        channel: the channel to it.
        requests: all requests, in their order.
    """

    def __init__(self, path: Path) -> None:
        self.channel = ChannelSettings(str(path), "requests", "responses")
        self.requests: list[RequestEnvelope] = []
        self._held = threading.Event()
        self._log = LocalLog(path)
        self._log.create_topic("requests", 2)
        self._log.create_topic("responses", 4)
        self._follower = self._log.follow("requests", {0: 0, 1: 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._next_offset = 0
        self._session_epochs: dict[str, int] = {}
        self._topics: dict[str, str] = {}

    def hold(self) -> None:
        """Respond to nothing until `release`."""
        self._held.set()

    def release(self) -> None:
        """Respond to what waits, and go on."""
        self._held.clear()

    def announce(self) -> None:
        """Tell all members that a processor has started."""
        response = ResponseEnvelope(api_key=ApiKey.PROCESSOR_STARTED, correlation_id=-1, group_id="", member_id="")
        self._log.append_all([("responses", p, [NewRecord(None, response.encoded())]) for p in range(4)])
        self._session_epochs.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._follower.wake()
        self._thread.join()
        self._follower.close()
        self._log.close()

    def _run(self) -> None:
        waiting: list[LogRecord] = []
        while not self._is_over.is_set():
            waiting += self._follower.take(1_000, 1_000_000, 20 if self._held.is_set() else 1_000)
            if not self._held.is_set():
                self._log.append_all([self._response(decoded_request(record.value)) for record in waiting])
                waiting = []

    def _response(self, request: RequestEnvelope) -> tuple[str, int, list[NewRecord]]:
        self.requests.append(request)
        response = ResponseEnvelope(
            api_key=request.api_key,
            correlation_id=request.correlation_id,
            group_id=request.group_id,
            member_id=request.member_id,
            body=self._body(request).model_dump(mode="json"),
        )
        return "responses", request.reply_partition, [NewRecord(request.member_id.encode(), response.encoded())]

    def _body(self, request: RequestEnvelope) -> Message:
        match request.api_key:
            case ApiKey.SHARE_GROUP_HEARTBEAT:
                topics = request.body.get("subscribed_topic_names")
                assigned = [TopicPartitions(topic_id=topic, topic=topic, partitions=[0, 1]) for topic in topics or []]
                return ShareGroupHeartbeatResponse(member_epoch=1, assignment=assigned or None)
            case ApiKey.SHARE_FETCH:
                return self._fetched(request.member_id, parsed(ShareFetchRequest, request.body))
            case ApiKey.SHARE_ACKNOWLEDGE:
                return self._acknowledged(request.member_id, parsed(ShareAcknowledgeRequest, request.body))
            case _:
                return ErrorResponse()

    def _fetched(self, member_id: str, fetch: ShareFetchRequest) -> ShareFetchResponse:
        if not self._is_next(member_id, fetch.share_session_epoch):
            return ShareFetchResponse(error_code=123)
        if fetch.share_session_epoch == 0:
            self._topics[member_id] = fetch.topics[0].topic_id
        if self._topics.get(member_id) == "idle":
            return ShareFetchResponse()
        first = self._next_offset
        self._next_offset += fetch.max_records
        acquired = AcquiredRecords(first_offset=first, last_offset=self._next_offset - 1, delivery_count=1)
        partition = PartitionResponse(partition_index=0, acquired_records=[acquired])
        return ShareFetchResponse(responses=[TopicResponse(topic_id="records", partitions=[partition])])

    def _acknowledged(self, member_id: str, body: ShareAcknowledgeRequest) -> ShareFetchResponse:
        if not self._is_next(member_id, body.share_session_epoch):
            return ShareFetchResponse(error_code=123)
        topics = [
            TopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResponse(partition_index=partition.partition_index, is_acknowledged=True)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        return ShareFetchResponse(responses=topics)

    def _is_next(self, member_id: str, epoch: int) -> bool:
        expected = self._session_epochs.get(member_id, -1) + 1
        self._session_epochs[member_id] = epoch
        return epoch in (0, expected)
