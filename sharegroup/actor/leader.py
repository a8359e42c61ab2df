"""The leader actor of a group: share sessions, acknowledgements, fetches and locks of all its share-partitions.

It lives in memory between the cuts of the request log. A cut is handled in two steps. Each message is applied by
itself, at its append time, after what is due by then has ended (`receive`); then the fetches that wait are served
together, so that what is available is divided fairly among them (`finish`).

A cut costs with what it touches. Due times, the share-partitions that changed, the fetches that wait for them and what
a member holds come from indexes; nothing here walks over all share-partitions or all sessions, but for a change of
the group's configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.dead_letters import all_waiting, finish_written, new_dead_letters, queue_changed, status_row
from sharegroup.actor.effects import Effect, Persist, Send, Wake
from sharegroup.actor.fetches import FetchService
from sharegroup.actor.initialization import UninitializedPartitions
from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.log_watches import LogWatches
from sharegroup.actor.share_requests import ShareRequests
from sharegroup.actor.share_session import PartitionKey, ShareSession
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
from sharegroup.protocol.messages import Message, parsed, request
from sharegroup.protocol.row_payloads import LastRequest
from sharegroup.protocol.rows import StateRow

_BELOW_ALL_OFFSETS = -1
_CONSUMED = -1
"""The last Wake brought a Tick, so that the next one is needed even if it is for the same time."""


class Leader:
    """Leads all share-partitions of one group.

    It begins, at the start and after a takeover, with what the state table says. Share sessions, parked fetches and
    the offsets of the record log are not there, and come again with messages.

    Args:
        context: group, leader epoch and broker configuration.
        overrides: the group's own configuration.
        partitions: share-partitions that have their state.
        last_requests: the last request with a durable effect of each member.
    """

    def __init__(
        self,
        context: ActorContext,
        overrides: Mapping[str, str],
        partitions: Iterable[LedPartition] = (),
        last_requests: Mapping[str, LastRequest] | None = None,
    ) -> None:
        self._context = context
        self._overrides = dict(overrides)
        self._config = effective_group_config(context.broker, self._overrides)
        self._limits = self._config.share_partition_limits
        self._isolation_level = IsolationLevel(self._config.share_isolation_level)
        session_limit = context.broker.group_share_max_share_sessions
        self._partitions = LedPartitions(partitions)
        self._offsets = KnownOffsets()
        self._uninitialized = UninitializedPartitions(self._partitions, self._offsets)
        self._sessions = ShareSessions(session_limit, self._partitions, self._config.share_session_timeout_ms)
        self._last_requests = LastRequests(last_requests or {}, 2 * session_limit)
        self._requests = ShareRequests(self._sessions, self._partitions, self._last_requests)
        self._fetches = FetchService(self._sessions, self._partitions, self._offsets)
        self._watches = LogWatches()
        self._unsettled_watches: set[PartitionKey] = set()
        """Partitions whose watch may have to change at the end of the cut."""
        self._wake_ms: int | None = None
        self._effects: list[Effect] = []
        self._early_rows: list[tuple[int, StateRow]] = []
        """(offset, row) of what comes before the cut's end: status rows, and rows of states that end in it."""
        self._receivers: dict[int, Callable[[LoggedRequest], None]] = {
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._initialize,
            ApiKey.DELETE_SHARE_GROUP_STATE: self._delete_state,
            ApiKey.LOG_OFFSETS: self._log_offsets,
            ApiKey.SHARE_GROUP_CONFIG_CHANGED: self._config_changed,
            ApiKey.DLQ_WRITTEN: self._dlq_written,
            ApiKey.DLQ_STATUS_CHANGED: self._dlq_status_changed,
            ApiKey.TICK: self._tick,
            ApiKey.RESUME_SHARE_GROUP: self._resume,
        }

    def receive(self, message: LoggedRequest) -> None:
        """Apply one message at its append time; locks and sessions that ended by then end first.

        Raises:
            ApiError: the message is refused, and changed nothing.
        """
        self._sessions.end_silent(message.time_ms)
        self._expire_locks(message)
        self._receivers[message.envelope.api_key](message)

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """Serve the waiting fetches; returns what is to be done.

        Args:
            last_offset: offset of the cut's last message for this group.
            time: the cut's time, from which new locks run.
        """
        new_fetches = sorted(self._sessions.new_fetches)
        served = self._fetches.serve(self._limits, self._isolation_level, time)
        for session, body in served:
            self._requests.answer_fetch(session, body, time.lock_start_ms)
        self._settle_watches(new_fetches)
        expired_count = sum(not body.responses for _, body in served)
        group_id = self._context.group_id
        rows = [
            self._context.addressed(row, offset, time) for offset, row in [*self._early_rows, *self._rows(last_offset)]
        ]
        effects: list[Effect] = [
            *self._effects,
            *self._requests.take_answers(),
            *(Persist(row) for row in rows),
            *new_dead_letters(group_id, self._config, rows),
            *self._watches.take_changes(group_id, self._isolation_level),
            *self._sessions.take_count(group_id, expired_count),
            *self._wake(),
        ]
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
        """The group's own configuration, as the coordinator sent it last."""
        return self._overrides

    @property
    def last_requests(self) -> Mapping[str, LastRequest]:
        """The last request with a durable effect of each member. To be read only."""
        return self._last_requests

    @property
    def limits(self) -> SharePartitionLimits:
        """The limits that the group's configuration sets now."""
        return self._limits

    @property
    def is_empty(self) -> bool:
        """True if nothing is left of the group here: a new leader would be the same."""
        return not self._partitions and not len(self._sessions) and not len(self._uninitialized) and not self._overrides

    def _fetch(self, message: LoggedRequest) -> None:
        self._requests.fetch(message, self._limits, self._config.share_session_timeout_ms)

    def _acknowledge(self, message: LoggedRequest) -> None:
        self._requests.acknowledge(message, self._limits)

    def _initialize(self, message: LoggedRequest) -> None:
        self._start(self._uninitialized.ask(parsed(InitializeShareGroupState, message.envelope.body)), message)

    def _start(self, keys: list[PartitionKey], message: LoggedRequest) -> None:
        """Give those share-partitions their state that wait for one and can start now."""
        for answer in self._uninitialized.start(keys, self._config, lambda led: self._end_state(led, message)):
            self._send(ApiKey.SHARE_GROUP_STATE_INITIALIZED, answer)
            for topic in answer.topics:
                for partition in topic.partitions:
                    self._sessions.led_changed((topic.topic_id, partition.partition_index))
        self._unsettled_watches.update(keys)

    def _delete_state(self, message: LoggedRequest) -> None:
        body = parsed(DeleteShareGroupState, message.envelope.body)
        topic_ids = list(dict.fromkeys(body.topic_ids))
        for led in [led for topic_id in topic_ids for led in self._partitions.of_topic(topic_id)]:
            if led.share_partition.state_epoch <= body.state_epoch:
                self._end_state(led, message)
                self._early_rows.append((message.offset, led.tombstone()))
                self._partitions.remove(led.key)
                self._sessions.led_changed(led.key)
                self._unsettled_watches.add(led.key)
        self._unsettled_watches.update(self._uninitialized.forget(topic_ids, body.state_epoch))
        self._offsets.forget(topic_id for topic_id in topic_ids if not self._partitions.has_topic(topic_id))
        answer = ShareGroupStateDeleted(state_epoch=body.state_epoch, topic_ids=body.topic_ids)
        self._send(ApiKey.SHARE_GROUP_STATE_DELETED, answer)

    def _end_state(self, led: LedPartition, message: LoggedRequest) -> None:
        """Keep what happened to a state in this cut before the message that ends it.

        In the order of rows it stands before that message, and so before what begins with it.
        """
        row = self._row(led)
        if row is not None:
            self._early_rows.append((message.offset - 1, row))

    def _log_offsets(self, message: LoggedRequest) -> None:
        topics = parsed(LogOffsets, message.envelope.body).topics
        keys: list[PartitionKey] = []
        try:
            for topic in topics:
                keys += self._offsets.merge(topic)
        finally:
            self._look_at_offsets(keys, message)
        self._offsets.forget_unused((topic.topic_id for topic in topics), self._has_topic, message.time_ms)

    def _has_topic(self, topic_id: str) -> bool:
        return self._partitions.has_topic(topic_id) or self._uninitialized.has_topic(topic_id)

    def _look_at_offsets(self, keys: list[PartitionKey], message: LoggedRequest) -> None:
        """Go by the log's offsets of some partitions as they are known now."""
        self._start(keys, message)
        for key in keys:
            self._watches.answered(key)
            led = self._partitions.get(key)
            if led is None:
                continue
            moved = led.share_partition.move_log_start(self._offsets.start_offset(key), self._limits)
            self._partitions.record(led, moved, message.time_ms, message.offset)
            self._partitions.changed.add(key)
            if self._sessions.is_used(key):
                self._sessions.unwatched.add(key)

    def _config_changed(self, message: LoggedRequest) -> None:
        overrides = parsed(ShareGroupConfigChanged, message.envelope.body).overrides
        before = self._config
        self._config = effective_group_config(self._context.broker, overrides)
        self._overrides = overrides
        self._limits = self._config.share_partition_limits
        self._isolation_level = IsolationLevel(self._config.share_isolation_level)
        self._sessions.change_timeout(self._config.share_session_timeout_ms)
        self._partitions.changed.update(self._partitions)
        if before.share_isolation_level != self._config.share_isolation_level:
            self._watch_anew()
        self._effects += queue_changed(self._context.group_id, before, self._config)

    def _dlq_written(self, message: LoggedRequest) -> None:
        finish_written(message, self._partitions, self._limits)

    def _dlq_status_changed(self, message: LoggedRequest) -> None:
        self._early_rows.append((message.offset, status_row(message)))

    def _resume(self, message: LoggedRequest) -> None:
        # While the group was quarantined, reports of written dead letters were refused.
        waiting = all_waiting(self._context.group_id, self._partitions.values(), self._config)
        if waiting.letters:
            self._effects.append(waiting)

    def _tick(self, message: LoggedRequest) -> None:
        """Time has passed: what is due by now has ended already."""
        if self._wake_ms is not None:
            self._wake_ms = _CONSUMED

    def _expire_locks(self, message: LoggedRequest) -> None:
        holders: set[str] = set()
        for led in self._partitions.take_due_locks(message.time_ms):
            ended = led.share_partition.expire_locks(self._limits, message.time_ms)
            self._partitions.record(led, ended, message.time_ms, message.offset)
            holders.update(record.member_id for record in ended if isinstance(record, Transition))
        for member_id in sorted(holders):
            # The member may have crashed: the fetch that it left would lock the records once more. A member that is
            # there sends another one.
            session = self._sessions.get(member_id)
            if session is not None:
                self._requests.answer_without_records(session, message.time_ms)

    def _rows(self, last_offset: int) -> list[tuple[int, StateRow]]:
        rows = (self._row(led) for led in self._partitions.take_touched())
        return [(last_offset, row) for row in rows if row is not None]

    def _row(self, led: LedPartition) -> StateRow | None:
        updates = self._context.broker.share_coordinator_snapshot_update_records_per_snapshot
        return led.take_row(updates, self._last_requests)

    def _watch_anew(self) -> None:
        """Give up all watches: those that are still needed are set again at the end of the cut."""
        for key in self._watches:
            self._watches.forget(key)
            self._unsettled_watches.add(key)
            if self._sessions.is_used(key):
                self._sessions.unwatched.add(key)

    def _settle_watches(self, new_fetches: Iterable[str]) -> None:
        """Watch what fetches and uninitialized share-partitions wait for.

        A watch stays until it is answered or no session has the partition any more, even while no fetch waits there:
        most often the next one does.
        """
        keys = self._unsettled_watches | self._sessions.left
        for member_id in new_fetches:
            session = self._sessions.get(member_id)
            if session is not None and session.pending is not None:
                keys.update(session.rotated(self._sessions.unwatched))
        for key in sorted(keys):
            topic = self._uninitialized.topic_waiting_at(key)
            led = self._partitions.get(key)
            if topic is not None:
                self._watches.watch(topic, key, _BELOW_ALL_OFFSETS)
            elif led is not None and any(True for _ in self._sessions.waiting_at(key)):
                self._watches.watch(led.topic, key, self._offsets.acquirable_end(key, self._isolation_level))
                self._sessions.unwatched.discard(key)
            elif led is None or not self._sessions.is_used(key):
                self._watches.forget(key)
        self._unsettled_watches.clear()
        self._sessions.left.clear()

    def _wake(self) -> list[Effect]:
        """The effect that asks for the next Tick; none when the time is that of the last one."""
        due_ms = [self._partitions.lock_deadlines.earliest_ms, self._sessions.next_deadline_ms]
        if len(self._sessions.fetch_deadlines):
            due_ms.append(self._partitions.availability_times.earliest_ms)
        wake_ms = min((at_ms for at_ms in due_ms if at_ms is not None), default=None)
        if wake_ms == self._wake_ms:
            return []
        self._wake_ms = wake_ms
        return [Wake(self._context.group_id, ActorRole.LEADER, wake_ms)]

    def _send(self, api_key: ApiKey, body: Message) -> None:
        envelope = request(api_key, self._context.group_id, body, leader_epoch=self._context.leader_epoch)
        self._effects.append(Send(envelope))
