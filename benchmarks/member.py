"""A simulated member: membership and share session of one member, and the requests that it can make next.

It has no I/O and no clock, so that one process simulates hundreds of members. At most one request of its share session
is outstanding; heartbeats go beside it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import (
    JOIN_EPOCH,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from sharegroup.protocol.messages import Message, ResponseEnvelope, parsed
from sharegroup.protocol.share_fetch import (
    INITIAL_EPOCH,
    AcknowledgementRange,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)


@dataclass(frozen=True, slots=True)
class MemberRequest:
    """A request of a member, ready to be sent."""

    member: SimulatedMember
    api_key: ApiKey
    body: Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of a completed request.

    Attributes:
        is_durable: records were acquired or acknowledged.
        error_codes: errors of the request and of its partitions.
    """

    is_durable: bool = False
    error_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Acquired records of one partition; inclusive offsets."""

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass(eq=False, slots=True)
class SimulatedMember:
    """One member of a group.

    Attributes:
        member_epoch: epoch that it last received; 0 before it is in.
        partitions: share-partitions that it was assigned, as (topic id, partition).
        held: records that it has acquired and not acknowledged.
    """

    group_id: str
    member_id: str
    topic: str
    member_epoch: int = JOIN_EPOCH
    partitions: list[tuple[str, int]] = field(default_factory=list)
    held: deque[HeldRange] = field(default_factory=deque)
    _session_epoch: int = INITIAL_EPOCH

    @property
    def has_joined(self) -> bool:
        """True if it is in the group and has an assignment."""
        return self.member_epoch != JOIN_EPOCH and bool(self.partitions)

    def heartbeat(self) -> MemberRequest:
        """Make a heartbeat, which joins when the member is not in."""
        topics = [self.topic] if self.member_epoch == JOIN_EPOCH else None
        body = ShareGroupHeartbeatRequest(member_epoch=self.member_epoch, subscribed_topic_names=topics)
        return MemberRequest(self, ApiKey.SHARE_GROUP_HEARTBEAT, body)

    def fetch(self, max_records: int, max_wait_ms: int = 0) -> MemberRequest:
        """Make a fetch of the session; the first one opens it with all partitions."""
        body = ShareFetchRequest(
            share_session_epoch=self._session_epoch,
            max_wait_ms=max_wait_ms,
            max_records=max_records,
            batch_size=max_records,
            acquire_mode=AcquireMode.RECORD_LIMIT,
            topics=self._all_topics() if self._session_epoch == INITIAL_EPOCH else [],
        )
        self._session_epoch += 1
        return MemberRequest(self, ApiKey.SHARE_FETCH, body)

    def accept_and_fetch(self, max_records: int, max_wait_ms: int = 0) -> MemberRequest:
        """Make a fetch that accepts all that is held; the first one of a session opens it."""
        if self._session_epoch == INITIAL_EPOCH:
            self.held.clear()
            return self.fetch(max_records, max_wait_ms)
        accepted = self._accepted(None)
        fetch = self.fetch(max_records, max_wait_ms)
        return MemberRequest(self, ApiKey.SHARE_FETCH, fetch.body.model_copy(update={"topics": accepted}))

    def acknowledge(self, max_records: int | None = None) -> MemberRequest:
        """Accept records that are held, oldest first; None is all of them."""
        body = ShareAcknowledgeRequest(share_session_epoch=self._session_epoch, topics=self._accepted(max_records))
        self._session_epoch += 1
        return MemberRequest(self, ApiKey.SHARE_ACKNOWLEDGE, body)

    def next_durable(self, max_records: int) -> MemberRequest:
        """Accept all that is held, or fetch records when nothing is."""
        if self.held and self._session_epoch != INITIAL_EPOCH:
            return self.acknowledge()
        return self.fetch(max_records)

    def receive(self, response: ResponseEnvelope) -> Outcome:
        """Take a response, or an assignment that was pushed."""
        if response.api_key == ApiKey.SHARE_GROUP_HEARTBEAT:
            return self._receive_heartbeat(parsed(ShareGroupHeartbeatResponse, response.body))
        return self._receive_session(parsed(ShareFetchResponse, response.body))

    def reset_session(self) -> None:
        """Open a new session with the next fetch; locks that were held end by time."""
        self._session_epoch = INITIAL_EPOCH
        self.held.clear()

    def _accepted(self, max_records: int | None) -> list[FetchTopic]:
        return [
            FetchTopic(
                topic_id=held.topic_id,
                partitions=[
                    FetchPartition(
                        partition_index=held.partition,
                        acknowledgement_batches=[
                            AcknowledgementRange(
                                first_offset=held.first_offset,
                                last_offset=held.last_offset,
                                acknowledge_types=[AcknowledgeType.ACCEPT],
                            )
                        ],
                    )
                ],
            )
            for held in self._take(max_records)
        ]

    def _receive_heartbeat(self, response: ShareGroupHeartbeatResponse) -> Outcome:
        if response.error_code:
            self.member_epoch = JOIN_EPOCH
            return Outcome(error_codes=(response.error_code,))
        self.member_epoch = response.member_epoch
        if response.assignment is not None:
            self.partitions = [(topic.topic_id, index) for topic in response.assignment for index in topic.partitions]
        return Outcome()

    def _receive_session(self, response: ShareFetchResponse) -> Outcome:
        if response.error_code:
            self.reset_session()
            return Outcome(error_codes=(response.error_code,))
        is_durable = False
        errors: list[int] = []
        for topic in response.responses:
            for partition in topic.partitions:
                errors += [code for code in (partition.error_code, partition.acknowledge_error_code) if code]
                is_durable |= partition.is_acknowledged and not partition.acknowledge_error_code
                for acquired in partition.acquired_records:
                    self.held.append(
                        HeldRange(
                            topic.topic_id, partition.partition_index, acquired.first_offset, acquired.last_offset
                        )
                    )
                    is_durable = True
        return Outcome(is_durable, tuple(errors))

    def _all_topics(self) -> list[FetchTopic]:
        topics: dict[str, list[FetchPartition]] = {}
        for topic_id, partition in self.partitions:
            topics.setdefault(topic_id, []).append(FetchPartition(partition_index=partition))
        return [FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]

    def _take(self, max_records: int | None) -> list[HeldRange]:
        if max_records is None:
            taken = list(self.held)
            self.held.clear()
            return taken
        taken = []
        while self.held and max_records > 0:
            held = self.held.popleft()
            last_offset = min(held.last_offset, held.first_offset + max_records - 1)
            taken.append(HeldRange(held.topic_id, held.partition, held.first_offset, last_offset))
            max_records -= last_offset - held.first_offset + 1
            if last_offset < held.last_offset:
                self.held.appendleft(HeldRange(held.topic_id, held.partition, last_offset + 1, held.last_offset))
        return taken
