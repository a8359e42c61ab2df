"""The leader actor of a group: share sessions, acknowledgements, fetches and locks of all its share-partitions.

It lives in memory between the cuts of the request log, and is a function of messages and cuts: it reads no clock and
no table. After a takeover it is built from the folded state table. Share sessions, parked fetches and offsets of the
record log are not stored there: messages bring them again.

`receive` applies one message, at its append time:

1. Sessions of silent members end, then the locks that are due by then: an acknowledgement that was queued in time
   still counts.
2. The sender is not silent any more. A message of the processor's own shows that the log works, so it ends the locks
   of members that were silent for too long.
3. The handler of the message's kind (`_receivers`) applies it. Requests of members are in `share_requests.py`; a fetch
   is only parked there. A refused message changes nothing beyond steps 1 and 2.

`finish` ends the cut; new locks run from its time:

1. The fetches that wait are served together (`fetches.py`), so that the available records are divided fairly. Where
   one still waits, those that hold records get a notice (`holder_notices.py`).
2. The silence of new holders of records counts from their next sign of life on. The record log is watched for the
   fetches that still wait (`log_watches.py`).
3. Each share-partition that changed makes one row (`led_partition.py`). Rows of states that ended in the cut and of
   the group's status come first, with the offset of their own message.
4. Rows, responses, messages, dead-letter records, watches and the next wake-up are the effects.

The cost of a cut grows with the state that it touches: due times, changed share-partitions, the fetches that wait for
them and held records come from indexes. Only a change of the configuration iterates over all share-partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.dead_letters import all_waiting, finish_written, new_dead_letters, queue_changed, status_row
from sharegroup.actor.descriptions import described_partitions
from sharegroup.actor.effects import Effect, Persist, Send, Wake
from sharegroup.actor.fetches import FetchService
from sharegroup.actor.group_writes import GroupWrites
from sharegroup.actor.holder_notices import HolderNotices
from sharegroup.actor.holders import Holders
from sharegroup.actor.initialization import UninitializedPartitions
from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.log_watches import LogWatches
from sharegroup.actor.member_silence import MemberSilence
from sharegroup.actor.redrive_requests import redrive
from sharegroup.actor.share_requests import ShareRequests
from sharegroup.actor.share_session import ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.actor.write_resolutions import check_no_open_writes, named_partitions, resolve_write
from sharegroup.config.group import effective_group_config
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import Cause
from sharegroup.core.records import PartitionKey, SharePartitionLimits, Transition
from sharegroup.protocol.api_key import INTERNAL_KEYS, ActorRole, ApiKey
from sharegroup.protocol.group_description import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
from sharegroup.protocol.group_messages import JOIN_EPOCH, LEAVE_EPOCH, ShareGroupHeartbeatRequest
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    DlqStatusChanged,
    InitializeShareGroupState,
    LogOffsets,
    MemberEnded,
    ShareGroupConfigChanged,
    ShareGroupStateDeleted,
)
from sharegroup.protocol.messages import ErrorResponse, Message, RequestEnvelope, parsed, request
from sharegroup.protocol.row_payloads import LastRequest
from sharegroup.protocol.rows import StateRow

_CONSUMED = -1
"""The last Wake brought a Tick, so that the next one is needed even if it is for the same time."""


class Leader:
    """Leader actor of all share-partitions of one group.

    Args:
        overrides: the group's own configuration.
        partitions: share-partitions that have their state.
        process_names: member → host and process id.
        dead_letter_failure: why the group's dead-letter records cannot be written; "" when they can.
        paused_at_offset: the message, or a later one, after which no record is acquired; None while it is not paused.
    """

    def __init__(
        self,
        context: ActorContext,
        overrides: Mapping[str, str],
        partitions: Iterable[LedPartition] = (),
        last_requests: Mapping[str, LastRequest] | None = None,
        process_names: Mapping[str, str] | None = None,
        dead_letter_failure: str = "",
        paused_at_offset: int | None = None,
    ) -> None:
        self._context = context
        self._dead_letter_failure = dead_letter_failure
        self._paused_at_offset = paused_at_offset
        self._configure(dict(overrides))
        session_limit = context.broker.group_share_max_share_sessions
        self._holders = Holders(process_names or {}, 2 * session_limit)
        app_id_prefix = f"sharegroup/{context.state_id}/{context.group_id}"
        self._partitions = LedPartitions(self._holders, GroupWrites(app_id_prefix), partitions)
        self._offsets = KnownOffsets()
        self._uninitialized = UninitializedPartitions(self._partitions, self._offsets)
        self._sessions = ShareSessions(session_limit, self._partitions, self._config.share_session_timeout_ms)
        self._last_requests = LastRequests(last_requests or {}, 2 * session_limit)
        self._requests = ShareRequests(self._sessions, self._partitions, self._last_requests, context.leader_epoch)
        self._fetches = FetchService(self._sessions, self._partitions, self._holders, self._offsets)
        self._notices = HolderNotices(
            self._sessions, self._partitions, self._holders, context.group_id, context.leader_epoch
        )
        self._silence = MemberSilence(self._config.share_member_silence_ms)
        self._watches = LogWatches(self._sessions, self._partitions, self._uninitialized, self._offsets)
        self._wake_ms: int | None = None
        self._effects: list[Effect] = []
        self._postponed: list[LoggedRequest] = []
        """Deletions and initialisations that wait until open writes are decided; the coordinator repeats lost ones."""
        self._early_rows: list[tuple[int, StateRow]] = []
        """(offset, row) of changes before the cut's end: status rows, and rows of states that end in it."""
        self._receivers: dict[int, Callable[[LoggedRequest], None]] = {
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._initialize,
            ApiKey.DELETE_SHARE_GROUP_STATE: self._delete_state,
            ApiKey.LOG_OFFSETS: self._log_offsets,
            ApiKey.SHARE_GROUP_CONFIG_CHANGED: self._config_changed,
            ApiKey.DLQ_WRITTEN: lambda message: finish_written(message, self._partitions, self._limits),
            ApiKey.DLQ_STATUS_CHANGED: self._dlq_status_changed,
            ApiKey.TICK: self._tick,
            ApiKey.SHARE_GROUP_HEARTBEAT: self._heartbeat,
            ApiKey.MEMBER_ALIVE: self._member_alive,
            ApiKey.MEMBER_ENDED: self._member_ended,
            ApiKey.PAUSE_SHARE_GROUP: self._pause,
            ApiKey.RESUME_SHARE_GROUP: self._resume,
            ApiKey.REDRIVE_SHARE_GROUP_RECORDS: self._redrive,
            ApiKey.RESOLVE_WRITE: self._resolve_write,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self._check_writes,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self._check_writes,
            ApiKey.DELETE_GROUPS: self._check_writes,
        }

    def receive(self, message: LoggedRequest) -> None:
        """Apply one message at its append time; locks and sessions that ended by then end first.

        Raises:
            ApiError: the message is refused, and changed nothing.
        """
        # 1. Time.
        self._sessions.end_silent(message.time_ms)
        self._expire_locks(message)
        # 2. Silence.
        self._note_sender(message)
        # 3. The message.
        open_count = len(self._partitions.writes)
        self._receivers[message.envelope.api_key](message)
        if self._postponed and len(self._partitions.writes) < open_count:
            self._end_postponed(message)

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """Serve the waiting fetches, and return the effects of the cut."""
        # 1. Fetches.
        new_fetches = list(self._sessions.new_fetches)
        is_paused = self._paused_at_offset is not None
        most_writes = self._config.share_exactly_once_max_writes if self._config.share_exactly_once_enable else None
        served = self._fetches.serve(
            self._limits, self._isolation_level, time, is_paused=is_paused, most_writes=most_writes
        )
        for session, body in served:
            self._requests.respond_to_fetch(session, body, time.lock_start_ms)
        self._notices.schedule(new_fetches, time.lock_start_ms)
        notices = self._notices.take_due(time.lock_start_ms, is_paused=is_paused)
        # 2. Watches, of holders and of the log.
        self._silence.forget(self._holders.take_new())
        self._watches.settle(new_fetches, self._isolation_level)
        # 3. Rows.
        rows = [
            self._context.addressed(row, offset, time) for offset, row in (*self._early_rows, *self._rows(last_offset))
        ]
        # 4. Effects.
        group_id = self._context.group_id
        expired_count = sum(not body.responses for _, body in served)
        effects: list[Effect] = [
            *self._effects,
            *self._requests.take_responses(),
            *notices,
            *(Persist(row) for row in rows),
            *new_dead_letters(group_id, self._config, rows),
            *self._watches.take_changes(group_id, self._isolation_level),
            *self._sessions.take_count(group_id, expired_count),
            *self._wake(time.lock_start_ms),
        ]
        self._effects, self._early_rows = [], []
        return effects

    def describe(self, envelope: RequestEnvelope) -> ErrorResponse:
        """Return share-partitions, with their runs in flight if requested.

        Raises:
            InvalidRequestError: a field has a wrong value.
        """
        body = parsed(DescribeShareGroupOffsetsRequest, envelope.body)
        topics, following = described_partitions(body, self._partitions, self._context.leader_epoch)
        failure = self._dead_letter_failure
        return DescribeShareGroupOffsetsResponse(topics=topics, next=following, dead_letter_failure=failure)

    @property
    def partitions(self) -> Mapping[PartitionKey, LedPartition]:
        """The share-partitions that have their state; read only."""
        return self._partitions

    @property
    def sessions(self) -> Iterable[ShareSession]:
        """The open share sessions; read only."""
        return self._sessions

    @property
    def overrides(self) -> Mapping[str, str]:
        """The group's own configuration, as the coordinator sent it last."""
        return self._overrides

    @property
    def last_requests(self) -> Mapping[str, LastRequest]:
        """The last request with a durable effect of each member; read only."""
        return self._last_requests

    @property
    def limits(self) -> SharePartitionLimits:
        """The limits that the group's configuration sets now."""
        return self._limits

    @property
    def is_empty(self) -> bool:
        """True if this leader has no state of the group: a new leader would be the same."""
        return not self._partitions and not len(self._sessions) and not len(self._uninitialized) and not self._overrides

    def _fetch(self, message: LoggedRequest) -> None:
        config = self._config
        self._requests.fetch(
            message,
            self._limits,
            config.share_session_timeout_ms,
            is_exactly_once=config.share_exactly_once_enable,
            sinks=config.exactly_once_sinks if config.share_exactly_once_sinks else frozenset(),
        )

    def _acknowledge(self, message: LoggedRequest) -> None:
        self._requests.acknowledge(message, self._limits)

    def _initialize(self, message: LoggedRequest) -> None:
        keys = self._uninitialized.ask(parsed(InitializeShareGroupState, message.envelope.body))
        self._start(keys, message)
        self._postpone(keys, message)

    def _start(self, keys: list[PartitionKey], message: LoggedRequest) -> None:
        """Create the state of those share-partitions that wait for one and can start now."""
        for body in self._uninitialized.start(keys, self._config, partial(self._end_state, message=message), message):
            self._send(ApiKey.SHARE_GROUP_STATE_INITIALIZED, body)
            for topic in body.topics:
                for partition in topic.partitions:
                    self._sessions.led_changed((topic.topic_id, partition.partition_index))
        self._watches.unsettled.update(keys)

    def _delete_state(self, message: LoggedRequest) -> None:
        body = parsed(DeleteShareGroupState, message.envelope.body)
        topic_ids = list(dict.fromkeys(body.topic_ids))
        of_topics = (led for topic_id in topic_ids for led in self._partitions.of_topic(topic_id))
        ending = [led for led in of_topics if led.share_partition.state_epoch <= body.state_epoch]
        for led in ending:
            led.is_ending = True
        if self._postpone([led.key for led in ending], message):
            return
        for led in ending:
            self._end_state(led, message)
            self._early_rows.append((message.offset, led.tombstone()))
            self._partitions.remove(led.key)
            self._sessions.led_changed(led.key)
            self._watches.unsettled.add(led.key)
        self._watches.unsettled.update(self._uninitialized.forget(topic_ids, body.state_epoch))
        self._offsets.forget(topic_id for topic_id in topic_ids if not self._partitions.has_topic(topic_id))
        response = ShareGroupStateDeleted(state_epoch=body.state_epoch, topic_ids=body.topic_ids)
        self._send(ApiKey.SHARE_GROUP_STATE_DELETED, response)

    def _postpone(self, keys: Iterable[PartitionKey], message: LoggedRequest) -> bool:
        """Keep a message for later if share-partitions whose state it ends have open writes; return True then."""
        ending = [led for key in keys if (led := self._partitions.get(key)) is not None and led.is_ending]
        is_postponed = any(led.share_partition.open_writes for led in ending)
        if is_postponed:
            self._partitions.changed.update(led.key for led in ending)
            self._postponed.append(message)
        return is_postponed

    def _end_postponed(self, message: LoggedRequest) -> None:
        """Apply the messages again that waited for open writes, now that some are decided."""
        postponed, self._postponed = self._postponed, []
        for each in postponed:
            self._receivers[each.envelope.api_key](each._replace(offset=message.offset, time_ms=message.time_ms))

    def _end_state(self, led: LedPartition, message: LoggedRequest) -> None:
        """Keep the changes of a state that ends: their row precedes its tombstone, or the state that replaces it."""
        row = self._row(led)
        if row is not None:
            self._early_rows.append((message.offset, row))

    def _log_offsets(self, message: LoggedRequest) -> None:
        topics = parsed(LogOffsets, message.envelope.body).topics
        keys: list[PartitionKey] = []
        try:
            for topic in topics:
                keys += self._offsets.merge(topic)
        finally:
            self._apply_offsets(keys, message)
        led, waiting = self._partitions.has_topic, self._uninitialized.has_topic
        self._offsets.forget_unused((t.topic_id for t in topics), lambda id_: led(id_) or waiting(id_), message.time_ms)

    def _apply_offsets(self, keys: list[PartitionKey], message: LoggedRequest) -> None:
        """Apply the known log offsets of some partitions."""
        self._start(keys, message)
        for key in keys:
            self._watches.reported(key)
            led = self._partitions.get(key)
            if led is None:
                continue
            moved = led.share_partition.move_log_start(self._offsets.start_offset(key), self._limits)
            self._partitions.record(led, moved, message.time_ms, message.offset)
            self._partitions.changed.add(key)
            if self._sessions.is_used(key):
                self._sessions.unwatched.add(key)

    def _config_changed(self, message: LoggedRequest) -> None:
        body = parsed(ShareGroupConfigChanged, message.envelope.body)
        self._end_pause(body.removed_at_offset)
        before = self._config
        self._configure(body.overrides)
        self._sessions.change_timeout(self._config.share_session_timeout_ms)
        self._silence.change(self._config.share_member_silence_ms, message.time_ms)
        self._partitions.changed.update(self._partitions)
        if before.share_isolation_level != self._config.share_isolation_level:
            self._watches.reset()
        self._effects += queue_changed(self._context.group_id, before, self._config, body.removed_at_offset >= 0)

    def _configure(self, overrides: dict[str, str]) -> None:
        self._overrides = overrides
        self._config = effective_group_config(self._context.broker, overrides)
        self._limits = self._config.share_partition_limits
        self._isolation_level = IsolationLevel(self._config.share_isolation_level)

    def _dlq_status_changed(self, message: LoggedRequest) -> None:
        self._dead_letter_failure = parsed(DlqStatusChanged, message.envelope.body).failure
        self._early_rows.append((message.offset, status_row(message)))

    def _pause(self, message: LoggedRequest) -> None:
        self._paused_at_offset = message.offset

    def _resume(self, message: LoggedRequest) -> None:
        self._end_pause(message.offset)
        # While the group was quarantined, log offsets, Ticks and reports of written dead-letter records were refused.
        self._watches.reset()
        self._wake_ms = _CONSUMED
        waiting = all_waiting(self._context.group_id, self._partitions.values(), self._config)
        if waiting.dead_letters or self._dead_letter_failure:
            self._effects.append(waiting)

    def _end_pause(self, until_offset: int) -> None:
        if self._paused_at_offset is not None and self._paused_at_offset <= until_offset:
            self._paused_at_offset = None
            self._partitions.changed.update(self._partitions)

    def _redrive(self, message: LoggedRequest) -> None:
        self._effects += redrive(message, self._partitions, self._limits, self._context.leader_epoch)

    def _resolve_write(self, message: LoggedRequest) -> None:
        self._effects += resolve_write(
            message, self._partitions, self._offsets, self._limits, self._context.leader_epoch
        )

    def _check_writes(self, message: LoggedRequest) -> None:
        """Refuse a request that ends states while they have open writes; the coordinator handles it otherwise."""
        check_no_open_writes(self._context.group_id, named_partitions(message.envelope, self._partitions))

    def _tick(self, message: LoggedRequest) -> None:
        """Handle a Tick: `receive` has already ended the due locks and sessions."""
        if self._wake_ms is not None:
            self._wake_ms = _CONSUMED

    def _note_sender(self, message: LoggedRequest) -> None:
        """Reset the silence of a message's sender; the processor's own message shows that the log works."""
        envelope = message.envelope
        if envelope.api_key not in INTERNAL_KEYS:
            self._silence.heard(envelope.member_id, message.time_ms)
        elif envelope.leader_epoch == self._context.leader_epoch:
            for member_id in self._silence.take_silent(message.time_ms, self._holders.member_ids):
                self._release(member_id, message, Cause.MEMBER_SILENT)

    def _heartbeat(self, message: LoggedRequest) -> None:
        """Record the process of a member that joins or leaves; the coordinator handles all else."""
        member_id, member_epoch = message.envelope.member_id, message.envelope.body.get("member_epoch")
        if member_epoch == LEAVE_EPOCH:
            self._holders.forget(member_id)
        if isinstance(member_epoch, int) and member_epoch != JOIN_EPOCH:
            return
        body = parsed(ShareGroupHeartbeatRequest, message.envelope.body)
        if body.member_epoch == JOIN_EPOCH:
            self._holders.record_join(member_id, body.client_process)

    def _member_alive(self, message: LoggedRequest) -> None:
        """Count the silence of a member from now on: another process gives its signs of life."""
        member_id = message.envelope.member_id
        if member_id in self._holders.member_ids:
            self._silence.watch(member_id, message.time_ms)

    def _member_ended(self, message: LoggedRequest) -> None:
        member_id = parsed(MemberEnded, message.envelope.body).member_id
        self._release(member_id, message, Cause.MEMBER_ENDED)
        self._holders.forget(member_id)
        session = self._sessions.get(member_id)
        if session is not None:
            self._sessions.close(session)

    def _release(self, member_id: str, message: LoggedRequest, cause: Cause) -> None:
        """Release all records of a member that is gone, and acquire no more for it."""
        session = self._sessions.get(member_id)
        if session is not None:
            self._requests.respond_without_records(session, message.time_ms)
        for led in self._partitions.held_by(member_id):
            released = led.share_partition.release_member(member_id, self._limits, message.time_ms, cause)
            self._partitions.record(led, released, message.time_ms, message.offset)

    def _expire_locks(self, message: LoggedRequest) -> None:
        holders: set[str] = set()
        for led in self._partitions.take_due_locks(message.time_ms):
            ended = led.share_partition.expire_locks(self._limits, message.time_ms)
            self._partitions.record(led, ended, message.time_ms, message.offset)
            holders.update(record.member_id for record in ended if isinstance(record, Transition))
        for member_id in sorted(holders):
            # If the member has crashed, its fetch would lock the records once more; a live one sends another fetch.
            session = self._sessions.get(member_id)
            if session is not None:
                self._requests.respond_without_records(session, message.time_ms)

    def _rows(self, last_offset: int) -> list[tuple[int, StateRow]]:
        rows = (self._row(led) for led in self._partitions.take_touched())
        return [(last_offset, row) for row in rows if row is not None]

    def _row(self, led: LedPartition) -> StateRow | None:
        updates = self._context.broker.share_coordinator_snapshot_update_records_per_snapshot
        return led.take_row(updates, self._last_requests)

    def _wake(self, now_ms: int) -> list[Effect]:
        """Return the effect that schedules the next Tick; none when the time is that of the last one."""
        due_ms = [
            self._partitions.lock_deadlines.earliest_ms,
            self._sessions.next_deadline_ms,
            self._silence.next_own_ms(now_ms),
        ]
        if len(self._sessions.fetch_deadlines):
            due_ms.append(self._partitions.availability_times.earliest_ms)
            due_ms.append(self._partitions.writes.next_hand_out_ms)
        wake_ms = min((at_ms for at_ms in due_ms if at_ms is not None), default=None)
        if wake_ms == self._wake_ms:
            return []
        self._wake_ms = wake_ms
        return [Wake(self._context.group_id, ActorRole.LEADER, wake_ms)]

    def _send(self, api_key: ApiKey, body: Message) -> None:
        envelope = request(api_key, self._context.group_id, body, leader_epoch=self._context.leader_epoch)
        self._effects.append(Send(envelope))
