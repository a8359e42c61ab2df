"""Hostile responses to a member: what it did not ask for changes nothing, and no response at all breaks it."""

from __future__ import annotations

from random import Random

import pytest

from sharegroup.client.exchange import Request
from sharegroup.client.member_protocol import MemberProtocol
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatResponse, TopicPartitions
from sharegroup.protocol.messages import Message, ResponseEnvelope, decoded_response
from sharegroup.protocol.share_fetch import AcquiredRecords, PartitionResponse, ShareFetchResponse, TopicResponse
from tests.fuzz.conftest import MESSAGES_PER_RUN
from tests.fuzz.hostile_responses import HostileResponses

pytestmark = pytest.mark.slow

ACCEPT = AcknowledgeType.ACCEPT
GROUP_ID, MEMBER_ID = "group", "anna"
EPOCH_MS = 1_000_000
LOCK_MS = 30_000
TURNS = MESSAGES_PER_RUN // 20
SETTINGS = MemberSettings(group_id=GROUP_ID, fetch=FetchSettings(max_wait_ms=500, request_timeout_ms=3_000))


class Life:
    """A member whose application takes and accepts what comes."""

    def __init__(self) -> None:
        self.protocol = MemberProtocol(SETTINGS, 0)
        self.now_ms = 0
        self.subscribe()

    def subscribe(self) -> None:
        self.protocol.subscribe(["orders"], self.now_ms)

    def hears(self, value: bytes | None) -> None:
        """Take a record of the response log, as the link and the member's thread do."""
        try:
            response = decoded_response(value)
            if response.group_id == GROUP_ID:
                self.protocol.receive(response, self.now_ms)
        except InvalidRequestError:
            pass

    def goes_on(self) -> list[Request[Message]]:
        """Take and accept what waits; what is sent now can go over the wire."""
        self.now_ms += 400
        while (acquisition := self.protocol.take(self.now_ms)) is not None:
            self.protocol.acknowledge(held.acknowledgement(ACCEPT) for held in acquisition.ranges)
        self.protocol.results.take()
        self.protocol.refusals.take()
        requests = self.protocol.next_requests(self.now_ms)
        for _, _, body in requests:
            body.model_dump_json()
        return requests


def honest_response(request: Request[Message], offset: int, now_ms: int) -> bytes:
    correlation_id, api_key, _ = request
    body: Message
    if api_key is ApiKey.SHARE_GROUP_HEARTBEAT:
        assignment = [TopicPartitions(topic_id="orders-id", topic="orders", partitions=[0])]
        body = ShareGroupHeartbeatResponse(member_epoch=2, assignment=assignment)
    else:
        acquired = [AcquiredRecords(first_offset=offset, last_offset=offset + 4, delivery_count=1)]
        partition = PartitionResponse(partition_index=0, is_acknowledged=True, acquired_records=acquired)
        body = ShareFetchResponse(
            lock_deadline_ms=EPOCH_MS + now_ms + LOCK_MS,
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[TopicResponse(topic_id="orders-id", partitions=[partition])],
        )
    return ResponseEnvelope(
        api_key=api_key,
        correlation_id=correlation_id,
        group_id=GROUP_ID,
        member_id=MEMBER_ID,
        published_ms=EPOCH_MS + now_ms,
        body=body.model_dump(mode="json"),
    ).encoded()


def test_what_a_member_did_not_ask_for_changes_nothing(fuzz_seed: int) -> None:
    hostile = HostileResponses(Random(fuzz_seed), GROUP_ID, MEMBER_ID)
    disturbed, alone = Life(), Life()
    fetches = 0
    for turn in range(TURNS):
        requests = disturbed.goes_on()
        assert requests == alone.goes_on()
        for request in requests:
            fetches += request[1] is ApiKey.SHARE_FETCH
            for life in (disturbed, alone):
                life.hears(honest_response(request, 5 * turn, life.now_ms))
        for _ in range(5):
            disturbed.hears(hostile.unasked())
    assert fetches > TURNS // 2


def test_no_response_breaks_a_member(fuzz_seed: int) -> None:
    hostile = HostileResponses(Random(fuzz_seed), GROUP_ID, MEMBER_ID)
    life = Life()
    correlation_id = 0
    for turn in range(4 * TURNS):
        for correlation_id, _, _ in life.goes_on():
            life.hears(hostile.to_anything(correlation_id))
        life.hears(hostile.to_anything(correlation_id))
        if turn % 20 == 0:
            # Some refusals are final.
            life.subscribe()
