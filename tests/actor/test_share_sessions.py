"""Share sessions: open, go on, close; epochs; repeated requests; the limit (KIP-932)."""

from __future__ import annotations

import pytest

from sharegroup.actor.share_requests import MAX_KEPT_BYTES
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.share_fetch import FINAL_EPOCH, ShareFetchRequest
from tests.actor.group_harness import Group, Member, group_with, joined, leader_state

ACCEPT = AcknowledgeType.ACCEPT
ORDERS_0 = ("orders-id", 0)
MAX_EPOCH = 2**31 - 1
TIMEOUT_MS = 45_000


@pytest.fixture
def group() -> Group:
    return group_with(100)


@pytest.fixture
def anna(group: Group) -> Member:
    return joined(group, "anna")[0]


def test_epochs_go_up_by_one_and_each_response_names_its_request(anna: Member) -> None:
    for expected in range(3):
        fetched = anna.fetch(max_records=5)
        assert fetched.response is not None
        assert fetched.response.share_session_epoch == expected
        assert fetched.acquired == {ORDERS_0: [(expected * 5, expected * 5 + 4, 1)]}


@pytest.mark.parametrize("offered", [0, 1, 3, MAX_EPOCH, -2])
def test_an_epoch_out_of_turn_is_refused_and_changes_nothing(group: Group, anna: Member, offered: int) -> None:
    for _ in range(2):
        anna.fetch(max_records=5)
    before = leader_state(group)
    if offered:
        assert anna.fetch(epoch=offered).error_code == InvalidShareSessionEpochError.code
    else:
        assert anna.acknowledge({}, epoch=offered).error_code == InvalidShareSessionEpochError.code
    assert leader_state(group) == before
    anna.session_epoch = 2
    assert anna.fetch(max_records=5).acquired == {ORDERS_0: [(10, 14, 1)]}


@pytest.mark.parametrize("epoch", [1, 7, FINAL_EPOCH])
def test_without_a_session_only_epoch_0_is_accepted(anna: Member, epoch: int) -> None:
    assert anna.fetch(epoch=epoch).error_code == ShareSessionNotFoundError.code
    assert anna.acknowledge({}, epoch=epoch).error_code == ShareSessionNotFoundError.code
    assert anna.fetch(epoch=0, max_records=1).record_count == 1


def test_the_epoch_after_the_highest_is_1(group: Group, anna: Member) -> None:
    anna.fetch(max_records=1)
    (session,) = group.leader.sessions
    session.epoch = MAX_EPOCH - 1
    assert anna.fetch(max_records=1, epoch=MAX_EPOCH).record_count == 1
    assert anna.fetch(max_records=1, epoch=-(2**31)).error_code == InvalidShareSessionEpochError.code
    assert anna.fetch(max_records=1, epoch=1).record_count == 1


def test_opening_with_acknowledgements_is_refused(anna: Member) -> None:
    assert anna.fetch(acknowledge={ORDERS_0: [(0, 0, ACCEPT)]}).error_code == InvalidRequestError.code
    assert anna.fetch(epoch=0, max_records=1).record_count == 1


def test_opening_again_forgets_the_partitions_but_not_the_locks(group: Group, anna: Member) -> None:
    anna.fetch(max_records=10)
    reopened = anna.fetch(partitions=[], epoch=0, max_wait_ms=0)
    assert reopened.acquired == {}
    fetched = anna.fetch(partitions=[ORDERS_0], acknowledge={ORDERS_0: [(0, 9, ACCEPT)]}, max_records=1)
    assert fetched.acknowledge_errors == {ORDERS_0: 0}
    assert fetched.acquired == {ORDERS_0: [(10, 10, 1)]}


def test_opening_again_completes_the_fetch_that_was_parked(group: Group, anna: Member) -> None:
    anna.fetch(max_records=100)
    parked = anna.send_fetch()
    group.settle()
    assert anna.response_to(parked).is_parked
    anna.fetch(epoch=0, max_wait_ms=0)
    assert anna.response_to(parked).acquired == {}


def test_a_repeated_request_gets_the_kept_response_and_acquires_nothing(group: Group, anna: Member) -> None:
    body = ShareFetchRequest.model_validate(
        {
            "share_session_epoch": 0,
            "max_records": 5,
            "topics": [{"topic_id": "orders-id", "partitions": [{"partition_index": 0}]}],
        }
    )
    envelope = anna.envelope(ApiKey.SHARE_FETCH, body, 77)
    group.append(envelope)
    first = group.settle().responses
    locks = leader_state(group)
    group.append(envelope)
    repeated = group.settle()
    assert repeated.responses == first
    assert repeated.rows == []
    assert leader_state(group) == locks


def test_a_repeat_of_a_parked_fetch_gets_one_response(group: Group, anna: Member) -> None:
    anna.fetch(max_records=100)
    body = ShareFetchRequest(share_session_epoch=1, max_wait_ms=10_000)
    for _ in range(3):
        group.append(anna.envelope(ApiKey.SHARE_FETCH, body, 77))
        assert group.settle().responses == []
    group.grow("orders", 0, 3)
    assert [response.correlation_id for response in group.settle().responses] == [77]


def test_the_same_epoch_with_another_correlation_id_is_no_repeat(group: Group, anna: Member) -> None:
    anna.fetch(max_records=5)
    anna.fetch(max_records=5)
    assert anna.fetch(epoch=1).error_code == InvalidShareSessionEpochError.code


