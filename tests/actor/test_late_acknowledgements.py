"""Acknowledgements of records that their member does not hold any more: distinguished by the fate of the record."""

from __future__ import annotations

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.errors import InvalidRecordStateError
from tests.actor.group_harness import Group, LogPartition, Member, group_with, joined, leader_state

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
ORDERS_0 = ("orders-id", 0)
LOCK_MS = 30_000
REFUSED = {ORDERS_0: InvalidRecordStateError.code}
WITHOUT_EFFECT = {ORDERS_0: 0}


@pytest.fixture
def group() -> Group:
    group = group_with(10)
    assert group.alter_config(share_delivery_count_limit="2") == 0
    return group


@pytest.fixture
def anna(group: Group) -> Member:
    """Holds 0..9; record 0 keeps the start offset where it is, as long as nobody has done with it."""
    (anna,) = joined(group, "anna")
    anna.fetch()
    return anna


def state_of(group: Group, offset: int) -> tuple[RecordState, int, str]:
    """State, delivery count and holder of a record."""
    (run,) = group.leader.partitions[ORDERS_0].share_partition.runs.overlapping(offset, offset)
    return run.state, run.delivery_count, run.member_id


def check_unchanged(group: Group, member: Member, expected: dict[tuple[str, int], int]) -> None:
    """Every type of acknowledgement of record 5 gets this result, and changes nothing."""
    before = leader_state(group)[0]
    for kind in AcknowledgeType:
        assert member.acknowledge({ORDERS_0: [(5, 5, kind)]}).acknowledge_errors == expected, kind
    assert leader_state(group)[0] == before
    assert verify(group.rows, BrokerConfig()).findings == []


@pytest.mark.parametrize(
    ("first", "becomes"),
    [
        (ACCEPT, (RecordState.ACKNOWLEDGED, 1, "")),
        (REJECT, (RecordState.ARCHIVED, 1, "")),
        (RELEASE, (RecordState.AVAILABLE, 1, "")),
        (AcknowledgeType.GAP, (RecordState.ARCHIVED, 1, "")),
        (AcknowledgeType.UNREAD, (RecordState.AVAILABLE, 0, "")),
    ],
)
def test_a_second_word_on_a_record_is_refused(
    group: Group, anna: Member, first: AcknowledgeType, becomes: tuple[RecordState, int, str]
) -> None:
    assert anna.acknowledge({ORDERS_0: [(5, 5, first)]}).acknowledge_errors == WITHOUT_EFFECT
    assert state_of(group, 5) == becomes
    check_unchanged(group, anna, REFUSED)


def test_a_record_whose_lock_has_ended_is_refused(group: Group, anna: Member) -> None:
    group.advance(LOCK_MS)
    assert state_of(group, 5) == (RecordState.AVAILABLE, 1, "")
    check_unchanged(group, anna, REFUSED)


def test_a_record_that_somebody_else_has_got_meanwhile_is_refused(group: Group, anna: Member) -> None:
    group.advance(LOCK_MS)
    (ben,) = joined(group, "ben")
    ben.fetch()
    assert state_of(group, 0)[2] == "ben"
    before = leader_state(group)[0]
    assert anna.acknowledge({ORDERS_0: [(0, 0, ACCEPT)]}).acknowledge_errors == REFUSED
    assert leader_state(group)[0] == before


@pytest.mark.parametrize(("dead_letter_topic", "state"), [("", RecordState.ARCHIVED), ("dlq", RecordState.ARCHIVING)])
def test_a_record_that_was_given_up_meanwhile_is_refused(
    group: Group, anna: Member, dead_letter_topic: str, state: RecordState
) -> None:
    group.alter_config(errors_deadletterqueue_topic_name=dead_letter_topic)
    # Record 0 is renewed, so that the start offset does not pass the others when they are archived.
    anna.acknowledge({ORDERS_0: [(1, 9, RELEASE)]})
    anna.fetch()
    group.advance(LOCK_MS - 1)
    anna.acknowledge({ORDERS_0: [(0, 0, AcknowledgeType.RENEW)]})
    group.advance(LOCK_MS - 1)
    assert state_of(group, 5) == (state, 2, "")
    check_unchanged(group, anna, REFUSED)


def test_below_the_start_offset_the_response_has_no_error(group: Group, anna: Member) -> None:
    anna.acknowledge({ORDERS_0: [(0, 5, ACCEPT)]})
    check_unchanged(group, anna, WITHOUT_EFFECT)


def test_for_a_record_that_the_log_start_has_passed_the_response_has_no_error(group: Group, anna: Member) -> None:
    group.set_offsets("orders", 0, LogPartition(start=6, end=10))
    group.tell_offsets("orders")
    group.settle()
    check_unchanged(group, anna, WITHOUT_EFFECT)
