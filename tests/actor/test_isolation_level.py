"""`share.isolation.level`: the records, offsets and wake-ups of a read_committed group."""

from __future__ import annotations

import pytest

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType
from tests.actor.group_harness import Group, LogPartition, Member, group_with, joined

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
ORDERS_0 = ("orders-id", 0)


def group_of(partition: LogPartition, isolation_level: IsolationLevel, reset: str = "earliest") -> Group:
    group = group_with(partition)
    assert group.alter_config(share_isolation_level=isolation_level.value, share_auto_offset_reset=reset) == 0
    return group


def start_offset(group: Group) -> int:
    return group.leader.partitions[ORDERS_0].share_partition.start_offset


@pytest.mark.parametrize("isolation_level", IsolationLevel)
def test_a_response_says_how_its_records_are_to_be_read(isolation_level: IsolationLevel) -> None:
    (anna,) = joined(group_of(LogPartition(end=10), isolation_level), "anna")
    response = anna.fetch().response
    assert response is not None
    assert response.isolation_level is isolation_level


def test_a_parked_fetch_is_woken_by_the_last_stable_offset_and_by_nothing_else() -> None:
    group = group_of(LogPartition(end=10, stable=4), COMMITTED)
    (anna,) = joined(group, "anna")
    assert anna.fetch().acquired == {ORDERS_0: [(0, 3, 1)]}
    sent = anna.send_fetch(max_wait_ms=10_000)
    assert anna.fetched(sent).is_parked
    messages = len(group.log)
    group.set_offsets("orders", 0, LogPartition(end=20, stable=4))
    assert anna.fetched(sent).is_parked
    assert len(group.log) == messages, "nobody can use records that are not committed"
    # The marker was seen with the end of the log, and only now counts.
    group.set_offsets("orders", 0, LogPartition(end=20, stable=20))
    assert anna.fetched(sent).acquired == {ORDERS_0: [(4, 19, 1)]}


def test_what_was_delivered_uncommitted_is_not_delivered_again_before_it_is_committed() -> None:
    group = group_of(LogPartition(end=10, stable=4), UNCOMMITTED)
    (anna,) = joined(group, "anna")
    assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 1)]}
    assert group.alter_config(share_isolation_level="read_committed") == 0
    anna.acknowledge({ORDERS_0: [(0, 9, AcknowledgeType.RELEASE)]})
    assert anna.fetch().acquired == {ORDERS_0: [(0, 3, 2)]}
    sent = anna.send_fetch(max_wait_ms=10_000)
    assert anna.fetched(sent).is_parked
    group.set_offsets("orders", 0, LogPartition(end=10, stable=7))
    assert anna.fetched(sent).acquired == {ORDERS_0: [(4, 6, 2)]}


@pytest.mark.parametrize(
    ("isolation_level", "reset", "start"),
    [
        (UNCOMMITTED, "latest", 10),
        (COMMITTED, "latest", 4),
        (COMMITTED, "earliest", 1),
        (UNCOMMITTED, "by_duration:PT1H", 7),
        (COMMITTED, "by_duration:PT1H", 4),
    ],
)
def test_a_share_partition_does_not_start_past_what_may_be_acquired(
    isolation_level: IsolationLevel, reset: str, start: int
) -> None:
    group = group_of(LogPartition(start=1, end=10, stable=4, young=7), isolation_level, reset)
    joined(group, "anna")
    assert start_offset(group) == start


def test_aborted_records_and_a_marker_at_the_end_of_the_log_do_not_hold_the_start_offset() -> None:
    group = group_of(LogPartition(end=6), COMMITTED)
    anna: Member = joined(group, "anna")[0]
    assert anna.fetch().acquired == {ORDERS_0: [(0, 5, 1)]}
    gaps = (3, 5, AcknowledgeType.GAP)
    anna.acknowledge({ORDERS_0: [(0, 2, AcknowledgeType.ACCEPT), gaps]})
    assert start_offset(group) == 6
