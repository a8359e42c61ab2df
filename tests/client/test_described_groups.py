"""Descriptions of groups: from durable state, ends of logs and a time."""

from __future__ import annotations

import pytest

from sharegroup.client.described_groups import (
    ConfigDescription,
    LockDescription,
    PartitionDescription,
    TopicAssignment,
    described,
)
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.open_writes import OpenWrite, WriteOpened
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.logs.port import PartitionOffsets
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_description import GroupStateName
from sharegroup.protocol.group_records import (
    ShareGroupConfig,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignment,
    ShareGroupTopicRemoved,
)
from sharegroup.protocol.row_payloads import GroupStatus, GroupStatusPayload
from sharegroup.state.described_writes import SinkDescription
from sharegroup.state.fold import FoldedGroup, FoldedPartition

NOW_MS = 1_000_000
OFFSETS = {("id-1", 0): PartitionOffsets(0, 100, 100), ("id-1", 1): PartitionOffsets(0, 7, 7)}


@pytest.fixture
def group() -> FoldedGroup:
    """Partition 0 has finished, locked and available records above its start offset; partition 1 has no state yet."""
    group = FoldedGroup("packers", leader_epoch=3)
    for record in (
        ShareGroupMetadata(epoch=3),
        ShareGroupStatePartitionMetadata(topic="orders", topic_id="id-1", initializing=[1], initialized=[0]),
        ShareGroupMemberMetadata(
            member_id="m-1", client_id="anna", client_host="desk-1", subscribed_topic_names=["orders"]
        ),
        ShareGroupCurrentMemberAssignment(
            member_id="m-1", member_epoch=2, previous_member_epoch=1, partitions={"id-1": [0, 1], "id-2": []}
        ),
        ShareGroupTargetAssignment(assignment_epoch=2),
        ShareGroupConfig(overrides={"share.delivery.count.limit": "3"}),
    ):
        group.metadata.apply(record)
    runs = [
        Run(10, 19, RecordState.ACQUIRED, 1, "m-1", NOW_MS + 5_000),
        Run(20, 24, RecordState.ACKNOWLEDGED, 1),
        Run(25, 26, RecordState.ACQUIRED, 2, "gone", NOW_MS - 1),
        Run(27, 27, RecordState.AVAILABLE, 1, "", NOW_MS),
        Run(28, 29, RecordState.AVAILABLE, 1, "", NOW_MS + 1),
        Run(30, 30, RecordState.ARCHIVED, 3),
    ]
    engine = SharePartition(10, runs, state_epoch=4)
    group.partitions["id-1", 0] = FoldedPartition("id-1", "orders", 0, engine, SnapshotEpochs(0), 9, 0)
    return group


def test_share_partitions(group: FoldedGroup) -> None:
    description = described(group, OFFSETS, BrokerConfig(), NOW_MS)
    assert description.partitions == (
        PartitionDescription(
            topic="orders",
            topic_id="id-1",
            partition=0,
            start_offset=10,
            end_offset=100,
            lag=84,
            in_flight_count=21,
            locked_count=12,
            delayed_count=2,
            resolving_count=0,
            delivery_complete_count=6,
            state_epoch=4,
            leader_epoch=3,
        ),
        PartitionDescription("orders", "id-1", 1, None, 7, None, None, 0, 0, 0, None, None, None),
    )
    assert (description.lag, description.in_flight_count, description.locked_count) == (84, 21, 12)


def test_open_writes_by_sink(group: FoldedGroup) -> None:
    def opened(version: int, first: int, last: int, table: str, opened_ms: int) -> WriteOpened:
        return WriteOpened(OpenWrite(version, f"app-{version}", table, f"/{table}", 3, opened_ms), first, last)

    runs = [
        Run(10, 12, RecordState.RESOLVING, 1, "m-1", 0, write_version=7, intended=Cause.LOCK_TIMEOUT),
        Run(13, 14, RecordState.ACQUIRED, 1, "m-1", NOW_MS + 5, write_version=7),
        Run(15, 15, RecordState.ACQUIRED, 1, "m-1", NOW_MS + 5, write_version=8),
    ]
    writes = [
        opened(7, 10, 14, "totals", NOW_MS - 90_001),
        opened(8, 15, 15, "totals", NOW_MS - 100_000),
        opened(9, 16, 16, "others", NOW_MS - 90_000),
    ]
    engine = SharePartition(10, runs, 4, writes)
    group.partitions["id-1", 0] = FoldedPartition("id-1", "orders", 0, engine, SnapshotEpochs(0), 9, 0)
    description = described(group, OFFSETS, BrokerConfig(), NOW_MS)
    counts = [
        (each.version, each.locked_count, each.resolving_count, each.is_in_doubt) for each in description.open_writes
    ]
    assert counts == [
        (7, 2, 3, True),
        (8, 1, 0, False),
        # No record has it any more, and it is still to be closed.
        (9, 0, 0, True),
    ]
    assert description.sinks == (
        SinkDescription("/others", "others", 1, 1, 0, 90_000),
        SinkDescription("/totals", "totals", 2, 1, 3, 90_001),
    )
    # The locks of the group last 30 s.
    assert [sink.address for sink in description.late_sinks] == ["/totals"]
    assert (description.resolving_count, description.partitions[0].resolving_count) == (3, 3)


