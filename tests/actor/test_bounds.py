"""The bounds of requests: everything that a request can leave behind in the state has a bound."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest

from sharegroup.actor import log_offsets
from sharegroup.actor.decoding import MAX_REQUEST_BYTES, decoded_message
from sharegroup.actor.effects import Respond, Undecodable
from sharegroup.actor.fetches import MAX_RANGES_PER_RESPONSE
from sharegroup.actor.share_session import MAX_SESSION_PARTITIONS, MAX_UNKNOWN_PARTITIONS
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError, MessageTooLargeError, ShareSessionLimitReachedError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import MAX_SUBSCRIBED_TOPICS
from sharegroup.protocol.internal_messages import (
    InitializeShareGroupState,
    LogOffsets,
    PartitionLogOffsets,
    StatePartition,
    StateTopic,
    TopicLogOffsets,
)
from sharegroup.protocol.messages import MAX_NAME_LENGTH
from sharegroup.protocol.share_fetch import (
    AcknowledgementRange,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from tests.actor.group_harness import GROUP_ID, START_MS, Group, Member, group_with, joined, leader_state
from tests.actor.simulated_group import LoggedBytes

INVALID, TOO_LARGE = InvalidRequestError.code, MessageTooLargeError.code
ORDERS_0 = ("orders-id", 0)
LONG = "x" * (MAX_NAME_LENGTH + 1)


def request_bytes(size: int = 0, **fields: Any) -> bytes:
    """A heartbeat with these fields, filled up with blanks to a size."""
    envelope = {
        "api_key": int(ApiKey.SHARE_GROUP_HEARTBEAT),
        "correlation_id": 7,
        "group_id": GROUP_ID,
        "member_id": "anna",
        "reply_partition": 0,
        "body": {"member_epoch": 0, "subscribed_topic_names": ["orders"]},
    }
    return json.dumps({**envelope, **fields}).encode().ljust(size)


class TestEnvelope:
    @pytest.mark.parametrize(
        ("value", "error_code"),
        [
            (request_bytes(client_id=LONG), INVALID),
            (request_bytes(group_id=LONG), INVALID),
            (request_bytes(group_id="\ud800"), INVALID),
            (request_bytes(group_id=5), INVALID),
            (request_bytes(body={"\ud800": 1}), INVALID),
            (request_bytes(MAX_REQUEST_BYTES + 1), TOO_LARGE),
            (request_bytes(10_000_000), TOO_LARGE),
        ],
        ids=["client", "group", "group not UTF-8", "group no text", "body not UTF-8", "a byte too long", "10 MB"],
    )
    def test_one_that_goes_too_far_is_refused(self, value: bytes, error_code: int) -> None:
        effect = decoded_message(value, 3, START_MS, 1)
        assert isinstance(effect, Respond)
        assert (effect.response.member_id, effect.response.correlation_id) == ("anna", 7)
        assert effect.response.body["error_code"] == error_code
        assert len(effect.response.encoded()) < 3 * MAX_NAME_LENGTH

    @pytest.mark.parametrize("member_id", [LONG, "\ud800", "", 5, None])
    def test_nobody_gets_a_response_under_such_a_name(self, member_id: object) -> None:
        assert isinstance(decoded_message(request_bytes(member_id=member_id, group_id=""), 3, START_MS, 1), Undecodable)

    def test_the_largest_is_applied(self) -> None:
        group = group_with(10)
        group.append(request_bytes(MAX_REQUEST_BYTES))
        responses = [response for response in group.settle().responses if response.correlation_id == 7]
        assert [response.body.get("error_code", 0) for response in responses] == [0]

    def test_an_internal_message_may_be_longer_since_it_names_every_partition(self) -> None:
        group = group_with(10)
        value = request_bytes(2 * MAX_REQUEST_BYTES, api_key=ApiKey.LOG_OFFSETS, body={"topics": []})
        group.append(value)
        assert group.settle().undecodable == []


class TestShareSessions:
    @pytest.fixture
    def group(self) -> Group:
        return group_with(10)

    @pytest.fixture
    def anna(self, group: Group) -> Member:
        return joined(group, "anna")[0]

    def partitions(self, first: int, count: int) -> list[tuple[str, int]]:
        return [("other-id", partition) for partition in range(first, first + count)]

    def test_a_session_has_no_more_partitions_that_are_not_led(self, group: Group, anna: Member) -> None:
        most = self.partitions(0, MAX_UNKNOWN_PARTITIONS)
        assert anna.fetch(most, max_records=0).error_code == 0
        sessions = leader_state(group)
        assert anna.fetch([("other-id", MAX_UNKNOWN_PARTITIONS)], max_records=0).error_code == INVALID
        assert leader_state(group) == sessions
        assert anna.fetch(most[:5], max_records=0, epoch=1).error_code == 0

    def test_a_topic_that_was_created_again_takes_the_place_of_the_former_one(self, anna: Member) -> None:
        former = self.partitions(0, MAX_UNKNOWN_PARTITIONS)
        later = [("later-id", partition) for _, partition in former]
        assert anna.fetch(former, max_records=0).error_code == 0
        assert anna.fetch(later, forget=former, max_records=0).error_code == 0
        assert anna.fetch([("later-id", MAX_UNKNOWN_PARTITIONS)], max_records=0).error_code == INVALID

    @pytest.mark.slow
    def test_partitions_that_are_not_led_leave_little_behind(self, group: Group, anna: Member) -> None:
        topics = [
            {"topic_id": f"{number:064}", "partitions": [{"partition_index": 0}]}
            for number in range(MAX_UNKNOWN_PARTITIONS)
        ]
        for count in (len(topics), 1):
            body = {"share_session_epoch": 0, "max_wait_ms": 0, "topics": topics[:count] * (2_500 // len(topics))}
            value = anna.envelope(ApiKey.SHARE_FETCH, ShareFetchRequest.model_validate(body), count).encoded()
            gc.collect()
            tracemalloc.start()
            try:
                group.append(value)
                responses = group.settle().responses
                assert [response.correlation_id for response in responses] == [count]
                group.log.pop()
                group.responses.clear()
                responses.clear()
                gc.collect()
                assert tracemalloc.get_traced_memory()[0] < 1_000_000
            finally:
                tracemalloc.stop()
                group.log.append(LoggedBytes(value, group.now_ms))

    def test_the_text_of_an_error_comes_once_a_topic(self, group: Group, anna: Member) -> None:
        unknown = self.partitions(0, 5)
        fetched = anna.fetch(unknown)
        assert [bool(fetched.partitions[key].error_message) for key in unknown] == [True] + [False] * 4
        acknowledged = anna.acknowledge({key: [(0, 0, AcknowledgeType.ACCEPT)] for key in unknown})
        texts = [bool(acknowledged.partitions[key].acknowledge_error_message) for key in unknown]
        assert texts == [True] + [False] * 4

    @pytest.mark.parametrize("api_key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
    def test_a_topic_id_has_a_bound(self, group: Group, anna: Member, api_key: ApiKey) -> None:
        anna.fetch(max_records=0)
        topic = FetchTopic.model_construct(topic_id="x" * 65, partitions=[FetchPartition(partition_index=0)])
        body = ShareAcknowledgeRequest.model_construct(share_session_epoch=1, topics=[topic])
        assert anna.fetched(anna.send(api_key, body)).error_code == INVALID

    def test_it_opens_with_no_more_than_these(self, group: Group, anna: Member) -> None:
        assert anna.fetch(self.partitions(0, MAX_SESSION_PARTITIONS + 1)).error_code == INVALID
        assert list(group.leader.sessions) == []

    def test_a_fetch_waits_no_longer_than_a_session_is_kept_for_a_member_that_is_gone(self) -> None:
        group = group_with(10, broker=BrokerConfig(group_share_max_share_sessions=1, group_share_max_size=1))
        gone, ben = Member(group, "gone"), Member(group, "ben")
        gone.fetch([ORDERS_0], max_records=10)
        parked = gone.send_fetch([], max_wait_ms=2**31 - 1)
        assert ben.fetch([ORDERS_0], max_wait_ms=0).error_code == ShareSessionLimitReachedError.code
        group.advance(45_001)
        assert not gone.response_to(parked).is_parked
        assert ben.fetch([ORDERS_0], epoch=0, max_wait_ms=0).error_code == 0


def test_a_response_has_a_largest_number_of_ranges() -> None:
    group = group_with(*[3_000] * 6)
    (anna,) = joined(group, "anna")
    fetched = anna.fetch([("orders-id", index) for index in range(6)], max_records=2**31 - 1, batch_size=1)
    assert sum(len(ranges) for ranges in fetched.acquired.values()) == MAX_RANGES_PER_RESPONSE
    assert fetched.record_count == MAX_RANGES_PER_RESPONSE


@pytest.mark.slow
def test_fragments_count_as_ranges_too() -> None:
    partitions = [("orders-id", index) for index in range(12)]
    group = group_with(*[2_000] * len(partitions))
    (anna,) = joined(group, "anna")
    assert anna.fetch(partitions, max_records=2**31 - 1).record_count == 24_000
    # Every other record comes back.
    types = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE] * 1_000
    batch = AcknowledgementRange(first_offset=0, last_offset=1_999, acknowledge_types=types)
    topic = FetchTopic(
        topic_id="orders-id",
        partitions=[FetchPartition(partition_index=index, acknowledgement_batches=[batch]) for _, index in partitions],
    )
    body = ShareAcknowledgeRequest(share_session_epoch=anna.session_epoch, topics=[topic])
    anna.session_epoch += 1
    assert set(anna.fetched(anna.send(ApiKey.SHARE_ACKNOWLEDGE, body)).acknowledge_errors.values()) == {0}
    fetched = anna.fetch(max_records=2**31 - 1)
    assert sum(len(ranges) for ranges in fetched.acquired.values()) == MAX_RANGES_PER_RESPONSE
    assert anna.fetch(max_records=2**31 - 1).record_count == 12_000 - MAX_RANGES_PER_RESPONSE


class TestGroups:
    @pytest.mark.parametrize(
        "fields",
        [
            {"subscribed_topic_names": [LONG]},
            {"subscribed_topic_names": ["orders"] * (MAX_SUBSCRIBED_TOPICS + 1)},
            {"subscribed_topic_names": ["orders"], "rack_id": LONG},
        ],
        ids=["long topic name", "many topics", "long rack id"],
    )
    def test_a_heartbeat_is_refused(self, fields: dict[str, Any]) -> None:
        group = group_with(10)
        group.append(request_bytes(body={"member_epoch": 0, **fields}))
        assert [response.body["error_code"] for response in group.settle().responses] == [INVALID]
        assert group.coordinator.group.state.members == {}

    def test_a_leader_keeps_no_more_partitions_than_these(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_offsets, "MAX_GROUP_PARTITIONS", 3)
        group = group_with(10)
        joined(group, "anna")
        before = leader_state(group)
        offsets = [
            PartitionLogOffsets(partition_index=index, start_offset=0, end_offset=0, last_stable_offset=0)
            for index in range(3)
        ]
        topic = TopicLogOffsets(topic="other", topic_id="other-id", partitions=offsets)
        group.tell(ApiKey.LOG_OFFSETS, LogOffsets(topics=[topic]))
        wanted = [StatePartition(partition_index=index) for index in range(3)]
        state_topic = StateTopic(topic="other", topic_id="other-id", partitions=wanted)
        group.tell(ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupState(state_epoch=1, topics=[state_topic]))
        # Offsets are a message for both actors, and the coordinator, which keeps none, speaks for them.
        assert ["the most is 3" in counted.reason for counted in group.settle().undecodable] == [True]
        assert leader_state(group) == before


def test_a_topic_that_cannot_start_causes_no_messages_without_end() -> None:
    group = group_with(10)
    joined(group, "anna")
    wanted = [StatePartition(partition_index=index) for index in (0, 7)]
    topic = StateTopic(topic="orders", topic_id="orders-id", partitions=wanted)
    group.tell(ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupState(state_epoch=1, topics=[topic]))
    group.settle()
    assert group.log_watch == {("orders", "orders-id", 7): -1}
