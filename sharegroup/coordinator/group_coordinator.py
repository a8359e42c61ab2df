"""The group coordinator: members, epochs, assignment, and the two-phase initialisation of share-partitions.

Each method returns the records that it applied. Heartbeats are handled one by one; `reassign` makes an assignment once
per cut, so that a thousand members can join in a few ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import GroupConfig, effective_group_config, validate_overrides
from sharegroup.coordinator import state_topics
from sharegroup.coordinator.assignor import ASSIGNORS
from sharegroup.coordinator.group_state import Assignment, GroupState, Initialization, Member, assignment_record
from sharegroup.core.due_times import DueTimes
from sharegroup.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidConfigError,
    InvalidRequestError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from sharegroup.protocol.group_administration import AlteredPartition
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    AlterGroupConfigRequest,
    ShareGroupHeartbeatRequest,
)
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupConfig,
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupPaused,
    ShareGroupRemoved,
    ShareGroupRequestCompleted,
    ShareGroupRequestWaiting,
    ShareGroupTargetAssignment,
)

_NEW_MEMBER_FACTOR = 10
"""An assignment that gives new members their first share-partitions waits for this part of the interval only."""


class GroupCoordinator:
    """Coordinator of one group.

    Args:
        state: durable metadata, as folded; its members get fresh sessions.
        group_epoch_floor: a new group begins above this epoch.
    """

    def __init__(
        self,
        state: GroupState,
        broker: BrokerConfig,
        group_epoch_floor: int = 0,
    ) -> None:
        self.state = state
        self.sessions: DueTimes[str] = DueTimes()
        """The end of each member's session."""
        self.last_assignment_ms = 0
        """Time of the last assignment; 0 when there was none."""
        self.empty_since_ms: int | None = None
        """Time since which a group that is not dead has had neither members, state nor configuration."""
        self._epoch_floor = group_epoch_floor
        self.config: GroupConfig = effective_group_config(broker, state.config_overrides)
        self._broker = broker

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which the next session ends, a postponed assignment is due, or the group expires."""
        deadlines = [self.sessions.earliest_ms]
        if self.empty_since_ms is not None:
            deadlines.append(self.empty_since_ms + self._retention_ms)
        if self.state.assignment_epoch < self.state.group_epoch:
            deadlines.append(self._next_assignment_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def assignor_name(self) -> str:
        """The assignor that divides share-partitions among the members."""
        return self._broker.group_share_assignors

    def open_missing_sessions(self, now_ms: int) -> None:
        """Give members without a session (after a recovery) a fresh one, as Kafka's coordinator does when it loads."""
        if len(self.sessions) < len(self.state.members):
            for member_id in self.state.members:
                if member_id not in self.sessions:
                    self.sessions.set(member_id, now_ms + self.config.share_session_timeout_ms)

    def heartbeat(
        self, member_id: str, client_id: str, request: ShareGroupHeartbeatRequest, now_ms: int
    ) -> list[GroupRecord]:
        """Handle one heartbeat.

        Raises:
            InvalidRequestError: a field is missing, the epoch is invalid, or a topic is the group's dead-letter topic.
            UnknownMemberIdError: the member is not in the group; it must join again.
            FencedMemberEpochError: the epoch is not the member's; it must join again.
            GroupMaxSizeReachedError: the group is full.
        """
        if not member_id:
            raise InvalidRequestError("MemberId can't be empty.", "The client must generate one, a base64 UUID.")
        if request.member_epoch < LEAVE_EPOCH:
            raise InvalidRequestError(f"MemberEpoch is {request.member_epoch}; it must be -1 or more.")
        if request.member_epoch == LEAVE_EPOCH:
            self._known(member_id)
            return self._remove(member_id, "left")
        self._check_subscription(request.subscribed_topic_names or ())
        if request.member_epoch == JOIN_EPOCH:
            records = self._join(member_id, client_id, request)
        else:
            self._check_epoch(self._known(member_id), request.member_epoch)
            records = self._updated(self.state.members[member_id], client_id, request)
            records += self._converged(member_id, request.member_epoch)
        self.sessions.set(member_id, now_ms + self.config.share_session_timeout_ms)
        return records

    def expire_sessions(self, now_ms: int) -> list[GroupRecord]:
        """Remove members whose session ended at or before `now_ms`."""
        ended = self.sessions.take_due(now_ms)
        return [record for member_id in ended for record in self._remove(member_id, "session timeout")]

    def topic_seen(self, topic: str, topic_id: str, partition_count: int) -> list[GroupRecord]:
        """Apply an observation of a topic: begin to initialise new share-partitions and to delete old ones.

        A topic that was deleted and created again has another topic id, and so other share-partitions.
        """
        records = state_topics.newly_seen(
            self.state,
            topic,
            topic_id,
            partition_count,
            is_subscribed=topic in self.state.subscriber_counts,
            epoch=self._next_epoch,
        )
        return self._applied_with_new_epoch(records)

    def partitions_initialized(self, topic_id: str, partitions: Iterable[int], state_epoch: int) -> list[GroupRecord]:
        """Record the share-partitions that now have the state of an epoch; they can be assigned."""
        return self._applied_with_new_epoch(state_topics.initialized(self.state, topic_id, partitions, state_epoch))

    def alter_offsets(
        self, topic: str, topic_id: str, partition_count: int, partitions: Iterable[AlteredPartition]
    ) -> list[GroupRecord]:
        """Restart share-partitions at new offsets; create the group if it is dead."""
        new = {
            partition.partition_index: Initialization(
                self._next_epoch, partition.start_offset, tuple(partition.state_batches)
            )
            for partition in partitions
        }
        return self._applied_with_new_epoch(state_topics.altered(self.state, topic, topic_id, partition_count, new))

    def delete_topics(self, topic_ids: Iterable[str]) -> list[GroupRecord]:
        """Begin to delete all share-partitions of some topics, which the group must know."""
        return self._applied_with_new_epoch(state_topics.deleting(self.state, topic_ids))

    def topics_deleted(self, topic_ids: Iterable[str]) -> list[GroupRecord]:
        """Record that the share-partitions of some topics have no state any more."""
        return self._applied_with_new_epoch(state_topics.deleted(self.state, topic_ids))

    def remove(self, reason: str) -> list[GroupRecord]:
        """Remove the group, which must have neither members nor share-partitions with a state."""
        self.empty_since_ms = None
        self.last_assignment_ms = 0
        last_epoch = self.state.group_epoch
        self._epoch_floor = max(self._epoch_floor, last_epoch)
        records = self._applied([ShareGroupRemoved(reason=reason, epoch=last_epoch)])
        self.config = effective_group_config(self._broker, self.state.config_overrides)
        return records

    def record_request(self, record: ShareGroupRequestWaiting | ShareGroupRequestCompleted) -> list[GroupRecord]:
        """Keep an administrator's request until it is completed."""
        return self._applied([record])

    def check_empty(self) -> None:
        """Check that the group has no members, so that an administrator may change its state.

        Raises:
            NonEmptyGroupError: the group has members.
        """
        if self.state.members:
            raise NonEmptyGroupError(f"The group has {len(self.state.members)} members.", "Stop them, and try again.")

    def expire(self, now_ms: int) -> list[GroupRecord]:
        """Remove the group when it has been without members and state for `offsets.retention.minutes`.

        A group that is configured or paused stays.
        """
        state = self.state
        if state.is_dead or state.members or state.topics or state.config_overrides or state.pause is not None:
            self.empty_since_ms = None
            return []
        if self.empty_since_ms is None:
            self.empty_since_ms = now_ms
        return self.remove("expired") if now_ms >= self.empty_since_ms + self._retention_ms else []

    def alter_config(self, request: AlterGroupConfigRequest) -> list[GroupRecord]:
        """Change the group's dynamic configuration.

        Raises:
            InvalidConfigError: a key or value is not acceptable, or the dead-letter topic is one that the group reads;
                nothing changed.
        """
        overrides = altered_overrides(self.state.config_overrides, request)
        validate_overrides(self._broker, overrides)
        if overrides == self.state.config_overrides:
            return []
        config = effective_group_config(self._broker, overrides)
        name = config.errors_deadletterqueue_topic_name
        if name in self.state.subscriber_counts or name in self.state.topic_names_in_use:
            raise InvalidConfigError(
                f"errors.deadletterqueue.topic.name={name} is a topic that the group reads: each record that is given "
                "up would come back to it.",
                "Set another topic, or delete the group's offsets of this one when no member reads it any more.",
            )
        records = self._applied([ShareGroupConfig(overrides=overrides)])
        self.config = config
        return records

    def pause(self, client_id: str, reason: str) -> list[GroupRecord]:
        """Record that an administrator paused the group.

        Raises:
            GroupIdNotFoundError: there is no such group.
        """
        if self.state.is_dead:
            raise GroupIdNotFoundError("The group does not exist.", "Check its name.")
        record = ShareGroupPaused(is_paused=True, client_id=client_id, reason=reason)
        return [] if self.state.pause == record else self._applied([record])

    def resume(self, client_id: str) -> list[GroupRecord]:
        """Record that an administrator resumed the group, if it is paused."""
        if self.state.pause is None:
            return []
        return self._applied([ShareGroupPaused(is_paused=False, client_id=client_id)])

    def reassign(self, now_ms: int) -> list[GroupRecord]:
        """Make a new assignment when the group epoch is ahead of the one in force.

        Two assignments are at least `share.assignment.interval.ms` apart, a tenth of it while a member has none yet. An
        empty assignment does not count, so that a new group has its partitions as soon as they are initialised.
        """
        if self.state.assignment_epoch >= self.state.group_epoch or now_ms < self._next_assignment_ms:
            return []
        topics = {
            topic.topic: (topic.topic_id, topic.initialized)
            for topic in self.state.topics.values()
            if topic.initialized
        }
        target = ASSIGNORS[self.assignor_name](self.state.members.values(), topics)
        if any(target.values()):
            self.last_assignment_ms = now_ms
        epoch = self.state.group_epoch
        records: list[GroupRecord] = []
        for member_id, member in sorted(self.state.members.items()):
            assignment: Assignment = target.get(member_id, {})
            if member.member_epoch == 0 or dict(assignment) != dict(member.assignment):
                records.append(assignment_record(member_id, epoch, member.member_epoch, assignment))
        return self._applied([*records, ShareGroupTargetAssignment(assignment_epoch=epoch)])

    @property
    def _next_epoch(self) -> int:
        """The group epoch of the next change: state epochs rise over the life of the table, not of a group."""
        return (self.state.group_epoch or self._epoch_floor) + 1

    @property
    def _retention_ms(self) -> int:
        return self._broker.offsets_retention_minutes * 60_000

    @property
    def _next_assignment_ms(self) -> int:
        if not self.last_assignment_ms:
            return 0
        interval_ms = self.config.share_assignment_interval_ms
        if not all(member.assignment for member in self.state.members.values()):
            interval_ms //= _NEW_MEMBER_FACTOR
        return self.last_assignment_ms + interval_ms

    def member_ended(self, member_id: str) -> list[GroupRecord]:
        """Remove a member whose process has ended."""
        return self._remove(member_id, "process ended") if member_id in self.state.members else []

    def _join(self, member_id: str, client_id: str, request: ShareGroupHeartbeatRequest) -> list[GroupRecord]:
        member = self.state.members.get(member_id)
        if member is not None:
            return self._updated(member, client_id, request)
        if not request.subscribed_topic_names:
            raise InvalidRequestError("SubscribedTopicNames must be set in first request.")
        if len(self.state.members) >= self._broker.group_share_max_size:
            raise GroupMaxSizeReachedError(
                f"The share group has reached its maximum capacity of {self._broker.group_share_max_size} members."
            )
        return self._updated(Member(member_id, client_id, "", ()), client_id, request)

    def _updated(self, member: Member, client_id: str, request: ShareGroupHeartbeatRequest) -> list[GroupRecord]:
        topics = member.subscribed_topic_names
        if request.subscribed_topic_names is not None:
            topics = tuple(sorted(set(request.subscribed_topic_names)))
        rack_id = member.rack_id if request.rack_id is None else request.rack_id
        process = request.client_process if request.member_epoch == JOIN_EPOCH else member.client_process
        before = (member.subscribed_topic_names, member.rack_id, member.client_process)
        if member.member_id in self.state.members and (topics, rack_id, process) == before:
            return []
        record = ShareGroupMemberMetadata(
            member_id=member.member_id,
            client_id=client_id,
            client_host=member.client_host if request.client_host is None else request.client_host,
            client_process=process,
            rack_id=rack_id,
            subscribed_topic_names=list(topics),
        )
        return self._applied_with_new_epoch([record])

    def _converged(self, member_id: str, known_epoch: int) -> list[GroupRecord]:
        """Raise a member to the epoch of the assignment in force, even if only other members' partitions changed.

        Args:
            known_epoch: the epoch that the member has sent, and may send again if the response is lost.
        """
        member = self.state.members[member_id]
        target = self.state.assignment_epoch
        if not 0 < member.member_epoch < target:
            return []
        return self._applied([assignment_record(member_id, target, known_epoch, member.assignment)])

    def _remove(self, member_id: str, reason: str) -> list[GroupRecord]:
        self.sessions.set(member_id, None)
        return self._applied_with_new_epoch([ShareGroupMemberRemoved(member_id=member_id, reason=reason)])

    def _known(self, member_id: str) -> Member:
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of the group.", "Join again with epoch 0.")
        return member

    def _check_subscription(self, topics: Iterable[str]) -> None:
        dead_letter_topic = self.config.errors_deadletterqueue_topic_name
        if dead_letter_topic and dead_letter_topic in topics:
            raise InvalidRequestError(
                f"Topic {dead_letter_topic} is the dead-letter topic of the group: each record that is given up would "
                "come back to it.",
                "Read it with another group, or set errors.deadletterqueue.topic.name of this one to another topic.",
            )

    def _check_epoch(self, member: Member, epoch: int) -> None:
        if epoch not in (member.member_epoch, member.previous_member_epoch):
            raise FencedMemberEpochError(
                f"The member epoch {epoch} is not the epoch {member.member_epoch} of member {member.member_id}.",
                "Abandon all partitions and join again with epoch 0.",
            )

    def _applied_with_new_epoch(self, records: list[GroupRecord]) -> list[GroupRecord]:
        if not records:
            return []
        return self._applied([*records, ShareGroupMetadata(epoch=self._next_epoch)])

    def _applied(self, records: list[GroupRecord]) -> list[GroupRecord]:
        for record in records:
            self.state.apply(record)
        return records


def altered_overrides(overrides: Mapping[str, str], request: AlterGroupConfigRequest) -> dict[str, str]:
    """Return the group's own configuration after a request to change it."""
    kept = {key: value for key, value in overrides.items() if key not in request.delete}
    return {**kept, **request.set}