def test_members_and_their_locks(group: FoldedGroup) -> None:
    description = described(group, OFFSETS, BrokerConfig(), NOW_MS)
    (member,) = description.members
    assert (member.member_id, member.client_id, member.member_epoch, member.locked_count) == ("m-1", "anna", 2, 10)
    assert member.client_host == "desk-1"
    assert member.assignment == (TopicAssignment("orders", (0, 1)),)
    assert (description.state, description.group_epoch, description.assignment_epoch) == (GroupStateName.STABLE, 3, 2)
    assert description.locks == (
        LockDescription("orders", 0, 25, 26, "gone", "", 2, NOW_MS - 1, -1),
        LockDescription("orders", 0, 10, 19, "m-1", "anna", 1, NOW_MS + 5_000, 5_000),
    )


def test_a_topic_whose_log_is_gone_or_new_has_no_lag(group: FoldedGroup) -> None:
    description = described(
        group, {("another-id", 0): PartitionOffsets(0, 100, 100)}, BrokerConfig(), NOW_MS
    ).partitions[0]
    assert (description.start_offset, description.end_offset, description.lag) == (10, None, None)


def test_a_start_offset_past_the_end_leaves_no_lag(group: FoldedGroup) -> None:
    offsets = {("id-1", 0): PartitionOffsets(0, 12, 12)}
    assert described(group, offsets, BrokerConfig(), NOW_MS).partitions[0].lag == 0


@pytest.mark.parametrize(("log_start", "lag"), [(10, 84), (15, 79), (22, 100 - 22 - 4), (40, 60), (100, 0)])
def test_records_that_were_deleted_are_no_lag(group: FoldedGroup, log_start: int, lag: int) -> None:
    offsets = {("id-1", 0): PartitionOffsets(log_start, 100, 100)}
    assert described(group, offsets, BrokerConfig(), NOW_MS).partitions[0].lag == lag


def test_a_topic_that_the_group_has_left_is_not_shown(group: FoldedGroup) -> None:
    group.metadata.apply(ShareGroupTopicRemoved(topic_id="id-1"))
    description = described(group, OFFSETS, BrokerConfig(), NOW_MS)
    assert (description.partitions, description.locks, description.lag) == ((), (), None)


def test_configuration_of_the_group_and_of_the_broker(group: FoldedGroup) -> None:
    broker = BrokerConfig(group_share_record_lock_duration_ms=20_000)
    config = {entry.key: entry for entry in described(group, OFFSETS, broker, NOW_MS).config}
    assert config["share.delivery.count.limit"] == ConfigDescription("share.delivery.count.limit", "3", "3")
    lock = "share.record.lock.duration.ms"
    assert config[lock] == ConfigDescription(lock, "20000", None)


def test_an_actor_that_failed_quarantines_the_group(group: FoldedGroup) -> None:
    group.status[ActorRole.LEADER] = GroupStatusPayload(role=ActorRole.LEADER, status=GroupStatus.FAILED, reason="why")
    group.status[ActorRole.COORDINATOR] = GroupStatusPayload(role=ActorRole.COORDINATOR, status=GroupStatus.ACTIVE)
    description = described(group, OFFSETS, BrokerConfig(), NOW_MS)
    assert description.state is GroupStateName.QUARANTINED
    assert [(failed.role, failed.reason) for failed in description.quarantine] == [("leader", "why")]


def test_a_group_that_was_only_configured_is_empty() -> None:
    group = FoldedGroup("new")
    group.metadata.apply(ShareGroupConfig(overrides={"share.delivery.count.limit": "3"}))
    description = described(group, {}, BrokerConfig(), NOW_MS)
    assert (description.state, description.members, description.partitions, description.lag) == (
        GroupStateName.EMPTY,
        (),
        (),
        None,
    )
