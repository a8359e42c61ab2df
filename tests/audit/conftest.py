"""A group's rows, made by the real actors: every kind of transition happens at least once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from sharegroup.config.broker import BrokerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.rows import StateRow
from sharegroup.state.pruning import prune
from tests.actor.group_harness import Group, LogPartition, group_with, joined
from tests.audit.recorded_table import RecordedTable, recorded_table
from tests.audit.worked_site import worked_site
from tests.support.site import Site

GAP, ACCEPT, RELEASE, REJECT, RENEW, UNREAD, *_ = AcknowledgeType
ORDERS_0 = ("orders-id", 0)
LOCK_MS = 30_000

FIRST_KEPT = 3
"""The commit of the table snapshot with which the pruned table begins."""


@pytest.fixture
def rows() -> list[StateRow]:
    """Rows of one share-partition that two members worked on."""
    return worked_on(BrokerConfig())


@pytest.fixture
def rows_with_snapshots() -> list[StateRow]:
    """The same with a snapshot after every second update."""
    return worked_on(BrokerConfig(share_coordinator_snapshot_update_records_per_snapshot=1))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedTable:
    """The state table of that group, with the state of its leader after each cut; not to be changed."""
    return recorded_table(tmp_path_factory.mktemp("recorded") / "state", group_with(60), work)


@pytest.fixture(scope="session")
def configured(tmp_path_factory: pytest.TempPathFactory) -> RecordedTable:
    """The state table of a group whose members differ in speed, with records that fail; not to be changed."""
    return recorded_table(tmp_path_factory.mktemp("configured") / "state", group_with(40), work_unevenly)


@pytest.fixture(scope="session")
def with_snapshots(tmp_path_factory: pytest.TempPathFactory) -> RecordedTable:
    """The recorded group, whose table got a snapshot twice; not to be changed."""
    path = tmp_path_factory.mktemp("snapshots") / "state"
    return recorded_table(path, group_with(60), work, snapshot_after=(FIRST_KEPT, 5))


@pytest.fixture(scope="session")
def pruned_table(with_snapshots: RecordedTable, tmp_path_factory: pytest.TempPathFactory) -> RecordedTable:
    """That table without the commits up to the first snapshot; not to be changed."""
    path = shutil.copytree(with_snapshots.path, tmp_path_factory.mktemp("pruned") / "state")
    # Commits after it are 30 s younger.
    assert prune(str(path), with_snapshots.moments[-1].cut_ms).row_count_by_type
    return RecordedTable(str(path), with_snapshots.moments, with_snapshots.rows)


def worked_on(broker: BrokerConfig) -> list[StateRow]:
    """The rows of a group with these defaults."""
    group = group_with(60, broker=broker)
    work(group)
    return list(group.rows)


def work(group: Group) -> None:
    """Three members acquire, acknowledge in all ways, run out of time and leave."""
    anna, ben, cora = joined(group, "anna", "ben", "cora")
    anna.fetch(max_records=10)
    ben.fetch(max_records=10)
    anna.acknowledge({ORDERS_0: [(0, 3, ACCEPT), (4, 4, REJECT), (5, 5, RELEASE), (6, 6, GAP), (7, 7, RENEW)]})
    ben.acknowledge({ORDERS_0: [(10, 17, ACCEPT), (18, 19, UNREAD)]})
    group.advance(LOCK_MS)
    cora.fetch(max_records=5)
    anna.fetch(max_records=2)
    anna.close()
    ben.fetch(max_records=27, acquire_mode=AcquireMode.RECORD_LIMIT)
    group.set_offsets("orders", 0, LogPartition(start=25, end=60))
    group.tell_offsets("orders")
    group.settle()
    ben.acknowledge({ORDERS_0: [(25, 27, ACCEPT)]})


def work_unevenly(group: Group) -> None:
    """Two members take 1 and 5 s for ten records each; two records fail until the limit, and one is a gap."""
    anna, ben = joined(group, "anna", "ben")
    anna.fetch(max_records=10)
    ben.fetch(max_records=10)
    group.advance(1_000)
    ben.acknowledge({ORDERS_0: [(10, 19, ACCEPT)]})
    group.advance(4_000)
    anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
    assert group.alter_config(share_delivery_count_limit="2") == 0
    ben.fetch(max_records=2)
    ben.acknowledge({ORDERS_0: [(20, 21, RELEASE)]})
    group.advance(500)
    ben.fetch(max_records=2)
    ben.acknowledge({ORDERS_0: [(20, 21, RELEASE)]})
    ben.fetch(max_records=3)
    ben.acknowledge({ORDERS_0: [(22, 22, ACCEPT), (23, 23, GAP), (24, 24, ACCEPT)]})


@pytest.fixture(scope="package")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose members have worked; no processor runs, and nothing is to be changed."""
    site = worked_site(tmp_path_factory.mktemp("worked"))
    yield site
    site.close()
