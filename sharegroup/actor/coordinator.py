"""The coordinator actor of a group: heartbeats, topics, and the beginning and end of share-partitions.

It lives in memory as long as its processor does. After a takeover it is built from the group's folded state: members
get fresh sessions, requests to the leader are sent again, topics are observed again, and waiting requests of
administrators continue. `protocol/internal_messages.py` lists the sender of each internal message after a takeover.

A message is applied at its append time. The responses to heartbeats are made at the end of the cut, with the cut's
assignment; members whose assignment changed without a heartbeat in the cut get it without a request. The cost of a cut
grows with its changes: heartbeats without a change produce responses only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sharegroup.actor.administration import Administration
from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.descriptions import assigned_topics, described_config, described_group
from sharegroup.actor.effects import Address, Effect, Persist, Send, Wake, response_to
from sharegroup.actor.observed_topics import ObservedTopics
from sharegroup.actor.sink_checks import EXACTLY_ONCE_KEY, check_sink
from sharegroup.coordinator import state_topics
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.group_state import GroupState, Member
from sharegroup.errors import GroupIdNotFoundError, UnknownMemberIdError
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_administration import RedriveShareGroupRecordsRequest
from sharegroup.protocol.group_description import GroupStateName
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    AlterGroupConfigRequest,
    PauseShareGroupRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberRemoved,
    ShareGroupRemoved,
    ShareGroupTopicRemoved,
)
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    LogOffsets,
    MemberEnded,
    ShareGroupConfigChanged,
    ShareGroupStateDeleted,
    ShareGroupStateInitialized,
)
from sharegroup.protocol.messages import ErrorResponse, Message, RequestEnvelope, constructed, parsed, request
from sharegroup.protocol.row_payloads import GroupMetadataPayload
from sharegroup.protocol.rows import RecordType, StateRow

_WHOLE_TOPIC = -1
_PUSHED = -1
"""Correlation id of an assignment without a request."""


class Coordinator:
    """Coordinator actor of one group.

    Args:
        state: the group's metadata, as folded; None for a group that has no rows.
    """

    def __init__(self, context: ActorContext, state: GroupState | None = None) -> None:
        self._context = context
        self._group = GroupCoordinator(state or GroupState(), context.broker, context.group_epoch_floor)
        self._administration = Administration(context.group_id, self._group)
        self._observed_topics = ObservedTopics(context.group_id)
        self._reply_partitions: dict[str, int] = {}
        self._asked: set[tuple[str, int, int]] = set()
        """(Topic id, partition, state epoch) of the initialisations and deletions requested from the leader."""
        self._leader_overrides: dict[str, str] | None = dict(self._group.state.config_overrides)
        """The dynamic configuration that the leader has; None when that is not known."""
        self._wake_ms: int | None = None
        """The next scheduled Tick; it may be early."""
        self._is_wake_spent = False
        self._is_changed = True
        self._records: list[GroupRecord] = []
        self._heartbeats: list[tuple[RequestEnvelope, int]] = []
        self._effects: list[Effect] = []
        self._receivers: dict[int, Callable[[LoggedRequest], None]] = {
            ApiKey.SHARE_GROUP_HEARTBEAT: self._heartbeat,
            ApiKey.LOG_OFFSETS: self._log_offsets,
            ApiKey.SHARE_GROUP_STATE_INITIALIZED: self._initialized,
            ApiKey.SHARE_GROUP_STATE_DELETED: self._deleted,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter_config,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self._administer,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self._administer,
            ApiKey.DELETE_GROUPS: self._administer,
            ApiKey.TICK: self._tick,
            ApiKey.MEMBER_ENDED: self._member_ended,
            ApiKey.PAUSE_SHARE_GROUP: self._pause,
            ApiKey.RESUME_SHARE_GROUP: self._resume,
            ApiKey.REDRIVE_SHARE_GROUP_RECORDS: self._check_redrive,
        }

    @property
    def group(self) -> GroupCoordinator:
        """The group's metadata and sessions; read only."""
        return self._group

    @property
    def is_empty(self) -> bool:
        """True if no state is lost with this coordinator: no group, no configuration, no waiting request."""
        return self._group.state.is_gone

    def receive(self, message: LoggedRequest) -> None:
        """Apply one message at its append time; sessions that ended by then end first.

        Raises:
            ApiError: the message is refused; the caller responds.
        """
        self._group.open_missing_sessions(message.time_ms)
        self._add_records(self._group.expire_sessions(message.time_ms))
        self._receivers[message.envelope.api_key](message)

    @property
    def state_name(self) -> str:
        """Name of the group's state."""
        state = self._group.state
        return GroupStateName.PAUSED if state.pause is not None else state.name

    def describe(self, envelope: RequestEnvelope) -> ErrorResponse:
        """Return the group and its members, or its configuration.

        Raises:
            GroupIdNotFoundError: there is no such group to be described.
        """
        if envelope.api_key == ApiKey.DESCRIBE_CONFIGS:
            return described_config(self._group.config, self._group.state)
        if self._group.state.is_dead:
            raise GroupIdNotFoundError(f"Group {self._context.group_id} not found.")
        return described_group(self._context, self._group.state, self._group.config, self._group.assignor_name)

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """End the cut: make its assignment and respond to its heartbeats.

        Returns:
            The effects, rows first.
        """
        self._administer_on(time.last_message_ms)
        self._add_records(self._group.expire(time.last_message_ms))
        assigned = self._group.reassign(time.last_message_ms)
        self._add_records(assigned)
        self._respond_to_heartbeats()
        if assigned:
            self._push(record for record in assigned if isinstance(record, ShareGroupCurrentMemberAssignment))
        self._send_config(last_offset)
        if self._is_changed:
            self._ask_leader()
            self._watch_topics()
        self._schedule_wake()
        effects = [*self._rows(last_offset, time), *self._effects]
        self._records, self._effects, self._heartbeats, self._is_changed = [], [], [], False
        return effects

    def _add_records(self, records: Sequence[GroupRecord]) -> None:
        """Collect records that the group applied, for the cut's row."""
        if not records:
            return
        self._records += records
        self._is_changed = True
        for record in records:
            if isinstance(record, ShareGroupMemberRemoved):
                self._reply_partitions.pop(record.member_id, None)

    def _heartbeat(self, message: LoggedRequest) -> None:
        envelope = message.envelope
        body = parsed(ShareGroupHeartbeatRequest, envelope.body)
        begins_exactly_once = body.has_sink and body.member_epoch == JOIN_EPOCH and self._group.state.is_dead
        # A member that has joined stays when the group is switched off: it looks up the open writes of its sink.
        stays = body.has_sink and body.member_epoch > JOIN_EPOCH
        if body.member_epoch != LEAVE_EPOCH and not begins_exactly_once and not stays:
            is_exactly_once = self._group.config.share_exactly_once_enable
            check_sink(self._context.group_id, has_sink=body.has_sink, is_exactly_once=is_exactly_once)
        self._add_records(self._group.heartbeat(envelope.member_id, envelope.client_id, body, message.time_ms))
        if begins_exactly_once:
            self._add_records(self._group.alter_config(AlterGroupConfigRequest(set={EXACTLY_ONCE_KEY: "true"})))
        if body.member_epoch == LEAVE_EPOCH:
            self._respond_to(envelope, ShareGroupHeartbeatResponse(member_epoch=LEAVE_EPOCH))
            return
        self._reply_partitions[envelope.member_id] = envelope.reply_partition
        self._heartbeats.append((envelope, body.member_epoch))

    def _member_ended(self, message: LoggedRequest) -> None:
        self._add_records(self._group.member_ended(parsed(MemberEnded, message.envelope.body).member_id))

    def _log_offsets(self, message: LoggedRequest) -> None:
        for topic in parsed(LogOffsets, message.envelope.body).topics:
            if self._observed_topics.accept(topic):
                self._is_changed = True
                self._add_records(self._group.topic_seen(topic.topic, topic.topic_id, topic.partition_count))

    def _initialized(self, message: LoggedRequest) -> None:
        body = parsed(ShareGroupStateInitialized, message.envelope.body)
        for topic in body.topics:
            partitions = [partition.partition_index for partition in topic.partitions]
            self._add_records(self._group.partitions_initialized(topic.topic_id, partitions, body.state_epoch))

    def _deleted(self, message: LoggedRequest) -> None:
        topics = dict(self._group.state.topics)
        records = self._group.topics_deleted(parsed(ShareGroupStateDeleted, message.envelope.body).topic_ids)
        self._add_records(records)
        for record in records:
            # A member may have subscribed to the topic meanwhile.
            if isinstance(record, ShareGroupTopicRemoved):
                self._observed_topics.observe_again(topics[record.topic_id].topic)

    def _administer(self, message: LoggedRequest) -> None:
        self._add_records(self._administration.take(message.envelope, message.time_ms))

    def _administer_on(self, now_ms: int) -> None:
        deadline_ms = self._administration.next_deadline_ms
        if deadline_ms is None or not (self._is_changed or deadline_ms <= now_ms):
            return
        records, responses = self._administration.advance(self._observed_topics.seen, now_ms)
        self._add_records(records)
        for waiting, body in responses:
            self._respond(waiting.reply_partition, waiting.api_key, waiting.correlation_id, waiting.member_id, body)

    def _alter_config(self, message: LoggedRequest) -> None:
        self._add_records(self._group.alter_config(parsed(AlterGroupConfigRequest, message.envelope.body)))
        self._respond_to(message.envelope, ErrorResponse())

    def _pause(self, message: LoggedRequest) -> None:
        envelope = message.envelope
        reason = parsed(PauseShareGroupRequest, envelope.body).reason
        self._add_records(self._group.pause(envelope.client_id, reason))
        self._respond_to(envelope, ErrorResponse())

    def _resume(self, message: LoggedRequest) -> None:
        self._add_records(self._group.resume(message.envelope.client_id))
        # Either actor may have missed messages of the other one, and of the processor, while the group was quarantined.
        self._asked.clear()
        self._leader_overrides = None
        self._observed_topics.watch_again()
        self._is_wake_spent = True
        self._is_changed = True
        self._respond_to(message.envelope, ErrorResponse())

    def _check_redrive(self, message: LoggedRequest) -> None:
        """Refuse a redrive if there is no such group; the leader responds otherwise."""
        parsed(RedriveShareGroupRecordsRequest, message.envelope.body)
        if self._group.state.is_dead:
            raise GroupIdNotFoundError(f"Group {self._context.group_id} not found.")

    def _tick(self, message: LoggedRequest) -> None:
        # The timer has fired, even if no work is due yet because the log's clock and the timer's differ.
        self._is_wake_spent = True

    def _respond_to_heartbeats(self) -> None:
        for envelope, epoch in self._heartbeats:
            member = self._group.state.members.get(envelope.member_id)
            if member is None:
                error = UnknownMemberIdError(f"Member {envelope.member_id} is no longer a member of the group.")
                self._respond_to(envelope, ErrorResponse(error_code=error.code, error_message=str(error)))
            else:
                is_news = epoch == JOIN_EPOCH or epoch != member.member_epoch
                self._respond_to(envelope, self._heartbeat_response(member, is_news))

    def _push(self, assignments: Iterable[ShareGroupCurrentMemberAssignment]) -> None:
        senders = {envelope.member_id for envelope, _ in self._heartbeats}
        for record in assignments:
            if record.member_id not in senders:
                body = self._heartbeat_response(self._group.state.members[record.member_id], has_assignment=True)
                reply_partition = self._reply_partitions.get(record.member_id, -1)
                self._respond(reply_partition, ApiKey.SHARE_GROUP_HEARTBEAT, _PUSHED, record.member_id, body)

    def _heartbeat_response(self, member: Member, has_assignment: bool) -> ShareGroupHeartbeatResponse:
        config = self._group.config
        return constructed(
            ShareGroupHeartbeatResponse,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=config.share_heartbeat_interval_ms,
            assignment=assigned_topics(self._group.state, member) if has_assignment else None,
            state_id=self._context.state_id,
            write_expiry_ms=config.share_exactly_once_write_expiry_ms if config.share_exactly_once_enable else 0,
        )

    def _send_config(self, last_offset: int) -> None:
        """Send the leader the configuration that it does not have, and that the group was removed."""
        overrides = self._group.state.config_overrides
        is_removed = any(isinstance(record, ShareGroupRemoved) for record in self._records)
        if is_removed or overrides != self._leader_overrides:
            body = ShareGroupConfigChanged(overrides=overrides, removed_at_offset=last_offset if is_removed else -1)
            self._send(ApiKey.SHARE_GROUP_CONFIG_CHANGED, body)
            self._leader_overrides = dict(overrides)

    def _ask_leader(self) -> None:
        """Send the leader the initialisations and deletions that are not requested yet."""
        state = self._group.state
        if not state.changing_topic_ids:
            self._asked.clear()
            return
        requests: list[tuple[ApiKey, InitializeShareGroupState | DeleteShareGroupState, set[tuple[str, int, int]]]] = [
            (ApiKey.INITIALIZE_SHARE_GROUP_STATE, body, _initialization_keys(body))
            for body in state_topics.initializations(state)
        ]
        for deletion in state_topics.deletions(state):
            keys = {(topic_id, _WHOLE_TOPIC, 0) for topic_id in deletion.topic_ids}
            requests.append((ApiKey.DELETE_SHARE_GROUP_STATE, deletion, keys))
        for api_key, body, keys in requests:
            if keys - self._asked:
                self._send(api_key, body)
        self._asked = {key for _, _, keys in requests for key in keys}

    def _watch_topics(self) -> None:
        """Watch topics that members subscribe to, that have a state, or that an administrator names."""
        state = self._group.state
        watch = self._observed_topics.change(
            state.subscriber_counts.keys(),
            state.topic_names_in_use | self._administration.topic_names,
            self._group.config.timed_reset,
        )
        if watch is not None:
            self._effects.append(watch)

    def _schedule_wake(self) -> None:
        """Schedule a Tick unless one comes by the next deadline; an early one schedules the next."""
        deadlines = [self._group.next_deadline_ms, self._administration.next_deadline_ms]
        at_ms = min((deadline for deadline in deadlines if deadline is not None), default=None)
        is_asked = at_ms is not None and self._wake_ms is not None and self._wake_ms <= at_ms
        if (at_ms is None and self._wake_ms is None) or (is_asked and not self._is_wake_spent):
            return
        self._is_wake_spent = False
        self._effects.append(Wake(self._context.group_id, ActorRole.COORDINATOR, at_ms))
        self._wake_ms = at_ms

    def _rows(self, last_offset: int, time: CutTime) -> list[Effect]:
        if not self._records:
            return []
        payload = GroupMetadataPayload(records=self._records)
        row = StateRow(record_type=RecordType.GROUP_METADATA, payload=payload.model_dump(mode="json"))
        return [Persist(self._context.addressed(row, last_offset, time))]

    def _send(self, api_key: ApiKey, body: Message) -> None:
        leader_epoch = self._context.leader_epoch
        self._effects.append(Send(request(api_key, self._context.group_id, body, leader_epoch=leader_epoch)))

    def _respond_to(self, envelope: RequestEnvelope, body: Message) -> None:
        self._respond(envelope.reply_partition, envelope.api_key, envelope.correlation_id, envelope.member_id, body)

    def _respond(self, reply_partition: int, api_key: int, correlation_id: int, member_id: str, body: Message) -> None:
        if reply_partition < 0:
            return
        address = Address(reply_partition, api_key, correlation_id, self._context.group_id, member_id)
        self._effects.append(response_to(address, body, self._context.leader_epoch))


def _initialization_keys(body: InitializeShareGroupState) -> set[tuple[str, int, int]]:
    return {
        (topic.topic_id, partition.partition_index, body.state_epoch)
        for topic in body.topics
        for partition in topic.partitions
    }
