"""Membership of a share group: heartbeats, member epochs, the assignment (KIP-932). No I/O, no clock.

A member joins with epoch 0 and all its fields, continues with the epoch that it last received and only the changed
fields, and leaves with epoch -1. The coordinator responds, and may also push a new assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from sharegroup.client.exchange import Backoff, Request
from sharegroup.core.records import PartitionKey
from sharegroup.errors import (
    ApiError,
    FencedMemberEpochError,
    GroupQuarantinedError,
    UnknownMemberIdError,
    api_error,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

PUSHED_CORRELATION_ID = -1
"""Correlation id of a pushed assignment."""


class MemberState(Enum):
    """The states of a membership."""

    OUTSIDE = auto()
    JOINING = auto()
    STABLE = auto()
    LEAVING = auto()
    FAILED = auto()


class _Reaction(Enum):
    REJOIN = auto()
    RETRY = auto()
    REPORT_AND_RETRY = auto()
    FAIL = auto()


_REACTIONS: dict[type[ApiError], _Reaction] = {
    UnknownMemberIdError: _Reaction.REJOIN,
    FencedMemberEpochError: _Reaction.REJOIN,
    GroupQuarantinedError: _Reaction.REPORT_AND_RETRY,
}
"""Error of a heartbeat → reaction of the member; other retriable errors are retried, and the rest are fatal."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Membership and fetch counts of a member.

    Attributes:
        is_stable: True if the coordinator has accepted the member.
        member_epoch: its epoch; 0 before it has joined.
        partition_count: number of share-partitions that it may fetch from.
        joined_with_partitions: True if it had some as soon as it joined: the group has read its topics before.
        response_count: number of responses so far.
        empty_fetch_count: number of fetches so far without records and without an error.
    """

    is_stable: bool
    member_epoch: int
    partition_count: int
    joined_with_partitions: bool
    response_count: int
    empty_fetch_count: int

    @classmethod
    def of(cls, member: Membership, response_count: int, empty_fetch_count: int) -> Standing:
        """Return the present standing of a member."""
        is_stable, partition_count = member.state is MemberState.STABLE, len(member.assignment)
        joined = member.joined_with_partitions
        return cls(is_stable, member.epoch, partition_count, joined, response_count, empty_fetch_count)


class Membership:
    """The state machine of one member.

    Args:
        request_timeout_ms: time after which a heartbeat without a response is sent again.
        has_sink: True if the member's results are written to its sink exactly once.
    """

    def __init__(
        self,
        rack_id: str,
        request_timeout_ms: int,
        correlation_ids: Iterator[int],
        client_host: str = "",
        client_process: str = "",
        *,
        has_sink: bool = False,
    ) -> None:
        self.state = MemberState.OUTSIDE
        self.epoch = JOIN_EPOCH
        """The latest member epoch; 0 before the first one."""
        self.assignment: Mapping[PartitionKey, str] = {}
        """Share-partitions to fetch from → topic name."""
        self.joined_with_partitions = False
        """True if the first assignment had share-partitions. Those of a new group are not initialised by then."""
        self.topic_names: dict[str, str] = {}
        """Topic id → topic name, of all assignments so far."""
        self.write_expiry_ms = 0
        """Time after its acquisition within which a write is looked up; 0 is unknown, or that nobody has a sink."""
        self._rack_id = rack_id
        self._client_host = client_host
        self._client_process = client_process
        self._has_sink = has_sink
        self._request_timeout_ms = request_timeout_ms
        self._correlation_ids = correlation_ids
        self._topics: tuple[str, ...] = ()
        self._topics_of_coordinator: tuple[str, ...] = ()
        self._has_joined = False
        self._has_been_assigned = False
        self._outstanding: Request[ShareGroupHeartbeatRequest] | None = None
        self._next_heartbeat_ms = 0
        self._backoff = Backoff()

    @property
    def is_outside(self) -> bool:
        """True if the coordinator does not know this member: it never joined, left, or was refused for good."""
        return self.state in (MemberState.OUTSIDE, MemberState.FAILED)

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which `next_request` returns a heartbeat without further input; None if it will not."""
        return None if self.is_outside else self._next_heartbeat_ms

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join with these topics, or change the subscription; leave if there are none."""
        self._topics = tuple(topics)
        if not self._topics:
            self.leave()
        elif self.state is not MemberState.STABLE:
            self._rejoin()

    def leave(self) -> None:
        """Leave the group; `subscribe` joins again."""
        self.assignment = {}
        if self.state not in (MemberState.JOINING, MemberState.STABLE):
            return
        self.state = MemberState.LEAVING if self._has_joined else MemberState.OUTSIDE
        self._outstanding = None
        self._next_heartbeat_ms = 0

    def start_over(self) -> None:
        """Join again, if the member is in the group: its new coordinator does not know the member."""
        if self.state in (MemberState.JOINING, MemberState.STABLE):
            self._rejoin()

    def next_request(self, now_ms: int) -> Request[ShareGroupHeartbeatRequest] | None:
        """Return the heartbeat to send now; None if there is none before the next response or deadline."""
        if self.is_outside:
            return None
        is_changed = self.state is MemberState.STABLE and self._topics != self._topics_of_coordinator
        if now_ms < self._next_heartbeat_ms and (self._outstanding is not None or not is_changed):
            return None
        self._next_heartbeat_ms = now_ms + self._request_timeout_ms
        self._outstanding = Request(next(self._correlation_ids), ApiKey.SHARE_GROUP_HEARTBEAT, self._heartbeat())
        return self._outstanding

    def send_failed(self, now_ms: int) -> None:
        """Send the latest heartbeat again after a pause: it did not reach the log, or met a retriable error."""
        self._backoff.failed(now_ms)
        self._next_heartbeat_ms = self._backoff.until_ms

    def receive(self, correlation_id: int, response: ShareGroupHeartbeatResponse, now_ms: int) -> ApiError | None:
        """Handle a response or a pushed assignment; a repeated or outdated one changes nothing.

        Returns:
            An error for the application; FAILED is the state after a fatal one.
        """
        if correlation_id == PUSHED_CORRELATION_ID:
            self._pushed(response)
            return None
        if self._outstanding is None or correlation_id != self._outstanding.correlation_id:
            return None
        sent = self._outstanding.body
        self._outstanding = None
        if response.error_code:
            return self._refused(api_error(response.error_code, response.error_message), response, now_ms)
        if sent.member_epoch == LEAVE_EPOCH:
            self._left()
        else:
            self._backoff.succeeded()
            if sent.subscribed_topic_names is not None:
                self._topics_of_coordinator = tuple(sent.subscribed_topic_names)
            self._next_heartbeat_ms = now_ms + response.heartbeat_interval_ms
            if response.member_epoch >= self.epoch:
                self._updated(response)
        return None

    def _heartbeat(self) -> ShareGroupHeartbeatRequest:
        if self.state is MemberState.LEAVING:
            return ShareGroupHeartbeatRequest(member_epoch=LEAVE_EPOCH)
        self._has_joined = True
        topics = list(self._topics)
        if self.state is MemberState.JOINING:
            return ShareGroupHeartbeatRequest(
                member_epoch=JOIN_EPOCH,
                rack_id=self._rack_id,
                client_host=self._client_host,
                client_process=self._client_process,
                subscribed_topic_names=topics,
                has_sink=self._has_sink,
            )
        changed = topics if self._topics != self._topics_of_coordinator else None
        return ShareGroupHeartbeatRequest(
            member_epoch=self.epoch, subscribed_topic_names=changed, has_sink=self._has_sink
        )

    def _pushed(self, response: ShareGroupHeartbeatResponse) -> None:
        is_inside = self.state in (MemberState.JOINING, MemberState.STABLE)
        if is_inside and not response.error_code and response.member_epoch >= max(self.epoch, 1):
            self._updated(response)

    def _updated(self, response: ShareGroupHeartbeatResponse) -> None:
        # A member without an epoch yet sends all its fields again.
        self.epoch = response.member_epoch
        self.write_expiry_ms = response.write_expiry_ms
        self.state = MemberState.JOINING if self.epoch == JOIN_EPOCH else MemberState.STABLE
        if self.epoch > JOIN_EPOCH and not self._has_been_assigned:
            self._has_been_assigned = True
            self.joined_with_partitions = bool(response.assignment)
        if response.assignment is not None:
            self.assignment = {
                (topic.topic_id, partition): topic.topic
                for topic in response.assignment
                for partition in topic.partitions
            }
            self.topic_names.update((topic.topic_id, topic.topic) for topic in response.assignment)

    def _refused(self, error: ApiError, response: ShareGroupHeartbeatResponse, now_ms: int) -> ApiError | None:
        """Handle the refusal of a heartbeat; return the error if the application must know it."""
        if self.state is MemberState.LEAVING and not error.retriable:
            self._left()
            return None
        match _REACTIONS.get(type(error), _Reaction.RETRY if error.retriable else _Reaction.FAIL):
            case _Reaction.REJOIN:
                self._rejoin()
            case _Reaction.RETRY:
                self.send_failed(now_ms)
            case _Reaction.REPORT_AND_RETRY:
                self._next_heartbeat_ms = now_ms + response.heartbeat_interval_ms
                return error
            case _Reaction.FAIL:
                self.state = MemberState.FAILED
                self.assignment = {}
                return error
        return None

    def _left(self) -> None:
        self.state = MemberState.OUTSIDE
        self._has_joined = False

    def _rejoin(self) -> None:
        self.state = MemberState.JOINING
        self.assignment = {}
        self.epoch = JOIN_EPOCH
        self._outstanding = None
        self._next_heartbeat_ms = 0
