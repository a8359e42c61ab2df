"""Appends what the loop publishes: internal messages to the request log, then answers to the response log.

A log that is no database appends topic by topic. Messages come first: what a member does once it has its answer then
follows, in the request log, what the commit had to say. After a crash between the two, the next processor publishes
both again from the outbox; a message or an answer that comes twice does no harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.processor.topics import check_request_topic, ensure_response_topic
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import ProcessorStarted, Tick
from sharegroup.protocol.marker import OutboxAnswer
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, request

COMMIT_ID_HEADER = "commit_id"
"""Header of answers: the commit that they rest on. It tells an older copy of the state table."""

_Batches = dict[tuple[str, int], list[NewRecord]]


class LogPublisher:
    """Publishes for one processor; any thread may use it.

    Args:
        log: request and response log.
        config: names and partition counts of the topics.
        request_topic_id: the request topic that the processor follows.
        leader_epoch: epoch of the processor.
    """

    def __init__(self, log: Log, config: ProcessorConfig, request_topic_id: str, leader_epoch: int) -> None:
        self._log = log
        self._config = config
        self._leader_epoch = leader_epoch
        self._request_topic_id = request_topic_id

    def publish(self, messages: Sequence[tuple[str, str]], answers: Sequence[OutboxAnswer], commit_id: int) -> None:
        """Append internal messages (group id, envelope in JSON), then answers."""
        batches: _Batches = defaultdict(list)
        for group_id, value in messages:
            self._add_message(batches, group_id, value.encode())
        header = (COMMIT_ID_HEADER, str(commit_id).encode())
        for answer in answers:
            record = NewRecord(answer.member_id.encode(), answer.value.encode(), (header,))
            batches[self._config.response_topic_name, answer.partition].append(record)
        self._append(batches)

    def send(self, requests: Sequence[RequestEnvelope]) -> None:
        """Append internal messages, each in its group's partition."""
        batches: _Batches = defaultdict(list)
        for envelope in requests:
            self._add_message(batches, envelope.group_id, envelope.model_dump_json(exclude_defaults=True).encode())
        self._append(batches)

    def tick(self, group_id: str, time_ms: int) -> tuple[str, str]:
        """Return a Tick for a group at a time of its request partition, as `publish` takes it."""
        envelope = request(ApiKey.TICK, group_id, Tick(time_ms=time_ms), leader_epoch=self._leader_epoch)
        return group_id, envelope.model_dump_json(exclude_defaults=True)

    def check_request_topic(self) -> None:
        """Check that the request topic is still the one that the processor follows.

        Raises:
            UnknownTopicError: it was deleted, or created again.
        """
        check_request_topic(self._log, self._config, self._request_topic_id)

    def announce_to_processors(self, announcement: ProcessorStarted) -> Mapping[int, int]:
        """Append the announcement to every request partition; returns its offset in each."""
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
        self._append({(topic, p): [record] for p in range(self._config.response_topic_partitions)})

    def _announcement(self, announcement: ProcessorStarted) -> RequestEnvelope:
        return request(ApiKey.PROCESSOR_STARTED, "", announcement, leader_epoch=self._leader_epoch)

    def _add_message(self, batches: _Batches, group_id: str, value: bytes) -> None:
        partition = partition_for(group_id, self._config.request_topic_partitions)
        batches[self._config.request_topic_name, partition].append(NewRecord(group_id.encode(), value))

    def _append(self, batches: Mapping[tuple[str, int], Sequence[NewRecord]]) -> None:
        if not batches:
            return
        appends = [(topic, partition, records) for (topic, partition), records in batches.items()]
        try:
            self._log.append_all(appends)
        except UnknownTopicError:
            # Nothing was appended to a topic that is gone. Members ask again for the answers that went with theirs.
            self.check_request_topic()
            ensure_response_topic(self._log, self._config)
            self._log.append_all(appends)
