"""The coordinator actor of a group: heartbeats, topics, and the beginning and end of share-partitions.

Heartbeats are answered at the end of the batch, when the batch's assignment is made; members whose assignment
changed without a heartbeat of theirs in the batch are told unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sharegroup.actor.administration import Administration
from sharegroup.actor.answers import response_to
from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.effects import Effect, Persist, Respond, Send, Wake, WatchTopics
from sharegroup.config.model import is_topic_name
from sharegroup.coordinator import state_topics
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.group_state import GroupState, Member
from sharegroup.errors import UnknownMemberIdError
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    LogOffsets,
    ShareGroupConfigChanged,
    ShareGroupStateDeleted,
    ShareGroupStateInitialized,
)
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    AlterGroupConfigRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from sharegroup.protocol.group_records import GroupRecord, ShareGroupCurrentMemberAssignment, ShareGroupRemoved
from sharegroup.protocol.messages import ErrorResponse, Message, RequestEnvelope, ResponseEnvelope, parsed, request
from sharegroup.protocol.row_payloads import GroupMetadataPayload
from sharegroup.protocol.rows import RecordType, StateRow

_NOT_LOOKED_AT = ("", -1)
"""What a topic never is, so that the driver tells of it, be it there or not."""
_WHOLE_TOPIC = -1


class Coordinator:
    """Coordinates one group.

    Args:
        context: group, leader epoch and broker configuration.
        group: the group's metadata and sessions.
        reply_partitions: member id → partition of the response log that it reads.
        asked: (topic id, partition, state epoch) of what the leader was asked to initialise or delete.
        seen_topics: topic name → (topic id, partition count) as last told, even where the group knows of more.
        subscribed: topics that members subscribed to after the last batch.
        administration: administrators' requests that are not answered yet.
    """

    def __init__(
        self,
        context: ActorContext,
        group: GroupCoordinator,
        reply_partitions: Mapping[str, int] | None = None,
        asked: Iterable[tuple[str, int, int]] = (),
        seen_topics: Mapping[str, tuple[str, int]] | None = None,
        subscribed: Iterable[str] = (),
        administration: Administration | None = None,
    ) -> None:
        self._context = context
        self._group = group
        self._reply_partitions = dict(reply_partitions or {})
        self._asked = set(asked)
        self._seen_topics = dict(seen_topics or {})
        self._subscribed = frozenset(subscribed)
        self._administration = administration or Administration(group)
        self._records: list[GroupRecord] = []
        self._unanswered: list[tuple[RequestEnvelope, int]] = []
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
            ApiKey.RESUME_SHARE_GROUP: self._resume,
        }
        self._is_leader_to_be_told = False

    @property
    def group(self) -> GroupCoordinator:
        """The group's metadata and sessions. To be read only."""
        return self._group

    def receive(self, message: LoggedRequest) -> None:
        """Judge one message at its append time; sessions that ended by then end first."""
        self._group.open_missing_sessions(message.time_ms)
        self._records += self._group.expire_sessions(message.time_ms)
        self._receivers[message.envelope.api_key](message)

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """Make the batch's assignment, answer its heartbeats, and say what is to be done."""
        self._go_on_administering(time.last_message_ms)
        self._records += self._group.expire(time.last_message_ms)
        assigned = self._group.reassign(time.last_message_ms)
        self._records += assigned
        self._reply_partitions = {
            member_id: partition
            for member_id, partition in self._reply_partitions.items()
            if member_id in self._group.state.members
        }
        self._answer_heartbeats()
        self._push(record for record in assigned if isinstance(record, ShareGroupCurrentMemberAssignment))
        self._tell_leader_config()
        self._ask_leader()
        effects = [*self._rows(last_offset, time), *self._effects, self._topic_watch()]
        effects.append(Wake(self._context.group_id, ActorRole.COORDINATOR, self._group.next_deadline_ms))
        self._records, self._effects, self._unanswered = [], [], []
        return effects

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold the whole state between two batches."""
        return [
            [record.model_dump(mode="json") for record in self._group.state.records()],
            self._group.sessions.to_plain(),
            self._group.last_assignment_ms,
            self._group.empty_since_ms,
            self._reply_partitions,
            sorted(self._asked),
            self._seen_topics,
            sorted(self._subscribed),
            self._administration.to_plain(),
        ]

    @classmethod
    def from_plain(cls, context: ActorContext, plain: list[Any]) -> Coordinator:
        """The coordinator that `to_plain` wrote."""
        records, session_deadline_ms, last_assignment_ms, empty_since_ms, reply_partitions, *rest = plain
        asked, seen, subscribed, requests = rest
        state = GroupState()
        for record in records:
            state.apply_json(record)
        group = GroupCoordinator(state, context.broker, session_deadline_ms, last_assignment_ms, empty_since_ms)
        return cls(
            context,
            group,
            reply_partitions,
            ((topic_id, partition, state_epoch) for topic_id, partition, state_epoch in asked),
            {topic: (topic_id, partition_count) for topic, (topic_id, partition_count) in seen.items()},
            subscribed,
            Administration(group, requests),
        )

    def _heartbeat(self, message: LoggedRequest) -> None:
        envelope = message.envelope
        body = parsed(ShareGroupHeartbeatRequest, envelope.body)
        self._records += self._group.heartbeat(envelope.member_id, envelope.client_id, body, message.time_ms)
        if body.member_epoch == LEAVE_EPOCH:
            self._respond(envelope, ShareGroupHeartbeatResponse(member_epoch=LEAVE_EPOCH))
            return
        self._reply_partitions[envelope.member_id] = envelope.reply_partition
        self._unanswered.append((envelope, body.member_epoch))

    def _log_offsets(self, message: LoggedRequest) -> None:
        for topic in parsed(LogOffsets, message.envelope.body).topics:
            self._seen_topics[topic.topic] = (topic.topic_id, topic.partition_count)
            self._records += self._group.topic_seen(topic.topic, topic.topic_id, topic.partition_count)

    def _initialized(self, message: LoggedRequest) -> None:
        body = parsed(ShareGroupStateInitialized, message.envelope.body)
        for topic in body.topics:
            partitions = [partition.partition_index for partition in topic.partitions]
            self._records += self._group.partitions_initialized(topic.topic_id, partitions, body.state_epoch)

    def _deleted(self, message: LoggedRequest) -> None:
        records = self._group.topics_deleted(parsed(ShareGroupStateDeleted, message.envelope.body).topic_ids)
        self._records += records
        if records:
            # A member may have subscribed to one of the topics meanwhile: it is looked at anew.
            self._seen_topics.clear()

    def _administer(self, message: LoggedRequest) -> None:
        self._administration.take(message.envelope, message.time_ms)

    def _go_on_administering(self, now_ms: int) -> None:
        records, answers = self._administration.go_on(self._seen_topics, now_ms)
        self._records += records
        self._is_leader_to_be_told |= any(isinstance(record, ShareGroupRemoved) for record in records)
        for envelope, body in answers:
            self._respond(envelope, body)

    def _alter_config(self, message: LoggedRequest) -> None:
        body = parsed(AlterGroupConfigRequest, message.envelope.body)
        records = self._group.alter_config(body)
        self._records += records
        self._is_leader_to_be_told |= bool(records)
        self._respond(message.envelope, ErrorResponse())

    def _resume(self, message: LoggedRequest) -> None:
        # Either actor may have missed what the other one said while it was quarantined: say it again.
        self._asked.clear()
        self._is_leader_to_be_told = True
        self._respond(message.envelope, ErrorResponse())

    def _tick(self, message: LoggedRequest) -> None:
        # A message to the leader may have been lost with a crash of the driver: ask again, it does no harm.
        self._asked.clear()

    def _answer_heartbeats(self) -> None:
        for envelope, epoch in self._unanswered:
            member = self._group.state.members.get(envelope.member_id)
            if member is None:
                error = UnknownMemberIdError(f"Member {envelope.member_id} is no longer a member of the group.")
                self._respond(envelope, ErrorResponse(error_code=error.code, error_message=str(error)))
            else:
                is_news = epoch == JOIN_EPOCH or epoch != member.member_epoch
                self._respond(envelope, self._heartbeat_response(member, is_news))

    def _push(self, assignments: Iterable[ShareGroupCurrentMemberAssignment]) -> None:
        answered = {envelope.member_id for envelope, _ in self._unanswered}
        for record in assignments:
            reply_partition = self._reply_partitions.get(record.member_id, -1)
            if record.member_id in answered or reply_partition < 0:
                continue
            body = self._heartbeat_response(self._group.state.members[record.member_id], has_assignment=True)
            response = ResponseEnvelope(
                api_key=ApiKey.SHARE_GROUP_HEARTBEAT,
                correlation_id=-1,
                group_id=self._context.group_id,
                member_id=record.member_id,
                body=body.model_dump(mode="json", exclude_defaults=True),
            )
            self._effects.append(Respond(reply_partition, response))

    def _heartbeat_response(self, member: Member, has_assignment: bool) -> ShareGroupHeartbeatResponse:
        return ShareGroupHeartbeatResponse(
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._group.config.share_heartbeat_interval_ms,
            assignment=self._assignment(member) if has_assignment else None,
        )

    def _assignment(self, member: Member) -> list[TopicPartitions]:
        topics = self._group.state.topics
        return [
            TopicPartitions(
                topic_id=topic_id,
                topic=topics[topic_id].topic if topic_id in topics else "",
                partitions=list(partitions),
            )
            for topic_id, partitions in member.assignment.items()
        ]

    def _tell_leader_config(self) -> None:
        if self._is_leader_to_be_told:
            body = ShareGroupConfigChanged(overrides=self._group.state.config_overrides)
            self._effects.append(Send(request(ApiKey.SHARE_GROUP_CONFIG_CHANGED, self._context.group_id, body)))
        self._is_leader_to_be_told = False

    def _ask_leader(self) -> None:
        """Ask the leader to initialise and delete what it was not asked for yet."""
        wanted: list[tuple[ApiKey, InitializeShareGroupState | DeleteShareGroupState, set[tuple[str, int, int]]]] = [
            (ApiKey.INITIALIZE_SHARE_GROUP_STATE, body, _initialization_keys(body))
            for body in state_topics.initializations(self._group.state)
        ]
        if (deletion := state_topics.deletion(self._group.state)) is not None:
            keys = {(topic_id, _WHOLE_TOPIC, 0) for topic_id in deletion.topic_ids}
            wanted.append((ApiKey.DELETE_SHARE_GROUP_STATE, deletion, keys))
        for api_key, body, keys in wanted:
            if keys - self._asked:
                self._effects.append(Send(request(api_key, self._context.group_id, body)))
        self._asked = {key for _, _, keys in wanted for key in keys}

    def _topic_watch(self) -> WatchTopics:
        """Watch topics that members subscribe to, that have a state, or that an administrator speaks of."""
        subscribed = frozenset(self._group.subscribed_topic_names)
        # What is known of a topic that nobody subscribed to may be old: start offsets are not to be chosen by it.
        for name in subscribed - self._subscribed:
            self._seen_topics.pop(name, None)
        self._subscribed = subscribed
        in_use = {topic.topic for topic in self._group.state.topics.values() if not topic.deleting}
        looked_at = in_use | self._administration.wanted_topics
        watched = {
            name: self._seen_topics.get(name, _NOT_LOOKED_AT if name in looked_at else ("", 0))
            for name in sorted(subscribed | looked_at)
            if is_topic_name(name)
        }
        self._seen_topics = {name: seen for name, seen in self._seen_topics.items() if name in watched}
        return WatchTopics(self._context.group_id, watched, self._group.config.auto_offset_reset_duration_ms)

    def _rows(self, last_offset: int, time: CutTime) -> list[Effect]:
        if not self._records:
            return []
        payload = GroupMetadataPayload(records=self._records)
        row = StateRow(record_type=RecordType.GROUP_METADATA, payload=payload.model_dump(mode="json"))
        return [Persist(self._context.addressed(row, last_offset, time))]

    def _respond(self, envelope: RequestEnvelope, body: Message) -> None:
        if envelope.reply_partition >= 0:
            self._effects.append(Respond(envelope.reply_partition, response_to(envelope, body)))


def _initialization_keys(body: InitializeShareGroupState) -> set[tuple[str, int, int]]:
    return {
        (topic.topic_id, partition.partition_index, body.state_epoch)
        for topic in body.topics
        for partition in topic.partitions
    }
