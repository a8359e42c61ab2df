"""The leader actor of a group: share sessions, acknowledgements, fetches and locks of all its share-partitions.

A batch is handled in two steps. Each message is judged by itself, at its append time (`receive`); then the fetches
that wait are served together, so that what is available is divided fairly among them (`finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sharegroup.actor.answers import grouped_by_topic, response_to
from sharegroup.actor.context import ActorContext, BatchTime, LoggedRequest
from sharegroup.actor.effects import Effect, Persist, Respond, Send, Wake, WatchLog
from sharegroup.actor.fetches import serve_fetches
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.share_session import PartitionKey, PendingFetch, ShareSession
from sharegroup.config.group import effective_group_config, validate_overrides
from sharegroup.coordinator.group_coordinator import altered_overrides
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import (
    ApiError,
    InvalidConfigError,
    InvalidRequestError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.facts import (
    UNINITIALIZED_OFFSET,
    InitializeShareGroupState,
    LogOffsets,
    ShareGroupStateInitialized,
    StatePartition,
    StateTopic,
)
from sharegroup.protocol.group_messages import AlterGroupConfigRequest
from sharegroup.protocol.messages import RequestEnvelope, parsed, request
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchPartition,
    FetchTopic,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)


class Leader:
    """Leads all share-partitions of one group.

    Args:
        context: group, leader epoch and broker configuration.
        overrides: the group's own configuration.
        partitions: share-partitions that have their state.
        sessions: open share sessions.
        offsets: what is known of the record log.
    """

    def __init__(
        self,
        context: ActorContext,
        overrides: Mapping[str, str],
        partitions: Iterable[LedPartition] = (),
        sessions: Iterable[ShareSession] = (),
        offsets: KnownOffsets | None = None,
    ) -> None:
        self._context = context
        self._overrides = dict(overrides)
        self._partitions = {led.key: led for led in partitions}
        self._sessions = {session.member_id: session for session in sessions}
        self._offsets = offsets or KnownOffsets()
        self._config = effective_group_config(context.broker, self._overrides)
        self._effects: list[Effect] = []
        self._receivers: dict[int, Callable[[LoggedRequest], None]] = {
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._initialize,
            ApiKey.LOG_OFFSETS: self._log_offsets,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter_config,
            ApiKey.TICK: self._nothing_more,
            ApiKey.RESUME_SHARE_GROUP: self._nothing_more,
        }

    def receive(self, message: LoggedRequest) -> None:
        """Judge one message at its append time; locks that ended by then end first."""
        self._expire_locks(message)
        self._receivers[message.envelope.api_key](message)

    def finish(self, last_offset: int, time: BatchTime) -> list[Effect]:
        """Serve the waiting fetches and say what is to be done.

        Args:
            last_offset: offset of the batch's last message for this group.
            time: the batch's time, from which new locks run.
        """
        limits = self.limits
        answers = serve_fetches(
            list(self._sessions.values()),
            self._partitions,
            limits,
            lambda key: self._offsets.acquirable_end(key, self._config.share_isolation_level),
            time,
        )
        for session, body in answers:
            self._answer(session, body)
        effects = [*self._effects, *self._rows(last_offset, time), *self._watches()]
        effects.append(Wake(self._context.group_id, ActorRole.LEADER, self._next_deadline_ms()))
        self._effects = []
        return effects

    @property
    def limits(self) -> SharePartitionLimits:
        """What the group's configuration allows now."""
        return self._config.share_partition_limits

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold the whole state between two batches."""
        return [
            self._overrides,
            [led.to_plain() for led in self._partitions.values()],
            [session.to_plain() for session in self._sessions.values()],
            self._offsets.to_plain(),
        ]

    @classmethod
    def from_plain(cls, context: ActorContext, plain: list[Any]) -> Leader:
        """The leader that `to_plain` wrote."""
        overrides, partitions, sessions, offsets = plain
        return cls(
            context,
            overrides,
            [LedPartition.from_plain(led) for led in partitions],
            [ShareSession.from_plain(session) for session in sessions],
            KnownOffsets.from_plain(offsets),
        )

    def _fetch(self, message: LoggedRequest) -> None:
        body = parsed(ShareFetchRequest, message.envelope.body)
        session = self._session(message, body.share_session_epoch, body.topics)
        if session is None:
            return
        if body.share_session_epoch == FINAL_EPOCH:
            self._close(session, message, body.topics)
            return
        added = [(topic.topic_id, p.partition_index) for topic in body.topics for p in topic.partitions]
        forgotten = [(topic.topic_id, p) for topic in body.forgotten_topics_data for p in topic.partitions]
        acknowledged = self._acknowledged(message, body.topics)
        session.change_partitions(added, forgotten)
        wait_ms = 0 if acknowledged or not body.max_records else body.max_wait_ms
        deadline_ms = message.time_ms + wait_ms
        session.pending = PendingFetch(message.envelope, body, acknowledged, deadline_ms, message.offset)

    def _acknowledge(self, message: LoggedRequest) -> None:
        body = parsed(ShareAcknowledgeRequest, message.envelope.body)
        session = self._session(message, body.share_session_epoch, body.topics)
        if session is None:
            return
        if body.share_session_epoch == FINAL_EPOCH:
            self._close(session, message, body.topics)
            return
        self._answer_request(session, message.envelope, self._acknowledged(message, body.topics))

    def _session(self, message: LoggedRequest, epoch: int, topics: list[FetchTopic]) -> ShareSession | None:
        """The session that a request belongs to; None when it is a repeat, which needs nothing more."""
        envelope = message.envelope
        session = self._sessions.get(envelope.member_id)
        if session is not None and session.is_repeat(envelope, epoch):
            if session.kept_answer is not None:
                self._effects.append(Respond(envelope.reply_partition, session.kept_answer))
            return None
        if epoch == INITIAL_EPOCH:
            return self._opened(envelope, topics)
        if session is None:
            raise ShareSessionNotFoundError(
                f"Member {envelope.member_id} has no open share session.", "Open one with epoch 0."
            )
        if epoch != FINAL_EPOCH:
            session.check_epoch(epoch)
        if session.pending is not None:
            self._answer(session, ShareFetchResponse(share_session_epoch=session.epoch))
        session.accept(envelope, epoch)
        return session

    def _opened(self, envelope: RequestEnvelope, topics: list[FetchTopic]) -> ShareSession:
        if not envelope.member_id:
            raise InvalidRequestError("MemberId can't be empty.", "The client must generate one, a base64 UUID.")
        if envelope.api_key != ApiKey.SHARE_FETCH:
            raise InvalidRequestError("A share session opens with a ShareFetch, not with a ShareAcknowledge.")
        if any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions):
            raise InvalidRequestError("The request that opens a share session cannot carry acknowledgements.")
        limit = self._context.broker.group_share_max_share_sessions
        if envelope.member_id not in self._sessions and len(self._sessions) >= limit:
            raise ShareSessionLimitReachedError(
                f"The group has {len(self._sessions)} share sessions; group.share.max.share.sessions is {limit}."
            )
        session = ShareSession(envelope.member_id, envelope.correlation_id)
        self._sessions[envelope.member_id] = session
        return session

    def _close(self, session: ShareSession, message: LoggedRequest, topics: list[FetchTopic]) -> None:
        acknowledged = self._acknowledged(message, topics)
        for led in self._partitions.values():
            released = led.share_partition.release_member(session.member_id, self.limits, message.time_ms)
            led.record(released, message.time_ms, message.offset)
        del self._sessions[session.member_id]
        self._answer_request(session, message.envelope, acknowledged)

    def _acknowledged(self, message: LoggedRequest, topics: list[FetchTopic]) -> dict[PartitionKey, PartitionResponse]:
        return {
            (topic.topic_id, partition.partition_index): self._acknowledge_partition(message, topic.topic_id, partition)
            for topic in topics
            for partition in topic.partitions
            if partition.acknowledgement_batches
        }

    def _acknowledge_partition(
        self, message: LoggedRequest, topic_id: str, partition: FetchPartition
    ) -> PartitionResponse:
        index = partition.partition_index
        batches = [
            AcknowledgementBatch(b.first_offset, b.last_offset, tuple(b.acknowledge_types))
            for b in partition.acknowledgement_batches
        ]
        reasons = {b.first_offset: b.reason for b in partition.acknowledgement_batches if b.reason}
        try:
            led = self._partitions.get((topic_id, index))
            if led is None:
                raise UnknownTopicOrPartitionError(f"Share-partition {topic_id}-{index} is not led here.")
            applied = led.share_partition.acknowledge(message.envelope.member_id, batches, self.limits, message.time_ms)
        except ApiError as error:
            return PartitionResponse(
                partition_index=index,
                is_acknowledged=True,
                acknowledge_error_code=error.code,
                acknowledge_error_message=str(error),
            )
        led.record(applied, message.time_ms, message.offset, reasons)
        return PartitionResponse(partition_index=index, is_acknowledged=True)

    def _initialize(self, message: LoggedRequest) -> None:
        body = parsed(InitializeShareGroupState, message.envelope.body)
        done: list[StateTopic] = []
        for topic in body.topics:
            started = [
                StatePartition(
                    partition_index=partition.partition_index,
                    start_offset=self._started(topic, partition, body.state_epoch),
                )
                for partition in topic.partitions
            ]
            done.append(StateTopic(topic_id=topic.topic_id, topic=topic.topic, partitions=started))
        answer = ShareGroupStateInitialized(topics=done)
        self._effects.append(Send(request(ApiKey.SHARE_GROUP_STATE_INITIALIZED, self._context.group_id, answer)))

    def _started(self, topic: StateTopic, partition: StatePartition, state_epoch: int) -> int:
        """Give a share-partition its state unless it has it already; returns its start offset."""
        key = (topic.topic_id, partition.partition_index)
        led = self._partitions.get(key)
        if led is None:
            start_offset = partition.start_offset
            if start_offset == UNINITIALIZED_OFFSET:
                start_offset = self._offsets.reset_offset(key, self._config)
            engine = SharePartition(start_offset, (), state_epoch)
            led = LedPartition(topic.topic, topic.topic_id, partition.partition_index, engine, SnapshotEpochs())
            self._partitions[key] = led
        return led.share_partition.start_offset

    def _log_offsets(self, message: LoggedRequest) -> None:
        for topic in parsed(LogOffsets, message.envelope.body).topics:
            self._offsets.merge(topic)
        for key, led in self._partitions.items():
            moved = led.share_partition.move_log_start(self._offsets.start_offset(key), self.limits)
            led.record(moved, message.time_ms, message.offset)

    def _alter_config(self, message: LoggedRequest) -> None:
        # The coordinator answers and persists; the leader only follows, by the same rule.
        try:
            overrides = altered_overrides(self._overrides, parsed(AlterGroupConfigRequest, message.envelope.body))
            validate_overrides(self._context.broker, overrides)
        except (InvalidConfigError, InvalidRequestError):
            return
        self._overrides = overrides
        self._config = effective_group_config(self._context.broker, overrides)

    def _nothing_more(self, message: LoggedRequest) -> None:
        """The message is its own effect: time passed, or the group goes on."""

    def _expire_locks(self, message: LoggedRequest) -> None:
        limits = self.limits
        for led in self._partitions.values():
            deadline_ms = led.share_partition.next_deadline_ms
            if deadline_ms is not None and deadline_ms <= message.time_ms:
                led.record(led.share_partition.expire_locks(limits, message.time_ms), message.time_ms, message.offset)

    def _rows(self, last_offset: int, time: BatchTime) -> list[Effect]:
        updates = self._context.broker.share_coordinator_snapshot_update_records_per_snapshot
        rows = ((led, led.take_row(updates)) for led in self._partitions.values())
        return [
            Persist(
                self._context.addressed(row, last_offset, time).model_copy(
                    update={"topic_id": led.topic_id, "topic": led.topic, "partition": led.partition}
                )
            )
            for led, row in rows
            if row is not None
        ]

    def _watches(self) -> list[Effect]:
        waiting = {key for session in self._sessions.values() if session.pending for key in session.partitions}
        above = {
            (led.topic, led.topic_id, led.partition): self._offsets.end_offset(key)
            for key in sorted(waiting)
            if (led := self._partitions.get(key)) is not None
        }
        return [WatchLog(self._context.group_id, above)]

    def _next_deadline_ms(self) -> int | None:
        locks = (led.share_partition.next_deadline_ms for led in self._partitions.values())
        fetches = (session.pending.deadline_ms for session in self._sessions.values() if session.pending)
        return min([*(deadline for deadline in locks if deadline is not None), *fetches], default=None)

    def _answer(self, session: ShareSession, body: ShareFetchResponse) -> None:
        if session.pending is not None:
            self._send_answer(session, session.pending.envelope, body)
            session.pending = None

    def _answer_request(
        self, session: ShareSession, envelope: RequestEnvelope, acknowledged: dict[PartitionKey, PartitionResponse]
    ) -> None:
        body = ShareFetchResponse(share_session_epoch=session.epoch, responses=grouped_by_topic(acknowledged))
        self._send_answer(session, envelope, body)

    def _send_answer(self, session: ShareSession, envelope: RequestEnvelope, body: ShareFetchResponse) -> None:
        session.kept_answer = response_to(envelope, body)
        self._effects.append(Respond(envelope.reply_partition, session.kept_answer))
