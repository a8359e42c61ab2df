"""Membership of a share group: heartbeats, member epochs, the assignment (KIP-932). No I/O, no clock.

A member joins with epoch 0 and all its fields, goes on with the epoch it last received and only what changed, and
leaves with epoch -1. The coordinator answers, and may push a new assignment without being asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from sharegroup.client.acknowledgements import PartitionKey
from sharegroup.client.backoff import Backoff
from sharegroup.errors import (
    ApiError,
    FencedMemberEpochError,
    GroupQuarantinedError,
    UnknownMemberIdError,
    api_error,
)
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

PUSHED_CORRELATION_ID = -1
"""Correlation id of an answer that nobody asked for."""


class MemberState(Enum):
    """Where a member is in its life."""

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
"""Error of a heartbeat → what the member does; of all others, retriable ones are tried again and the rest are fatal."""


@dataclass(frozen=True, slots=True)
class HeartbeatToSend:
    """A heartbeat to send."""

    correlation_id: int
    body: ShareGroupHeartbeatRequest


class Membership:
    """The state machine of one member.

    Args:
        rack_id: where the member is; "" is unknown.
        request_timeout_ms: time after which a heartbeat without an answer is sent again.
        correlation_ids: never gives a number twice.
    """

    def __init__(self, rack_id: str, request_timeout_ms: int, correlation_ids: Iterator[int]) -> None:
        self.state = MemberState.OUTSIDE
        self.assignment: Mapping[PartitionKey, str] = {}
        """Share-partitions to fetch from → topic name."""
        self._rack_id = rack_id
        self._request_timeout_ms = request_timeout_ms
        self._correlation_ids = correlation_ids
        self._topics: tuple[str, ...] = ()
        self._topics_of_coordinator: tuple[str, ...] = ()
        self._epoch = JOIN_EPOCH
        self._has_joined = False
        self._outstanding: HeartbeatToSend | None = None
        self._next_heartbeat_ms = 0
        self._backoff = Backoff()
        self._error: ApiError | None = None

    @property
    def has_error(self) -> bool:
        """Whether `take_error` has something to tell."""
        return self._error is not None

    @property
    def is_stable(self) -> bool:
        """Whether the coordinator has let the member in."""
        return self.state is MemberState.STABLE

    @property
    def epoch(self) -> int:
        """The member epoch that was last received; 0 before."""
        return self._epoch

    @property
    def is_outside(self) -> bool:
        """Whether the coordinator has nothing to do with this member: never joined, left, or refused for good."""
        return self.state in (MemberState.OUTSIDE, MemberState.FAILED)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `next_request` gives something without further input; None when it will not."""
        return None if self.is_outside else self._next_heartbeat_ms

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join with these topics, or change the subscription; no topics is to leave."""
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

    def take_error(self) -> ApiError | None:
        """An error that the application must hear of, once; the state says whether the member goes on."""
        error, self._error = self._error, None
        return error

    def next_request(self, now_ms: int) -> HeartbeatToSend | None:
        """The heartbeat to send now; None when there is nothing to do before the next answer or deadline."""
        if self.is_outside:
            return None
        has_news = self.state is MemberState.STABLE and self._topics != self._topics_of_coordinator
        if now_ms < self._next_heartbeat_ms and (self._outstanding is not None or not has_news):
            return None
        self._next_heartbeat_ms = now_ms + self._request_timeout_ms
        self._outstanding = HeartbeatToSend(next(self._correlation_ids), self._heartbeat())
        return self._outstanding

    def send_failed(self, now_ms: int) -> None:
        """What `next_request` gave last did not reach the log; it is sent again after a pause."""
        self._retry_after_pause(now_ms)

    def receive(self, correlation_id: int, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        """Take an answer or a pushed assignment; one that was seen before, or is outdated, changes nothing."""
        if correlation_id == PUSHED_CORRELATION_ID:
            self._pushed(response)
            return
        if self._outstanding is None or correlation_id != self._outstanding.correlation_id:
            return
        sent = self._outstanding.body
        self._outstanding = None
        if response.error_code:
            self._refused(api_error(response.error_code, response.error_message), response, now_ms)
        elif sent.member_epoch == LEAVE_EPOCH:
            self._left()
        else:
            self._backoff.succeeded()
            if sent.subscribed_topic_names is not None:
                self._topics_of_coordinator = tuple(sent.subscribed_topic_names)
            self._next_heartbeat_ms = now_ms + response.heartbeat_interval_ms
            if response.member_epoch >= self._epoch:
                self._updated(response)

    def _heartbeat(self) -> ShareGroupHeartbeatRequest:
        if self.state is MemberState.LEAVING:
            return ShareGroupHeartbeatRequest(member_epoch=LEAVE_EPOCH)
        self._has_joined = True
        topics = list(self._topics)
        if self.state is MemberState.JOINING:
            return ShareGroupHeartbeatRequest(
                member_epoch=JOIN_EPOCH, rack_id=self._rack_id, subscribed_topic_names=topics
            )
        changed = topics if self._topics != self._topics_of_coordinator else None
        return ShareGroupHeartbeatRequest(member_epoch=self._epoch, subscribed_topic_names=changed)

    def _pushed(self, response: ShareGroupHeartbeatResponse) -> None:
        is_inside = self.state in (MemberState.JOINING, MemberState.STABLE)
        if is_inside and not response.error_code and response.member_epoch >= max(self._epoch, 1):
            self._updated(response)

    def _updated(self, response: ShareGroupHeartbeatResponse) -> None:
        # A member without an epoch of its own yet says everything again.
        self._epoch = response.member_epoch
        self.state = MemberState.JOINING if self._epoch == JOIN_EPOCH else MemberState.STABLE
        if response.assignment is not None:
            self.assignment = {
                (topic.topic_id, partition): topic.topic
                for topic in response.assignment
                for partition in topic.partitions
            }

    def _refused(self, error: ApiError, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        if self.state is MemberState.LEAVING and not error.retriable:
            self._left()
            return
        match _REACTIONS.get(type(error), _Reaction.RETRY if error.retriable else _Reaction.FAIL):
            case _Reaction.REJOIN:
                self._rejoin()
            case _Reaction.RETRY:
                self._retry_after_pause(now_ms)
            case _Reaction.REPORT_AND_RETRY:
                self._error = error
                self._next_heartbeat_ms = now_ms + response.heartbeat_interval_ms
            case _Reaction.FAIL:
                self._error = error
                self.state = MemberState.FAILED
                self.assignment = {}

    def _left(self) -> None:
        self.state = MemberState.OUTSIDE
        self._has_joined = False

    def _rejoin(self) -> None:
        self.state = MemberState.JOINING
        self.assignment = {}
        self._epoch = JOIN_EPOCH
        self._outstanding = None
        self._next_heartbeat_ms = 0

    def _retry_after_pause(self, now_ms: int) -> None:
        self._backoff.failed(now_ms)
        self._next_heartbeat_ms = self._backoff.until_ms
