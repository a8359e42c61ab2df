"""A group's rows, made by the real actors: every kind of transition happens at least once."""

from __future__ import annotations

import pytest

from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.rows import StateRow
from tests.actor.group_harness import LogPartition, group_with, joined

GAP, ACCEPT, RELEASE, REJECT, RENEW, UNREAD = AcknowledgeType
ORDERS_0 = ("orders-id", 0)
LOCK_MS = 30_000


@pytest.fixture
def rows() -> list[StateRow]:
    """Rows of one share-partition that two members worked on."""
    return worked_on(BrokerConfig())


@pytest.fixture
def rows_with_snapshots() -> list[StateRow]:
    """The same with a snapshot after every second update."""
    return worked_on(BrokerConfig(share_coordinator_snapshot_update_records_per_snapshot=1))


def worked_on(broker: BrokerConfig) -> list[StateRow]:
    """Two members acquire, acknowledge in all ways, run out of time and leave."""
    group = group_with(60, broker=broker)
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=10)
    ben.fetch(max_records=10)
    anna.acknowledge({ORDERS_0: [(0, 3, ACCEPT), (4, 4, REJECT), (5, 5, RELEASE), (6, 6, GAP), (7, 7, RENEW)]})
    ben.acknowledge({ORDERS_0: [(10, 17, ACCEPT), (18, 19, UNREAD)]})
    group.advance(LOCK_MS)
    anna.fetch(max_records=5)
    anna.close()
    ben.fetch(max_records=30)
    group.set_offsets("orders", 0, LogPartition(start=25, end=60))
    group.tell_offsets("orders")
    group.settle()
    ben.acknowledge({ORDERS_0: [(25, 27, ACCEPT)]})
    return list(group.rows)
