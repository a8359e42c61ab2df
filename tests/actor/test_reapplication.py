"""Messages that are applied again after a takeover, and messages of an older processor: they do no harm."""

from __future__ import annotations

import pytest

from sharegroup.actor.context import is_outdated
from sharegroup.actor.effects import Send
from sharegroup.actor.last_requests import LastRequests
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.errors import ShareSessionNotFoundError
from sharegroup.protocol.api_key import INTERNAL_KEYS, ApiKey
from sharegroup.protocol.internal_messages import DeleteShareGroupState, ShareGroupConfigChanged
from sharegroup.protocol.messages import request
from tests.actor.group_harness import Group, Member, group_with, joined, leader_state

ACCEPT, RELEASE, UNREAD = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.UNREAD
ORDERS_0, ORDERS_1 = ("orders-id", 0), ("orders-id", 1)


@pytest.fixture
def group() -> Group:
    return group_with(10, 10)


@pytest.fixture
def anna(group: Group) -> Member:
    """Holds 0..9 of partition 0."""
    (anna,) = joined(group, "anna")
    anna.fetch([ORDERS_0])
    return anna


def applied_again(group: Group, value: bytes) -> list[dict[tuple[str, int], int]]:
    """Append a request once more; returns the acknowledgement errors of each response."""
    offset = group.append(value)
    responses = group.settle().responses
    assert offset < len(group.log)
    return [
        {
            (topic["topic_id"], partition.get("partition_index", 0)): partition.get("acknowledge_error_code", 0)
            for topic in response.body.get("responses", [])
            for partition in topic["partitions"]
            if partition.get("is_acknowledged")
        }
        for response in responses
    ]


OUTSIDE_REPORTS = {ApiKey.DLQ_WRITTEN, ApiKey.DLQ_STATUS_CHANGED, ApiKey.MEMBER_ENDED}


