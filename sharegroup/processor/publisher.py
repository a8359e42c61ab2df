"""Appends the loop's output: internal messages to the request log, then responses to the response log.

A log without transactions appends topic by topic. Messages come first: the requests that a member sends after its
response then follow, in the request log, the messages of the commit. After a crash between the two, the next processor
publishes both again from the outbox; a repeated message or response does no harm.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import LogLockedError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.processor.topics import check_request_topic, ensure_response_topic
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import ProcessorStarted, Tick
from sharegroup.protocol.marker import OutboxAnswer
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, request

logger = logging.getLogger("sharegroup.processor")

COMMIT_ID_HEADER = "commit_id"
"""Header of responses: the commit that they depend on. It reveals an older copy of the state table."""

LOCKED_ATTEMPTS = 3
"""Attempts of an append, 10 s each, while another writer keeps the embedded log locked."""

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
        for attempt in range(1, LOCKED_ATTEMPTS + 1):
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
