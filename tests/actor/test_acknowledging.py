"""Acknowledgements: applied at their append time, all or none for each share-partition, apart from each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError, UnknownTopicIdError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.rows import TransitionEntry
from sharegroup.protocol.share_fetch import AcknowledgementRange, FetchPartition, FetchTopic, ShareAcknowledgeRequest
from tests.actor.group_harness import Acknowledgement, Group, Member, group_with, joined

GAP, ACCEPT, RELEASE, REJECT, RENEW, UNREAD, *_ = AcknowledgeType
ORDERS_0 = ("orders-id", 0)
ORDERS_1 = ("orders-id", 1)
LOCK_MS = 30_000
INVALID_STATE = InvalidRecordStateError.code
INVALID_REQUEST = InvalidRequestError.code


@pytest.fixture
def group() -> Group:
    return group_with(20, 20)


@pytest.fixture
def anna(group: Group) -> Member:
    """Holds 0..9 of both partitions."""
    (anna,) = joined(group, "anna")
    for _ in range(2):
        anna.fetch(max_records=10)
    return anna


class TestTime:
    def test_one_that_was_appended_in_time_counts_however_late_its_batch_runs(self, group: Group, anna: Member) -> None:
        group.now_ms += LOCK_MS - 1
        sent = anna.send_acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
        group.now_ms += 10 * LOCK_MS
        group.run_batch()
        assert anna.response_to(sent).acknowledge_errors == {ORDERS_0: 0}

    def test_one_that_was_appended_at_the_deadline_is_too_late(self, group: Group, anna: Member) -> None:
        group.now_ms += LOCK_MS
        assert anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: INVALID_STATE}

    def test_both_in_one_batch(self, group: Group, anna: Member) -> None:
        group.now_ms += LOCK_MS - 1
        in_time = anna.send_acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})
        group.now_ms += 1
        late = anna.send_acknowledge({ORDERS_0: [(5, 9, ACCEPT)], ORDERS_1: [(0, 9, ACCEPT)]})
        group.settle()
        assert anna.response_to(in_time).acknowledge_errors == {ORDERS_0: 0}
        assert anna.response_to(late).acknowledge_errors == {ORDERS_0: INVALID_STATE, ORDERS_1: INVALID_STATE}

    def test_a_renewal_extends_the_lock_and_keeps_the_delivery_count(self, group: Group, anna: Member) -> None:
        group.now_ms += LOCK_MS - 1
        held = {ORDERS_0: [(0, 9, RENEW)], ORDERS_1: [(0, 9, ACCEPT)]}
        assert anna.acknowledge(held).acknowledge_errors == {ORDERS_0: 0, ORDERS_1: 0}
        group.now_ms += LOCK_MS - 1
        assert anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]}).acknowledge_errors == {ORDERS_0: 0}
        assert anna.fetch([ORDERS_0], max_records=10).acquired[ORDERS_0] == [(0, 9, 2)]

    def test_a_renewal_can_be_forbidden(self, group: Group, anna: Member) -> None:
        assert group.alter_config(share_renew_acknowledge_enable="false") == 0
        assert anna.acknowledge({ORDERS_0: [(0, 9, RENEW)]}).acknowledge_errors == {ORDERS_0: INVALID_STATE}


class TestErrors:
    @pytest.mark.parametrize(
        ("batches", "error_code"),
        [
            ([(0, 9, ACCEPT)], 0),
            ([(0, 4, ACCEPT), (5, 9, RELEASE)], 0),
            ([(0, 0, GAP), (3, 3, UNREAD), (9, 9, REJECT)], 0),
            ([(0, 0, GAP), (9, 9, REJECT), (3, 3, UNREAD)], INVALID_REQUEST),
            ([(0, 4, RENEW), (0, 4, ACCEPT)], INVALID_REQUEST),
            ([(0, 4, ACCEPT), (4, 4, ACCEPT)], INVALID_REQUEST),
            ([(0, 4, ACCEPT), (4, 9, ACCEPT)], INVALID_REQUEST),
            ([(0, 10, ACCEPT)], INVALID_REQUEST),
            ([(10, 12, ACCEPT)], INVALID_REQUEST),
            ([(4, 3, ACCEPT)], INVALID_REQUEST),
            ([(-1, 3, ACCEPT)], INVALID_REQUEST),
            ([(0, 3, ACCEPT), (9, 8, ACCEPT)], INVALID_REQUEST),
        ],
    )
    def test_a_share_partition_takes_all_or_nothing(
        self, group: Group, anna: Member, batches: Sequence[Acknowledgement], error_code: int
    ) -> None:
        before = list(group.leader.partitions["orders-id", 0].share_partition.runs)
        assert anna.acknowledge({ORDERS_0: batches}).acknowledge_errors == {ORDERS_0: error_code}
        if error_code:
            assert list(group.leader.partitions["orders-id", 0].share_partition.runs) == before

    def test_batches_that_overlap_below_the_start_offset_are_refused_too(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
        again = {ORDERS_0: [(0, 4, ACCEPT), (4, 9, ACCEPT)], ORDERS_1: [(0, 4, ACCEPT), (5, 9, ACCEPT)]}
        assert anna.acknowledge(again).acknowledge_errors == {ORDERS_0: INVALID_REQUEST, ORDERS_1: 0}

    def test_partitions_fail_apart(self, anna: Member) -> None:
        acknowledged = anna.acknowledge(
            {ORDERS_0: [(0, 99, ACCEPT)], ORDERS_1: [(0, 9, ACCEPT)], ("nowhere", 0): [(0, 0, ACCEPT)]}
        )
        assert acknowledged.acknowledge_errors == {
            ORDERS_0: INVALID_REQUEST,
            ORDERS_1: 0,
            ("nowhere", 0): UnknownTopicIdError.code,
        }

    def test_a_failed_acknowledgement_does_not_stop_the_fetch(self, anna: Member) -> None:
        fetched = anna.fetch(acknowledge={ORDERS_0: [(0, 99, ACCEPT)]}, max_records=3)
        assert fetched.acknowledge_errors == {ORDERS_0: INVALID_REQUEST}
        assert fetched.acquired == {ORDERS_0: [(10, 12, 1)]}

    def test_a_partition_has_an_error_of_the_fetch_and_one_of_the_acknowledgements(self, anna: Member) -> None:
        nowhere = ("nowhere", 0)
        fetched = anna.fetch([nowhere], acknowledge={nowhere: [(0, 0, ACCEPT)], ORDERS_0: [(0, 99, ACCEPT)]})
        errors = {key: (p.error_code, p.acknowledge_error_code) for key, p in fetched.partitions.items()}
        unknown = UnknownTopicIdError.code
        assert errors[nowhere] == (unknown, unknown)
        assert errors[ORDERS_0] == (0, INVALID_REQUEST)

    def test_what_another_member_holds_cannot_be_acknowledged(self, group: Group, anna: Member) -> None:
        ben = Member(group, "ben")
        ben.fetch([ORDERS_0], max_records=1)
        assert ben.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: INVALID_STATE}

    @pytest.mark.parametrize("again", list(AcknowledgeType))
    def test_what_lies_below_the_start_offset_takes_anything_from_anybody(
        self, group: Group, anna: Member, again: AcknowledgeType
    ) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
        ben = Member(group, "ben")
        ben.fetch([ORDERS_0], max_records=1)
        rows = len(group.rows)
        assert ben.acknowledge({ORDERS_0: [(0, 9, again)]}).acknowledge_errors == {ORDERS_0: 0}
        assert len(group.rows) == rows

    def test_an_unknown_type_is_refused_with_the_whole_request(self, group: Group, anna: Member) -> None:
        body = {
            "share_session_epoch": 2,
            "topics": [
                {
                    "topic_id": "orders-id",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "acknowledgement_batches": [
                                {"first_offset": 0, "last_offset": 9, "acknowledge_types": [5]}
                            ],
                        }
                    ],
                }
            ],
        }
        empty = ShareAcknowledgeRequest(share_session_epoch=2)
        envelope = anna.envelope(ApiKey.SHARE_ACKNOWLEDGE, empty, 77).model_copy(update={"body": body})
        group.append(envelope)
        (refused,) = group.settle().responses
        assert refused.body["error_code"] == INVALID_REQUEST
        assert "5" in refused.body["error_message"]
        assert anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}


def acknowledge_request(anna: Member, partitions: Sequence[FetchPartition]) -> None:
    body = ShareAcknowledgeRequest(
        share_session_epoch=2,
        topics=[FetchTopic(topic_id="orders-id", partitions=[partition]) for partition in partitions],
    )
    anna.send(ApiKey.SHARE_ACKNOWLEDGE, body)


def batch(first: int, last: int, *types: AcknowledgeType, reason: str = "") -> AcknowledgementRange:
    return AcknowledgementRange(first_offset=first, last_offset=last, acknowledge_types=list(types), reason=reason)


class TestRequestShapes:
    def test_one_type_for_each_offset(self, group: Group, anna: Member) -> None:
        partition = FetchPartition(
            partition_index=0, acknowledgement_batches=[batch(0, 3, ACCEPT, RELEASE, RELEASE, REJECT)]
        )
        acknowledge_request(anna, [partition])
        group.settle()
        causes = [(entry.first_offset, entry.last_offset, entry.cause) for entry in group.rows[-1].transitions]
        assert causes == [(0, 0, Cause.ACCEPT), (1, 2, Cause.RELEASE), (3, 3, Cause.REJECT)]

    @pytest.mark.parametrize("good_first", [True, False])
    def test_a_partition_that_is_named_twice_still_takes_all_or_nothing(
        self, group: Group, anna: Member, good_first: bool
    ) -> None:
        good = FetchPartition(partition_index=0, acknowledgement_batches=[batch(0, 4, ACCEPT)])
        bad = FetchPartition(partition_index=0, acknowledgement_batches=[batch(5, 99, ACCEPT)])
        acknowledge_request(anna, [good, bad] if good_first else [bad, good])
        (response,) = group.settle().responses
        (partition,) = response.body["responses"][0]["partitions"]
        assert partition["acknowledge_error_code"] == INVALID_REQUEST
        assert group.leader.partitions["orders-id", 0].share_partition.start_offset == 0


def entries(group: Group) -> list[TransitionEntry]:
    return group.rows[-1].transitions


class TestDelays:
    @pytest.mark.parametrize(("kind", "delivery_count"), [(RELEASE, 2), (UNREAD, 1)])
    def test_a_fetch_waits_for_what_was_returned_with_a_delay_and_is_woken_then(
        self, group: Group, anna: Member, kind: AcknowledgeType, delivery_count: int
    ) -> None:
        returned = batch(4, 5, kind).model_copy(update={"redelivery_delay_ms": 5_000})
        acknowledge_request(anna, [FetchPartition(partition_index=0, acknowledgement_batches=[returned])])
        group.settle()
        anna.session_epoch = 3
        anna.fetch([], max_records=100)
        waiting = anna.send_fetch([], max_wait_ms=20_000)
        group.settle()
        group.advance(4_000)
        assert anna.fetched(waiting).is_parked
        group.advance(2_000)
        assert anna.fetched(waiting).acquired == {ORDERS_0: [(4, 5, delivery_count)]}

    def test_the_groups_back_off(self, group: Group, anna: Member) -> None:
        group.alter_config(**{"share.redelivery.backoff.ms": "3000"})
        anna.acknowledge({ORDERS_0: [(0, 1, RELEASE)]})
        group.settle()
        (entry,) = entries(group)
        assert (entry.to_state, entry.deadline_ms - entry.time_ms) == (RecordState.AVAILABLE, 3_000)


class TestReasons:
    def test_every_transition_of_a_range_carries_the_members_words(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(3, 3, ACCEPT)]})
        partition = FetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                batch(0, 0, ACCEPT),
                batch(1, 2, GAP, reason="compacted"),
                batch(4, 6, GAP, reason="transaction marker"),
                batch(7, 9, ACCEPT),
            ],
        )
        body = ShareAcknowledgeRequest(
            share_session_epoch=3, topics=[FetchTopic(topic_id="orders-id", partitions=[partition])]
        )
        anna.send(ApiKey.SHARE_ACKNOWLEDGE, body)
        group.settle()
        assert [(entry.first_offset, entry.last_offset, entry.reason) for entry in entries(group)] == [
            (0, 0, ""),
            (1, 2, "compacted"),
            (4, 6, "transaction marker"),
            (7, 9, ""),
        ]

    def test_a_range_that_spans_two_deliveries(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, RELEASE)]})
        anna.fetch([], max_records=5)
        partition = FetchPartition(partition_index=0, acknowledgement_batches=[batch(0, 9, GAP, reason="compacted")])
        body = ShareAcknowledgeRequest(
            share_session_epoch=4, topics=[FetchTopic(topic_id="orders-id", partitions=[partition])]
        )
        anna.send(ApiKey.SHARE_ACKNOWLEDGE, body)
        group.settle()
        assert [(entry.first_offset, entry.reason) for entry in entries(group)] == [(0, "compacted"), (5, "compacted")]

    def test_a_range_that_begins_below_the_start_offset(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})
        partition = FetchPartition(partition_index=0, acknowledgement_batches=[batch(2, 9, GAP, reason="compacted")])
        body = ShareAcknowledgeRequest(
            share_session_epoch=3, topics=[FetchTopic(topic_id="orders-id", partitions=[partition])]
        )
        anna.send(ApiKey.SHARE_ACKNOWLEDGE, body)
        group.settle()
        assert [(entry.first_offset, entry.reason) for entry in entries(group)] == [(5, "compacted")]


def test_unread_takes_the_delivery_back(anna: Member) -> None:
    assert anna.acknowledge({ORDERS_0: [(5, 9, UNREAD)]}).acknowledge_errors == {ORDERS_0: 0}
    assert anna.fetch([ORDERS_0], max_records=5).acquired[ORDERS_0] == [(5, 9, 1)]
