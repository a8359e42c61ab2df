"""The leader actor of a group: share sessions, acknowledgements, fetches and locks of all its share-partitions.

A batch is handled in two steps. Each message is judged by itself, at its append time (`receive`); then the fetches
that wait are served together, so that what is available is divided fairly among them (`finish`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sharegroup.actor.acknowledgements import acknowledge
from sharegroup.actor.answers import grouped_by_topic, response_to
from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.dead_letters import all_waiting, finish_written, given_up, queue_changed, status_row
from sharegroup.actor.effects import Effect, Persist, Respond, Send, Wake, WatchLog
from sharegroup.actor.fetches import MAX_RANGES_PER_ANSWER, serve_fetches
from sharegroup.actor.initialization import UninitializedPartitions
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.share_session import PartitionKey, PendingFetch, ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.config.group import effective_group_config
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    LogOffsets,
    ShareGroupConfigChanged,
    ShareGroupStateDeleted,
)
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, parsed, request
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
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
        uninitialized: share-partitions that wait for a state, in the form of the actor's state bytes.
    """

    def __init__(
        self,
        context: ActorContext,
        overrides: Mapping[str, str],
        partitions: Iterable[LedPartition] = (),
        sessions: Iterable[ShareSession] = (),
        offsets: KnownOffsets | None = None,
        uninitialized: Iterable[Any] = (),
    ) -> None:
        self._context = context
        self._overrides = dict(overrides)
        self._partitions = {led.key: led for led in partitions}
        self._sessions = ShareSessions(context.broker.group_share_max_share_sessions, sessions)
        self._offsets = offsets or KnownOffsets()
        self._uninitialized = UninitializedPartitions(uninitialized, self._partitions, self._offsets)
        self._config = effective_group_config(context.broker, self._overrides)
        self._next_lock_ms = self._earliest_lock_ms(self._partitions.values())
        self._effects: list[Effect] = []
        self._early_rows: list[tuple[int, StateRow]] = []
        """(offset, row) of what comes before the batch's end: status rows, and rows of states that end in it."""
        self._receivers: dict[int, Callable[[LoggedRequest], None]] = {
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._initialize,
            ApiKey.DELETE_SHARE_GROUP_STATE: self._delete_state,
            ApiKey.LOG_OFFSETS: self._log_offsets,
            ApiKey.SHARE_GROUP_CONFIG_CHANGED: self._config_changed,
            ApiKey.DLQ_WRITTEN: self._dlq_written,
            ApiKey.DLQ_STATUS_CHANGED: self._dlq_status_changed,
            ApiKey.TICK: self._nothing_more,
            ApiKey.RESUME_SHARE_GROUP: self._resume,
        }

    def receive(self, message: LoggedRequest) -> None:
        """Judge one message at its append time; locks that ended by then end first."""
        self._expire_locks(message)
        self._receivers[message.envelope.api_key](message)

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """Serve the waiting fetches and say what is to be done.

        Args:
            last_offset: offset of the batch's last message for this group.
            time: the batch's time, from which new locks run.
        """
        answers = serve_fetches(
            self._sessions, self._partitions, self.limits, self._offsets, self._isolation_level, time
        )
        for session, body in answers:
            self._answer(session, body)
        rows = self._rows(last_offset, time)
        letters = given_up(self._context.group_id, self._config, (row.row for row in rows))
        early = [Persist(self._context.addressed(row, offset, time)) for offset, row in self._early_rows]
        expired = sum(not body.responses for _, body in answers)
        counted = self._sessions.counted(self._context.group_id, expired)
        effects = [*self._effects, *early, *rows, *letters, *self._watches(), counted]
        effects.append(Wake(self._context.group_id, ActorRole.LEADER, self._next_deadline_ms()))
        self._effects, self._early_rows = [], []
        return effects

    @property
    def partitions(self) -> Mapping[PartitionKey, LedPartition]:
        """The share-partitions that have their state. To be read only."""
        return self._partitions

    @property
    def sessions(self) -> Iterable[ShareSession]:
        """The open share sessions. To be read only."""
        return self._sessions

    @property
    def overrides(self) -> Mapping[str, str]:
        """The group's own configuration, as the coordinator told it last."""
        return self._overrides

    @property
    def limits(self) -> SharePartitionLimits:
        """What the group's configuration allows now."""
        return self._config.share_partition_limits

    @property
    def _isolation_level(self) -> IsolationLevel:
        return IsolationLevel(self._config.share_isolation_level)

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold the whole state between two batches."""
        return [
            self._overrides,
            [led.to_plain() for led in self._partitions.values()],
            [session.to_plain() for session in self._sessions],
            self._offsets.to_plain(),
            self._uninitialized.to_plain(),
        ]

    @classmethod
    def from_plain(cls, context: ActorContext, plain: list[Any]) -> Leader:
        """The leader that `to_plain` wrote."""
        overrides, partitions, sessions, offsets, uninitialized = plain
        return cls(
            context,
            overrides,
            [LedPartition.from_plain(led) for led in partitions],
            [ShareSession.from_plain(session) for session in sessions],
            KnownOffsets.from_plain(offsets),
            uninitialized,
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
        # A fetch that waited longer than sessions live would keep the session of a member that is gone.
        longest_ms = min(body.max_wait_ms, self._config.share_session_timeout_ms)
        wait_ms = 0 if acknowledged or not body.max_records else longest_ms
        session.pending = PendingFetch(
            message.envelope.model_copy(update={"body": {}}),
            min(body.max_records, MAX_RANGES_PER_ANSWER * body.batch_size),
            body.batch_size,
            body.acquire_mode,
            message.time_ms + wait_ms,
            message.offset,
            acknowledged,
        )

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
        """The session that a request belongs to; None when nothing more is to be done for it."""
        envelope = message.envelope
        before = self._sessions.get(envelope.member_id)
        if before is not None and before.is_repeat(envelope, epoch):
            if before.kept_answer is not None:
                self._respond(envelope, before.kept_answer)
            return None
        if before is None and epoch != INITIAL_EPOCH and self._judged_without_session(message, epoch, topics):
            return None
        if epoch == INITIAL_EPOCH:
            session = self._sessions.opened(message, topics, self._config.share_session_timeout_ms)
        else:
            session = self._sessions.continued(message, epoch, topics)
        if before is not None:
            self._answer_without_records(before)
        session.accept(envelope, epoch, message.time_ms)
        return session

    def _judged_without_session(self, message: LoggedRequest, epoch: int, topics: list[FetchTopic]) -> bool:
        """Judge the acknowledgements of a member whose session is not known, but whose locks are.

        A recovery brings locks back, not sessions. What was appended before a lock's deadline counts all the same;
        the member learns that its session is gone when it fetches.
        """
        envelope = message.envelope
        partitions = self._partitions.values()
        says_something = any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions)
        if not says_something or not any(led.share_partition.runs.held_by(envelope.member_id) for led in partitions):
            return False
        acknowledged = self._acknowledged(message, topics)
        if epoch == FINAL_EPOCH:
            self._release(message)
        body = ShareFetchResponse(share_session_epoch=epoch, responses=grouped_by_topic(acknowledged))
        self._respond(envelope, response_to(envelope, body))
        return True

    def _close(self, session: ShareSession, message: LoggedRequest, topics: list[FetchTopic]) -> None:
        acknowledged = self._acknowledged(message, topics)
        self._release(message)
        self._sessions.close(session)
        self._answer_request(session, message.envelope, acknowledged)

    def _release(self, message: LoggedRequest) -> None:
        """Let go of everything that the member of a message holds."""
        for led in self._partitions.values():
            released = led.share_partition.release_member(message.envelope.member_id, self.limits, message.time_ms)
            led.record(released, message.time_ms, message.offset)

    def _acknowledged(self, message: LoggedRequest, topics: list[FetchTopic]) -> dict[PartitionKey, PartitionResponse]:
        answers = acknowledge(message, topics, self._partitions, self.limits)
        touched = (led for key in answers if (led := self._partitions.get(key)) is not None)
        self._next_lock_ms = min(self._next_lock_ms, self._earliest_lock_ms(touched))
        return answers

    def _initialize(self, message: LoggedRequest) -> None:
        self._uninitialized.ask(parsed(InitializeShareGroupState, message.envelope.body))
        self._start_known_partitions(message)

    def _start_known_partitions(self, message: LoggedRequest) -> None:
        for answer in self._uninitialized.start(self._config, lambda led: self._end_state(led, message)):
            self._effects.append(Send(request(ApiKey.SHARE_GROUP_STATE_INITIALIZED, self._context.group_id, answer)))

    def _delete_state(self, message: LoggedRequest) -> None:
        body = parsed(DeleteShareGroupState, message.envelope.body)
        gone = set(body.topic_ids)
        for key, led in list(self._partitions.items()):
            if led.topic_id in gone and led.share_partition.state_epoch <= body.state_epoch:
                self._end_state(led, message)
                self._early_rows.append((message.offset, _addressed_to(led, led.tombstone())))
                del self._partitions[key]
        self._uninitialized.forget(gone, body.state_epoch)
        self._offsets.forget(gone - {led.topic_id for led in self._partitions.values()})
        answer = ShareGroupStateDeleted(state_epoch=body.state_epoch, topic_ids=body.topic_ids)
        self._effects.append(Send(request(ApiKey.SHARE_GROUP_STATE_DELETED, self._context.group_id, answer)))

    def _end_state(self, led: LedPartition, message: LoggedRequest) -> None:
        """Keep what happened to a state in this batch before the message that ends it.

        In the order of rows it stands before that message, and so before what begins with it.
        """
        row = led.take_row(self._context.broker.share_coordinator_snapshot_update_records_per_snapshot)
        if row is not None:
            self._early_rows.append((message.offset - 1, _addressed_to(led, row)))

    def _log_offsets(self, message: LoggedRequest) -> None:
        for topic in parsed(LogOffsets, message.envelope.body).topics:
            self._offsets.merge(topic)
        self._start_known_partitions(message)
        for key, led in self._partitions.items():
            moved = led.share_partition.move_log_start(self._offsets.start_offset(key), self.limits)
            led.record(moved, message.time_ms, message.offset)

    def _config_changed(self, message: LoggedRequest) -> None:
        overrides = parsed(ShareGroupConfigChanged, message.envelope.body).overrides
        before = self._config
        self._config = effective_group_config(self._context.broker, overrides)
        self._overrides = overrides
        self._effects += queue_changed(self._context.group_id, before, self._config)

    def _dlq_written(self, message: LoggedRequest) -> None:
        finish_written(message, self._partitions, self.limits)

    def _dlq_status_changed(self, message: LoggedRequest) -> None:
        self._early_rows.append((message.offset, status_row(message)))

    def _resume(self, message: LoggedRequest) -> None:
        # While the group was quarantined, it did not hear which letters were written.
        waiting = all_waiting(self._context.group_id, self._partitions.values(), self._config)
        if waiting.letters:
            self._effects.append(waiting)

    def _nothing_more(self, message: LoggedRequest) -> None:
        """The message is its own effect: time passed."""

    def _expire_locks(self, message: LoggedRequest) -> None:
        if message.time_ms < self._next_lock_ms:
            return
        limits = self.limits
        holders: set[str] = set()
        for led in self._partitions.values():
            ended = led.share_partition.expire_locks(limits, message.time_ms)
            led.record(ended, message.time_ms, message.offset)
            holders.update(record.member_id for record in ended if isinstance(record, Transition))
        self._next_lock_ms = self._earliest_lock_ms(self._partitions.values())
        for member_id in sorted(holders):
            # It may be gone without a word: the fetch that it left would lock the records once more. One that is
            # there sends another.
            session = self._sessions.get(member_id)
            if session is not None:
                self._answer_without_records(session)

    def _earliest_lock_ms(self, partitions: Iterable[LedPartition]) -> float:
        """When the first lock of some share-partitions ends; the far future when nothing is locked."""
        deadlines_ms = (led.share_partition.next_deadline_ms for led in partitions)
        return min((deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None), default=math.inf)

    def _rows(self, last_offset: int, time: CutTime) -> list[Persist]:
        updates = self._context.broker.share_coordinator_snapshot_update_records_per_snapshot
        rows = ((led, led.take_row(updates)) for led in self._partitions.values())
        return [
            Persist(_addressed_to(led, self._context.addressed(row, last_offset, time)))
            for led, row in rows
            if row is not None
        ]

    def _watches(self) -> list[Effect]:
        waiting = {key for session in self._sessions if session.pending for key in session.partitions}
        above = {
            (led.topic, led.topic_id, led.partition): self._offsets.acquirable_end(key, self._isolation_level)
            for key in sorted(waiting)
            if (led := self._partitions.get(key)) is not None
        }
        wanted = {**above, **self._uninitialized.watched()}
        return [WatchLog(self._context.group_id, wanted, self._isolation_level)]

    def _next_deadline_ms(self) -> int | None:
        fetches_ms = (session.pending.deadline_ms for session in self._sessions if session.pending)
        earliest_ms = min([self._earliest_lock_ms(self._partitions.values()), *fetches_ms, *self._next_ripe_ms()])
        return None if earliest_ms == math.inf else int(earliest_ms)

    def _next_ripe_ms(self) -> Iterable[int]:
        """When share-partitions that a fetch waits for have records again that were released with a delay."""
        waiting = {key for session in self._sessions if session.pending for key in session.partitions}
        found = (led.share_partition.next_ripe_ms for key in waiting if (led := self._partitions.get(key)) is not None)
        return (ripe_ms for ripe_ms in found if ripe_ms is not None)

    def _answer_without_records(self, session: ShareSession) -> None:
        if session.pending is not None:
            responses = grouped_by_topic(session.pending.acknowledged)
            self._answer(session, ShareFetchResponse(share_session_epoch=session.epoch, responses=responses))

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
        self._respond(envelope, session.kept_answer)

    def _respond(self, envelope: RequestEnvelope, response: ResponseEnvelope) -> None:
        if envelope.reply_partition >= 0:
            self._effects.append(Respond(envelope.reply_partition, response))


def _addressed_to(led: LedPartition, row: StateRow) -> StateRow:
    """The row with the columns that say which share-partition it is about."""
    return row.model_copy(update={"topic_id": led.topic_id, "topic": led.topic, "partition": led.partition})