def test_close_releases_what_is_held_and_ends_the_session(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=10)
    closed = anna.close({ORDERS_0: [(0, 4, ACCEPT)]})
    assert closed.acknowledge_errors == {ORDERS_0: 0}
    assert anna.fetch(epoch=2).error_code == ShareSessionNotFoundError.code
    assert ben.fetch(max_records=5).acquired == {ORDERS_0: [(5, 9, 2)]}


def test_close_by_a_fetch_takes_its_acknowledgements_and_acquires_nothing(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=4)
    closed = anna.fetch(acknowledge={ORDERS_0: [(0, 1, ACCEPT)]}, epoch=FINAL_EPOCH)
    assert closed.acknowledge_errors == {ORDERS_0: 0}
    assert closed.acquired == {}
    assert ben.fetch(max_records=2).acquired == {ORDERS_0: [(2, 3, 2)]}


def test_sessions_are_limited_and_a_close_makes_room() -> None:
    group = group_with(100, broker=BrokerConfig(group_share_max_share_sessions=2, group_share_max_size=2))
    anna, ben, cleo = (Member(group, name) for name in ("anna", "ben", "cleo"))
    assert anna.fetch([ORDERS_0], max_wait_ms=0).error_code == 0
    assert ben.fetch([ORDERS_0], max_wait_ms=0).error_code == 0
    assert cleo.fetch([ORDERS_0], max_wait_ms=0).error_code == ShareSessionLimitReachedError.code
    assert anna.fetch([ORDERS_0], epoch=0, max_wait_ms=0).error_code == 0
    ben.close()
    assert cleo.fetch([ORDERS_0], epoch=0, max_wait_ms=0).error_code == 0


class TestTimeout:
    def test_the_session_of_a_silent_member_ends_and_its_locks_stay(self, group: Group, anna: Member) -> None:
        group.alter_config(share_record_lock_duration_ms="60000")
        anna.fetch(max_records=5)
        assert group.wakes[ActorRole.LEADER] == group.now_ms + TIMEOUT_MS
        group.advance(TIMEOUT_MS - 1)
        assert [session.member_id for session in group.leader.sessions] == ["anna"]
        group.advance(1)
        assert list(group.leader.sessions) == []
        assert group.leader.partitions[ORDERS_0].share_partition.runs.is_held_by("anna")
        assert anna.fetch().error_code == ShareSessionNotFoundError.code

    def test_a_request_restarts_it(self, group: Group, anna: Member) -> None:
        anna.fetch(max_records=0)
        for _ in range(3):
            group.advance(TIMEOUT_MS - 1)
            assert anna.acknowledge({}).error_code == 0

    def test_a_member_whose_fetch_waits_is_not_silent(self, group: Group, anna: Member) -> None:
        anna.fetch(max_records=100)
        anna.acknowledge({ORDERS_0: [(0, 99, ACCEPT)]})
        parked = anna.send_fetch(max_wait_ms=TIMEOUT_MS)
        group.settle()
        group.advance(TIMEOUT_MS)
        assert not anna.response_to(parked).is_parked
        group.advance(TIMEOUT_MS - 1)
        assert anna.acknowledge({}).error_code == 0

    def test_a_changed_timeout_holds_for_sessions_that_are_open(self, group: Group, anna: Member) -> None:
        anna.fetch(max_records=0)
        assert group.alter_config(share_session_timeout_ms="50000") == 0
        group.advance(50_000 - 1)
        assert anna.acknowledge({}).error_code == 0
        group.advance(50_000)
        assert list(group.leader.sessions) == []


class TestKeptResponses:
    def test_a_large_one_is_kept_without_its_records(self) -> None:
        group = group_with(5_000)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=0)
        assert group.alter_config(share_partition_max_record_locks="4000") == 0
        sent = anna.send_fetch([], max_records=2_000, batch_size=1)
        value = group.log[-1].value
        group.settle()
        assert anna.response_to(sent).record_count == 2_000
        group.append(value)
        (again,) = group.settle().responses
        assert again.body.get("responses", []) == []
        (session,) = group.leader.sessions
        assert session.kept_response is not None
        assert len(session.kept_response) < MAX_KEPT_BYTES

    def test_the_result_of_acknowledgements_is_kept_with_it(self) -> None:
        group = group_with(5_000)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=1)
        anna.send_fetch([], {ORDERS_0: [(0, 0, ACCEPT)]}, max_records=1_900, batch_size=1)
        value = group.log[-1].value
        assert len(group.settle().responses[0].encoded()) > MAX_KEPT_BYTES
        group.append(value)
        (again,) = group.settle().responses
        assert again.body["responses"] == [
            {"topic_id": "orders-id", "partitions": [{"partition_index": 0, "is_acknowledged": True}]}
        ]


def test_a_session_whose_member_is_gone_makes_room_when_the_limit_is_reached() -> None:
    group = group_with(100, broker=BrokerConfig(group_share_max_share_sessions=2, group_share_max_size=2))
    anna, ben, cleo = (Member(group, name) for name in ("anna", "ben", "cleo"))
    anna.fetch([ORDERS_0], max_wait_ms=0)
    group.advance(100_000)
    ben.fetch([ORDERS_0], max_wait_ms=0)
    group.advance(30_000)
    assert cleo.fetch([ORDERS_0], epoch=0, max_wait_ms=0).error_code == 0
    assert anna.fetch([ORDERS_0], epoch=1, max_wait_ms=0).error_code == ShareSessionNotFoundError.code
    assert ben.fetch([ORDERS_0], epoch=1, max_wait_ms=0).error_code == 0
