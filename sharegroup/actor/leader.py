"""The leader actor of a group: share sessions, acknowledgements, fetches and locks of all its share-partitions.

It lives in memory between the cuts of the request log, and is a function of messages and cuts: it reads no clock and
no table. After a takeover it is built from the folded state table. Share sessions, parked fetches and offsets of the
record log are not stored there: messages bring them again.

`receive` applies one message, at its append time:

1. Sessions of silent members end, then the locks that are due by then: an acknowledgement that was queued in time
   still counts.
2. The sender is not silent any more. A message of the processor's own shows that the log works, so it ends the locks
   of members that were silent for too long (`holder_liveness.py`).
3. The handler of the message's kind (`_receivers`) applies it. Requests of members are in `share_requests.py`; a fetch
   is only parked there. Those of the coordinator are in `state_lifetimes.py`, what sinks say in `write_resolutions.py`.
   A refused message changes nothing beyond steps 1 and 2.

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

from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.dead_letters import all_waiting, finish_written, new_dead_letters, queue_changed, status_row
from sharegroup.actor.descriptions import described_partitions
from sharegroup.actor.earlier_states import awaited_states
from sharegroup.actor.effects import Effect, Persist, Send, Wake
from sharegroup.actor.fetches import FetchService
from sharegroup.actor.group_writes import GroupWrites
from sharegroup.actor.holder_liveness import HolderLiveness
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
from sharegroup.actor.state_lifetimes import StateLifetimes
from sharegroup.actor.write_resolutions import check_no_open_writes, named_partitions, resolve_write
from sharegroup.config.group import effective_group_config
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.records import PartitionKey, SharePartitionLimits
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_description import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
from sharegroup.protocol.internal_messages import (
    DlqStatusChanged,
    LogOffsets,
    ShareGroupConfigChanged,
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
        self._liveness = HolderLiveness(
            self._sessions, self._partitions, self._holders, self._silence, self._requests, context.leader_epoch
        )
        self._watches = LogWatches(self._sessions, self._partitions, self._uninitialized, self._offsets)
        self._lifetimes = StateLifetimes(
            self._partitions, self._uninitialized, self._sessions, self._watches, self._offsets, self._row
        )
        self._wake_ms: int | None = None
        self._effects: list[Effect] = []
        self._status_rows: list[tuple[int, StateRow]] = []
        """(offset, row) of changes of the group's status."""
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
            ApiKey.SHARE_GROUP_HEARTBEAT: self._liveness.heartbeat,
            ApiKey.MEMBER_ALIVE: self._liveness.member_alive,
            ApiKey.MEMBER_ENDED: lambda message: self._liveness.member_ended(message, self._limits),
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
        self._liveness.expire_locks(message, self._limits)
        # 2. Silence.
        self._liveness.note_sender(message, self._limits)
        # 3. The message.
        open_count = len(self._partitions.writes)
        self._receivers[message.envelope.api_key](message)
        if len(self._partitions.writes) < open_count:
            for postponed in self._lifetimes.take_postponed(message):
                self._receivers[postponed.envelope.api_key](postponed)

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """Serve the waiting fetches, and return the effects of the cut."""
        # 1. Fetches.
        new_fetches = list(self._sessions.new_fetches)
        is_paused = self._paused_at_offset is not None or self._awaits_sinks
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
            self._context.addressed(row, offset, time)
            for offset, row in (*self._status_rows, *self._lifetimes.take_rows(), *self._rows(last_offset))
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
        self._effects, self._status_rows = [], []
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
            awaits_sinks=self._awaits_sinks,
            sinks=config.exactly_once_sinks if config.share_exactly_once_sinks else frozenset(),
        )

    def _acknowledge(self, message: LoggedRequest) -> None:
        self._requests.acknowledge(message, self._limits)

    def _initialize(self, message: LoggedRequest) -> None:
        for body in self._lifetimes.initialize(message, self._config):
            self._send(ApiKey.SHARE_GROUP_STATE_INITIALIZED, body)

    def _start(self, keys: list[PartitionKey], message: LoggedRequest) -> None:
        for body in self._lifetimes.start(keys, message, self._config):
            self._send(ApiKey.SHARE_GROUP_STATE_INITIALIZED, body)

    def _delete_state(self, message: LoggedRequest) -> None:
        for body in self._lifetimes.delete(message):
            self._send(ApiKey.SHARE_GROUP_STATE_DELETED, body)

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
        self._awaits_sinks = bool(awaited_states(self._context, self._config))

    def _dlq_status_changed(self, message: LoggedRequest) -> None:
        self._dead_letter_failure = parsed(DlqStatusChanged, message.envelope.body).failure
        self._status_rows.append((message.offset, status_row(message)))

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
