"""Repeated, late and overtaken requests: which responses they get (KIP-932, "Share sessions", "Member epochs")."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    FencedMemberEpochError,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    ShareSessionNotFoundError,
    UnknownMemberIdError,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import JOIN_EPOCH, LEAVE_EPOCH, ShareGroupHeartbeatRequest
from sharegroup.protocol.messages import decoded_request, parsed
from sharegroup.protocol.share_fetch import FINAL_EPOCH, ShareFetchResponse
from tests.actor.group_harness import Fetched, Group, group_with, joined, leader_state

ORDERS_0 = ("orders-id", 0)
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
OLD, UNKNOWN = InvalidShareSessionEpochError.code, ShareSessionNotFoundError.code
KEPT = "the kept response"


class Conversation:
    """A member that has sent an opening fetch (0), a fetch (1) and an acknowledgement (2); all bytes are kept."""

    def __init__(self) -> None:
        self.group = group_with(30)
        (self.anna,) = joined(self.group, "anna")
        self.sent: list[bytes] = []
        for act in (self._open, self._fetch, self._acknowledge):
            act()
            self.sent.append(self.group.log[-1].value)
            self.group.settle()
        self.responses = list(self.group.responses)

    def again(self, value: bytes) -> int | str | None:
        """Send the same bytes again; return an error code, the kept response, or None."""
        rows = len(self.group.rows)
        self.group.append(value)
        responses = self.group.settle().responses
        assert len(self.group.rows) == rows, "a repeat must change nothing"
        if not responses:
            return None
        (response,) = responses
        return KEPT if response in self.responses else int(response.body["error_code"])

    def _open(self) -> None:
        self.anna.send_fetch(max_records=5, max_wait_ms=0)

    def _fetch(self) -> None:
        self.anna.send_fetch(max_records=5, max_wait_ms=0)

    def _acknowledge(self) -> None:
        self.anna.send_acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})


class TestShareSession:
    @pytest.mark.parametrize(("request_number", "outcome"), [(2, KEPT), (1, OLD)])
    def test_a_request_again(self, request_number: int, outcome: int | str) -> None:
        conversation = Conversation()
        for _ in range(2):
            assert conversation.again(conversation.sent[request_number]) == outcome

    def test_an_opening_again_opens_again_and_what_the_member_holds_stays_locked(self) -> None:
        conversation = Conversation()
        conversation.group.append(conversation.sent[0])
        (response,) = conversation.group.settle().responses
        assert "error_code" not in response.body
        assert response.body.get("share_session_epoch", 0) == 0
        anna = conversation.anna
        assert anna.fetch(epoch=3, max_wait_ms=0).error_code == OLD
        assert anna.acknowledge({ORDERS_0: [(5, 9, ACCEPT)]}, epoch=1).acknowledge_errors == {ORDERS_0: 0}

    @pytest.mark.parametrize(
        ("epochs", "codes"),
        [
            ([3, 4, 5], [0, 0, 0]),
            ([4, 3, 4], [OLD, 0, 0]),
            ([3, 3, 4], [0, OLD, 0]),
            ([2, 3], [OLD, 0]),
            ([FINAL_EPOCH, 3], [0, UNKNOWN]),
            ([3, FINAL_EPOCH, FINAL_EPOCH], [0, 0, UNKNOWN]),
            ([0, 3, 1], [0, OLD, 0]),
        ],
        ids=[
            "in order",
            "overtaken",
            "same epoch, other request",
            "late",
            "after the end",
            "end twice",
            "opened again",
        ],
    )
    @pytest.mark.parametrize("is_one_batch", [False, True])
    def test_requests_in_this_order(self, epochs: list[int], codes: list[int], is_one_batch: bool) -> None:
        conversation = Conversation()
        group, anna = conversation.group, conversation.anna
        sent = []
        for epoch in epochs:
            opens = epoch == 0
            sent.append(anna.send_fetch(epoch=0, max_records=0) if opens else anna.send_acknowledge({}, epoch))
            if not is_one_batch:
                group.settle()
        group.settle()
        assert [anna.response_to(correlation_id).error_code for correlation_id in sent] == codes

    def test_a_fetch_of_the_session_before_changes_nothing_whatever_its_epoch(self) -> None:
        conversation = Conversation()
        group, anna = conversation.group, conversation.anna
        anna.send_fetch(epoch=0, max_records=0, max_wait_ms=0)
        group.settle()
        before = leader_state(group)
        # A producer appends it again, after later ones; its epoch is the next one of the session.
        assert conversation.again(conversation.sent[1]) == OLD
        assert leader_state(group) == before
        assert anna.acknowledge({ORDERS_0: [(5, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}

    def test_an_end_of_the_session_before_does_not_end_this_one(self) -> None:
        conversation = Conversation()
        group, anna = conversation.group, conversation.anna
        anna.acknowledge({ORDERS_0: [(5, 9, ACCEPT)]})
        anna.send_acknowledge({}, FINAL_EPOCH)
        end = group.log[-1].value
        group.settle()
        anna.send_fetch(epoch=0, max_records=5, max_wait_ms=0)
        group.settle()
        before = leader_state(group)
        assert conversation.again(end) == OLD
        assert leader_state(group) == before

    def test_an_acknowledgement_applied_before_has_no_records_any_more(self) -> None:
        conversation = Conversation()
        anna = conversation.anna
        acknowledgements = {ORDERS_0: [(5, 9, ACCEPT)]}
        assert anna.acknowledge(acknowledgements).acknowledge_errors == {ORDERS_0: 0}
        # Below the start offset anything is accepted without effect; above it the record must be held.
        assert anna.acknowledge(acknowledgements).acknowledge_errors == {ORDERS_0: 0}
        assert anna.fetch(max_records=5, max_wait_ms=0).record_count == 5
        assert anna.acknowledge({ORDERS_0: [(12, 12, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
        assert anna.acknowledge({ORDERS_0: [(12, 12, ACCEPT)]}).acknowledge_errors == {
            ORDERS_0: InvalidRecordStateError.code
        }


class TestAfterATakeover:
    """Share sessions are gone; the last request of a member with a durable effect is known still."""

    def test_a_repeat_is_refused_where_it_was_refused_before(self) -> None:
        group = group_with(30, 30)
        (anna,) = joined(group, "anna")
        anna.fetch([ORDERS_0], max_records=5)
        # The lock of partition 0 is there, none of partition 1.
        sent = anna.send_acknowledge({ORDERS_0: [(0, 4, ACCEPT)], ("orders-id", 1): [(7, 7, ACCEPT)]})
        errors = anna.fetched(sent).acknowledge_errors
        assert errors == {ORDERS_0: 0, ("orders-id", 1): InvalidRecordStateError.code}
        group.restart()
        group.settle()
        group.append(group.log[_offset_of(group, sent)].value)
        (response,) = group.settle().responses
        assert Fetched(parsed(ShareFetchResponse, response.body)).acknowledge_errors == errors

    def test_a_request_that_came_before_the_last_one_is_not_applied_again(self) -> None:
        group = group_with(30)
        (anna,) = joined(group, "anna")
        anna.fetch([ORDERS_0], max_records=2)
        released = anna.send_acknowledge({ORDERS_0: [(0, 0, RELEASE)]})
        group.settle()
        anna.fetch([ORDERS_0], max_records=1)
        anna.acknowledge({ORDERS_0: [(1, 1, ACCEPT)]})
        group.restart()
        group.settle()
        before = leader_state(group)[0]
        group.append(group.log[_offset_of(group, released)].value)
        (response,) = group.settle().responses
        assert response.body["error_code"] == UNKNOWN
        assert leader_state(group)[0] == before


def _offset_of(group: Group, correlation_id: int) -> int:
    return next(
        offset
        for offset, logged in enumerate(group.log)
        if (envelope := decoded_request(logged.value)).member_id and envelope.correlation_id == correlation_id
    )


@pytest.mark.parametrize("acknowledge_type", AcknowledgeType)
def test_who_acknowledges_for_another_changes_nothing(acknowledge_type: AcknowledgeType) -> None:
    group = group_with(30)
    anna, ben = joined(group, "anna", "ben")
    anna.fetch([ORDERS_0], max_records=5)
    ben.fetch([], max_records=0)
    before = leader_state(group)[0]
    assert ben.acknowledge({ORDERS_0: [(0, 4, acknowledge_type)]}).acknowledge_errors == {
        ORDERS_0: InvalidRecordStateError.code
    }
    assert leader_state(group)[0] == before


class TestHeartbeats:
    @pytest.mark.parametrize(
        ("epochs", "codes"),
        [
            ([JOIN_EPOCH, JOIN_EPOCH], [0, 0]),
            ([None, None], [0, 0]),
            ([LEAVE_EPOCH, LEAVE_EPOCH], [0, UnknownMemberIdError.code]),
            ([LEAVE_EPOCH, None], [0, UnknownMemberIdError.code]),
            ([LEAVE_EPOCH, JOIN_EPOCH], [0, 0]),
            ([1_000, None], [FencedMemberEpochError.code, 0]),
        ],
        ids=["join twice", "same twice", "leave twice", "late after leaving", "leave and join", "from the future"],
    )
    @pytest.mark.parametrize("is_one_batch", [False, True])
    def test_in_this_order(self, epochs: list[int | None], codes: list[int], is_one_batch: bool) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        sent = []
        for epoch in epochs:
            topics = ["orders"] if epoch == JOIN_EPOCH else None
            sent.append(anna.send_heartbeat(epoch, topics))
            if not is_one_batch:
                group.settle()
        group.settle()
        responses = {r.correlation_id: r.body.get("error_code", 0) for r in group.responses if r.member_id == "anna"}
        assert [responses[correlation_id] for correlation_id in sent] == codes

    def test_the_same_bytes_again_change_nothing_and_get_a_response_again(self) -> None:
        group = group_with(10)
        (anna,) = joined(group, "anna")
        body = ShareGroupHeartbeatRequest(member_epoch=anna.member_epoch)
        rows = len(group.rows)
        for _ in range(3):
            group.append(anna.envelope(ApiKey.SHARE_GROUP_HEARTBEAT, body, 7))
            assert [response.correlation_id for response in group.settle().responses] == [7]
        assert len(group.rows) == rows