class TestAfterATakeover:
    @pytest.mark.parametrize("acknowledge_type", [RELEASE, UNREAD])
    @pytest.mark.parametrize("is_reopened", [False, True])
    def test_a_release_that_is_applied_again_frees_no_new_lock(
        self, group: Group, anna: Member, acknowledge_type: AcknowledgeType, is_reopened: bool
    ) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, acknowledge_type)]})
        released = group.log[-1].value
        assert anna.fetch([]).record_count == 10
        group.restart()
        group.settle()
        if is_reopened:
            anna.fetch([], epoch=0, max_records=0)
        before = leader_state(group)
        rows = len(group.rows)
        assert applied_again(group, released) == [{ORDERS_0: 0}]
        assert (leader_state(group), len(group.rows)) == (before, rows)

    def test_a_release_by_a_fetch_gets_a_response_and_acquires_nothing(self, group: Group, anna: Member) -> None:
        anna.fetch([], {ORDERS_0: [(0, 9, RELEASE)]}, max_records=3)
        fetched = group.log[-1].value
        group.restart()
        group.settle()
        before = leader_state(group)
        assert applied_again(group, fetched) == [{ORDERS_0: 0}]
        assert leader_state(group) == before

    def test_a_close_that_is_applied_again_releases_nothing_that_was_acquired_since(
        self, group: Group, anna: Member
    ) -> None:
        anna.close({ORDERS_0: [(0, 4, ACCEPT)]})
        closed = group.log[-1].value
        assert anna.fetch([ORDERS_0], epoch=0).record_count == 5
        group.restart()
        group.settle()
        before = leader_state(group)
        assert applied_again(group, closed) == [{ORDERS_0: 0}]
        assert leader_state(group) == before

    def test_each_row_of_a_cut_names_the_last_request_of_the_cut(self, group: Group, anna: Member) -> None:
        anna.fetch([ORDERS_1])
        anna.send_acknowledge({ORDERS_1: [(0, 9, RELEASE)]})
        anna.send_acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        last = group.log[-1].value
        group.settle()
        # In whichever order the two rows are folded, the later request is the last one.
        named = [row.payload["last_requests"] for row in group.rows[-2:]]
        assert named[0] == named[1]
        group.restart()
        group.settle()
        anna.session_epoch = 0
        assert anna.fetch([ORDERS_0, ORDERS_1]).record_count == 20
        before = leader_state(group)
        assert applied_again(group, last) == [{ORDERS_0: 0}]
        assert leader_state(group) == before

    def test_a_repeat_of_a_removed_member_does_not_touch_the_locks_that_it_still_has(self, group: Group) -> None:
        group.alter_config(share_record_lock_duration_ms="60000")
        (anna,) = joined(group, "anna")
        anna.fetch([ORDERS_0])
        anna.acknowledge({ORDERS_0: [(0, 1, RELEASE)]})
        released = group.log[-1].value
        anna.acknowledge({ORDERS_0: [(2, 2, ACCEPT)]})
        assert anna.fetch([]).record_count == 2
        group.advance(50_000)
        assert group.coordinator.group.state.members == {}
        group.restart()
        group.settle()
        before = leader_state(group)
        group.append(released)
        (response,) = group.settle().responses
        assert response.body["error_code"] == ShareSessionNotFoundError.code
        assert leader_state(group) == before

    def test_another_request_of_the_same_epoch_is_applied(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, RELEASE)]})
        group.restart()
        group.settle()
        assert anna.acknowledge({ORDERS_0: [(5, 9, ACCEPT)]}, epoch=1).acknowledge_errors == {ORDERS_0: 0}
        (run,) = group.leader.partitions[ORDERS_0].share_partition.runs.overlapping(7, 7)
        assert run.state is RecordState.ACKNOWLEDGED

    def test_a_request_without_effect_is_not_kept(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
        kept = dict(group.leader.last_requests)
        anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
        anna.close()
        closed = group.log[-1].value
        assert dict(group.leader.last_requests) == kept
        group.append(closed)
        (response,) = group.settle().responses
        assert response.body["error_code"] == ShareSessionNotFoundError.code

    def test_the_members_with_the_oldest_requests_make_room(self) -> None:
        kept = LastRequests({}, limit=2)
        body = DeleteShareGroupState(state_epoch=0, topic_ids=[])
        for member_id in ("anna", "ben", "anna", "cleo"):
            kept.note(request(ApiKey.SHARE_FETCH, "group-1", body, member_id=member_id), 1, {})
        assert list(kept) == ["anna", "cleo"]


class TestOlderProcessors:
    @pytest.mark.parametrize("api_key", [ApiKey.DLQ_WRITTEN, ApiKey.DLQ_STATUS_CHANGED])
    def test_what_happened_outside_counts_whichever_member_reports_it(self, group: Group, api_key: ApiKey) -> None:
        envelope = request(api_key, group.group_id, DeleteShareGroupState(state_epoch=0, topic_ids=[]), leader_epoch=0)
        assert not is_outdated(group.context, envelope)

    @pytest.mark.parametrize("api_key", sorted(INTERNAL_KEYS - OUTSIDE_REPORTS))
    def test_an_internal_message_of_an_older_processor_is_outdated(self, group: Group, api_key: ApiKey) -> None:
        body = DeleteShareGroupState(state_epoch=0, topic_ids=[])
        for leader_epoch, expected in ((-1, True), (0, True), (1, False), (2, False)):
            envelope = request(api_key, group.group_id, body, leader_epoch=leader_epoch)
            assert is_outdated(group.context, envelope) is expected

    def test_a_request_of_a_member_is_never_outdated(self, group: Group, anna: Member) -> None:
        for api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.RESUME_SHARE_GROUP):
            assert not is_outdated(
                group.context, request(api_key, group.group_id, DeleteShareGroupState(state_epoch=0, topic_ids=[]))
            )

    def test_late_messages_of_a_fenced_processor_change_nothing(self, group: Group, anna: Member) -> None:
        group.restart()
        group.settle()
        before = leader_state(group)
        deletion = DeleteShareGroupState(state_epoch=2**31 - 1, topic_ids=["orders-id"])
        changed = ShareGroupConfigChanged(overrides={"share.delivery.count.limit": "2"})
        group.append(request(ApiKey.DELETE_SHARE_GROUP_STATE, group.group_id, deletion, leader_epoch=1))
        group.append(request(ApiKey.SHARE_GROUP_CONFIG_CHANGED, group.group_id, changed, leader_epoch=1))
        group.settle()
        assert leader_state(group) == before
        assert group.leader.limits.delivery_count_limit == 5

    def test_the_leader_stamps_its_own_messages(self, group: Group, anna: Member) -> None:
        group.tell(ApiKey.DELETE_SHARE_GROUP_STATE, DeleteShareGroupState(state_epoch=99, topic_ids=["orders-id"]))
        effects = group.effects_of([len(group.log) - 1], group.now_ms)
        sent = [effect.request for effect in effects if isinstance(effect, Send)]
        assert [envelope.leader_epoch for envelope in sent if envelope.api_key == ApiKey.SHARE_GROUP_STATE_DELETED] == [
            1
        ]
