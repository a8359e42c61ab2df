"""Draining a group before it moves: its members finish what is in flight, and then it is paused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.handover import DRAIN_KEY, PAUSE_REASON, PartitionHandover, drain, handover, pause
from sharegroup.client.processor_groups import ProcessorGroups
from sharegroup.client.settings import ChannelTopics
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.open_writes import OpenWrite, WriteOpened
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import GroupNotDrainedError
from sharegroup.logs.local import LocalLog
from sharegroup.state.fold import FoldedGroup, FoldedPartition
from tests.client.consumers import Consume
from tests.client.processor_peer import BROKER, ProcessorPeer
from tests.support.eventually import DEADLINE_S

ACCEPT = AcknowledgeType.ACCEPT


@pytest.fixture
def read(log: LocalLog, processor: ProcessorPeer) -> Callable[[], FoldedGroup]:
    groups = ProcessorGroups(log, BROKER, "test", ChannelTopics(), 20)
    return lambda: groups.folded("g")


@pytest.fixture
def member(consume: Consume) -> ShareConsumer:
    """Has accepted 1..4 and released 5; holds 0, 6..9 and perhaps later ones."""
    member = consume("cl-1", mode="explicit", share_acquire_mode="record_limit")
    assert [message.offset() for message in member.poll(DEADLINE_S)] == list(range(10))
    for offset in range(1, 5):
        member.acknowledge_offset("cl-1", 0, offset, ACCEPT)
    member.acknowledge_offset("cl-1", 0, 5, AcknowledgeType.RELEASE)
    member.commit_sync(DEADLINE_S)
    return member


def test_the_cost_of_a_move_is_known() -> None:
    runs = [
        Run(10, 11, RecordState.AVAILABLE, 2),
        Run(12, 14, RecordState.ACKNOWLEDGED, 1),
        Run(15, 15, RecordState.ACQUIRED, 3, "anna", 9_000),
        Run(16, 16, RecordState.ARCHIVING, 5),
        Run(17, 19, RecordState.ARCHIVED, 5),
        Run(20, 29, RecordState.AVAILABLE, 0),
        Run(30, 30, RecordState.AVAILABLE, 2),
    ]
    folded = FoldedPartition("id", "orders", 1, SharePartition(10, runs), SnapshotEpochs(0), 0, 0)
    group = FoldedGroup("packers", partitions={("id", 1): folded})
    (moved,) = handover(group)
    assert moved == PartitionHandover("orders", 1, 10, 6, 1, 1, {2: 3, 3: 1})
    assert not moved.is_drained


def test_a_group_with_an_open_write_does_not_move(
    log: LocalLog, member: ShareConsumer, read: Callable[[], FoldedGroup]
) -> None:
    """Kafka would deliver records whose results may be in the sink."""
    opened = WriteOpened(OpenWrite(7, "app", "totals", "/totals", 3, 0), 10, 11)
    run = Run(10, 11, RecordState.RESOLVING, 2, "anna", 0, write_version=7, intended=Cause.LOCK_TIMEOUT)
    folded = FoldedPartition("id", "orders", 1, SharePartition(10, [run], 0, [opened]), SnapshotEpochs(0), 0, 0)
    group = FoldedGroup("g", partitions={("id", 1): folded})
    (moved,) = handover(group)
    assert moved == PartitionHandover("orders", 1, 10, lost_delivery_counts={2: 2}, open_write_count=1)
    assert not moved.is_drained
    with pytest.raises(GroupNotDrainedError, match=r"1 open writes.*sharegroup groups resolve --group g"):
        pause(AdminClient(log), "g", lambda: group)


def test_members_finish_what_is_in_flight_and_get_nothing_new(
    log: LocalLog, member: ShareConsumer, read: Callable[[], FoldedGroup]
) -> None:
    """A check of the state lets the member work for one poll."""
    accepted = {1, 2, 3, 4}
    held = {0, 6, 7, 8, 9}

    def work(moved: list[PartitionHandover]) -> None:
        if not held:
            held.update(offset for message in member.poll(0.2) if (offset := message.offset()) is not None)
        for offset in held:
            member.acknowledge_offset("cl-1", 0, offset, ACCEPT)
        member.commit_sync(DEADLINE_S)
        accepted.update(held)
        held.clear()

    (moved,) = drain(AdminClient(log), "g", read, DEADLINE_S, work)
    assert moved == PartitionHandover("cl-1", 0, len(accepted))
    assert accepted == set(range(moved.start_offset))
    assert len(accepted) < 120
    pause = read().metadata.pause
    assert pause is not None
    assert pause.reason == PAUSE_REASON


def test_what_cannot_drain_is_named(log: LocalLog, member: ShareConsumer, read: Callable[[], FoldedGroup]) -> None:
    admin = AdminClient(log)
    with pytest.raises(GroupNotDrainedError, match=r"after 0 s: .* 1 share-partitions 4 records are finished"):
        drain(admin, "g", read, 0)
    assert read().metadata.config_overrides[DRAIN_KEY] == "true"
    admin.pause_group("g", "the sink is down")
    with pytest.raises(GroupNotDrainedError, match=r"since it is paused: .* Resume it first"):
        drain(admin, "g", read, 60)
    admin.resume_group("g")
    member.close()
    with pytest.raises(GroupNotDrainedError, match=r"since it has no members: .* Start members"):
        drain(admin, "g", read, 60)
