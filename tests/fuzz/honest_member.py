"""A member that does what a member must: it joins, fetches, acknowledges, and starts again where it is refused."""

from __future__ import annotations

from random import Random

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import JOIN_EPOCH, ShareGroupHeartbeatResponse
from sharegroup.protocol.messages import ResponseEnvelope, parsed
from sharegroup.protocol.share_fetch import INITIAL_EPOCH, ShareFetchResponse
from tests.actor.group_harness import Acknowledgement, Group, Member, PartitionKey

_TURNS_BETWEEN_HEARTBEATS = 4
_PATIENCE_TURNS = 3
"""Turns after which a request without a response is given up."""


class HonestMember:
    """Plays one turn at a time.

    Args:
        group: where it is a member.
        member_id: who it is.
        random: what it chooses by.
    """

    def __init__(self, group: Group, member_id: str, random: Random) -> None:
        self.member = Member(group, member_id)
        self._group = group
        self._random = random
        self._seen = 0
        self._turn = 0
        self._heartbeat = 0
        self._session_request = 0
        self._sent_at_turn = 0
        self._held: dict[PartitionKey, list[tuple[int, int]]] = {}

    def play(self) -> None:
        """Read the responses, and send what is to be sent."""
        news = self._group.responses[self._seen :]
        self._seen += len(news)
        for response in news:
            if response.member_id == self.member.member_id:
                self._take(response)
        if self._turn % _TURNS_BETWEEN_HEARTBEATS == 0 or not self.member.member_epoch:
            # An impostor may have changed the subscription.
            self._heartbeat = self.member.send_heartbeat(None, self.member.topics)
        if self._session_request and self._turn - self._sent_at_turn > _PATIENCE_TURNS:
            self._session_request, self.member.session_epoch = 0, INITIAL_EPOCH
        if not self._session_request and self.member.assigned:
            self._fetch()
        self._turn += 1

    def _take(self, response: ResponseEnvelope) -> None:
        if response.api_key == ApiKey.SHARE_GROUP_HEARTBEAT and response.correlation_id in (-1, self._heartbeat):
            if parsed(ShareGroupHeartbeatResponse, response.body).error_code:
                self.member.member_epoch = JOIN_EPOCH
            else:
                self.member.take_assignments([response])
        elif response.correlation_id == self._session_request and self._session_request:
            self._session_request = 0
            body = parsed(ShareFetchResponse, response.body)
            if body.error_code:
                self.member.session_epoch = INITIAL_EPOCH
            for topic in body.responses:
                for partition in topic.partitions:
                    ranges = [(r.first_offset, r.last_offset) for r in partition.acquired_records]
                    self._held.setdefault((topic.topic_id, partition.partition_index), []).extend(ranges)

    def _fetch(self) -> None:
        if self.member.session_epoch == INITIAL_EPOCH:
            # What it still holds is acknowledged by the next request; this one can carry nothing.
            self._session_request = self.member.send_fetch(max_records=0, max_wait_ms=0)
        else:
            acknowledgements = {
                key: [self._acknowledgement(*r) for r in ranges] for key, ranges in self._held.items() if ranges
            }
            self._held = {}
            self._session_request = self.member.send_fetch(
                acknowledge=acknowledgements, max_records=self._random.randint(1, 20), max_wait_ms=1_000
            )
        self._sent_at_turn = self._turn

    def _acknowledgement(self, first: int, last: int) -> Acknowledgement:
        choices = [AcknowledgeType.ACCEPT] * 8 + [AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
        return first, last, self._random.choice(choices)
