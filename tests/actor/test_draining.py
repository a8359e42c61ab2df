"""A group that drains gets only what is in flight already, and runs empty."""

from __future__ import annotations

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from tests.actor.group_harness import Group, Member, group_with, joined

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
ORDERS_0 = ("orders-id", 0)


@pytest.fixture
def group() -> Group:
    return group_with(20)


@pytest.fixture
def anna(group: Group) -> Member:
    """Has accepted 5..9, and holds 0..4."""
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    anna.acknowledge({ORDERS_0: [(5, 9, ACCEPT)]})
    return anna


def test_records_in_flight_are_delivered_and_new_ones_are_not(group: Group, anna: Member) -> None:
    group.alter_config(share_drain_enable="true")
    anna.acknowledge({ORDERS_0: [(0, 4, RELEASE)]})
    assert anna.fetch(max_records=10).acquired.get(ORDERS_0, []) == [(0, 4, 2)]
    anna.acknowledge({ORDERS_0: [(0, 4, ACCEPT)]})
    engine = group.leader.partitions[ORDERS_0].share_partition
    assert (engine.start_offset, engine.next_offset) == (10, 10)
    group.grow("orders", 0, 5)
    group.settle()
    waiting = anna.send_fetch(max_records=10, max_wait_ms=10_000)
    group.settle()
    assert anna.fetched(waiting).is_parked
    assert verify(group.rows, BrokerConfig()).findings == []


def test_it_goes_on_when_it_drains_no_more(group: Group, anna: Member) -> None:
    group.alter_config(share_drain_enable="true")
    waiting = anna.send_fetch(max_records=10, max_wait_ms=10_000)
    group.settle()
    group.alter_config(share_drain_enable="false")
    assert anna.fetched(waiting).acquired.get(ORDERS_0, []) == [(10, 19, 1)]
