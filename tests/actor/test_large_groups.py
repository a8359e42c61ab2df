"""A thousand members, or many share-partitions: bounds on batches, assignments and messages, not on time."""

from __future__ import annotations

from collections import Counter

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol import message_portions
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import DeleteGroupsRequest
from sharegroup.protocol.group_messages import JOIN_EPOCH
from sharegroup.protocol.message_portions import LOG_OFFSETS_BYTES, TOPIC_BYTES
from sharegroup.protocol.messages import decoded_request
from sharegroup.protocol.rows import RecordType
from tests.actor.group_harness import Batch, Group, LogPartition, Member, group_with, joined

pytestmark = pytest.mark.slow

MEMBER_COUNT = 1_000
ASSIGNMENT_INTERVAL_MS = 1_000
BROKER = BrokerConfig(group_share_max_size=MEMBER_COUNT, group_share_max_share_sessions=2_000)


def members_of(group: Group) -> list[Member]:
    return [Member(group, f"member-{index:04}") for index in range(MEMBER_COUNT)]


def assignment_count(group: Group) -> int:
    """Assignments that gave something to somebody."""
    records = [row.payload["records"] for row in group.rows_of(RecordType.GROUP_METADATA)]
    return sum(any(record.get("partitions") for record in batch) for batch in records)


def loads(members: list[Member]) -> Counter[int]:
    for member in members:
        member.take_assignments()
    return Counter(len(member.assigned) for member in members)


@pytest.mark.parametrize(
    ("partition_count", "expected_loads"),
    [(4, {1: 1_000}), (1_500, {1: 500, 2: 500})],
)
def test_members_that_come_at_once_have_their_partitions_after_four_batches(
    partition_count: int, expected_loads: dict[int, int]
) -> None:
    group = group_with(*[1] * partition_count, broker=BROKER)
    batches: list[Batch] = []
    group.after_batch.append(batches.append)
    members = members_of(group)
    for member in members:
        member.send_heartbeat(JOIN_EPOCH, member.topics)
    group.settle()
    # The joins, what the topic has, its initialisation, and the assignment.
    assert len(batches) <= 4
    assert assignment_count(group) == 1
    assert loads(members) == expected_loads
    assert len({member.member_epoch for member in members}) == 1


def test_members_that_come_in_waves_cost_one_assignment_a_wave() -> None:
    wave_count, wave_ms = 5, 300
    group = group_with(*[1] * 100, broker=BROKER)
    batches: list[Batch] = []
    group.after_batch.append(batches.append)
    members = members_of(group)
    for wave in range(wave_count):
        for member in members[wave::wave_count]:
            member.send_heartbeat(JOIN_EPOCH, member.topics)
        group.settle()
        group.advance(wave_ms)
    group.advance(ASSIGNMENT_INTERVAL_MS)
    assert assignment_count(group) <= wave_count
    assert len(batches) <= 2 * wave_count + 4
    assert loads(members) == {1: 1_000}


def test_one_more_is_refused_and_the_others_do_not_notice() -> None:
    group = group_with(1, broker=BROKER)
    members = members_of(group)
    for member in members:
        member.send_heartbeat(JOIN_EPOCH, member.topics)
    group.settle()
    rows = len(group.rows)
    refused = Member(group, "one-more").join()
    assert refused.error_message == "The share group has reached its maximum capacity of 1000 members."
    assert len(group.rows) == rows


def test_no_internal_message_of_a_group_with_many_share_partitions_is_near_a_megabyte() -> None:
    partition_count = 13_000
    group = group_with(*[1] * partition_count)
    (anna,) = joined(group, "anna")
    assert len(group.leader.partitions) == len(anna.assigned) == partition_count
    group.restart()
    group.settle()
    anna.leave()
    assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
    assert not group.leader.partitions
    assert max(len(record.value) for record in group.log) < 800_000


def test_share_partitions_are_initialised_and_deleted_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_portions, "MAX_PORTION_BYTES", TOPIC_BYTES + 2 * LOG_OFFSETS_BYTES)
    topics = {f"topic-{number}": (f"id-{number}", [LogPartition(end=1)] * number) for number in range(1, 30)}
    group = Group(topics=topics)
    group.alter_config(share_auto_offset_reset="earliest")
    anna = Member(group, "anna", sorted(topics))
    anna.send_heartbeat(JOIN_EPOCH, anna.topics)
    for _ in range(3):
        group.run_batch()
    # Whatever was not initialised yet is asked for again.
    group.restart()
    group.settle()
    expected = {(f"id-{number}", partition) for number in range(1, 30) for partition in range(number)}
    assert group.leader.partitions.keys() == expected
    anna.join()
    assert anna.assigned == expected
    counts = Counter(decoded_request(record.value).api_key for record in group.log)
    assert counts[ApiKey.INITIALIZE_SHARE_GROUP_STATE] > 50
    anna.leave()
    assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
    assert [decoded_request(record.value).api_key for record in group.log].count(ApiKey.DELETE_SHARE_GROUP_STATE) == 2
    assert not group.leader.partitions
    assert [str(finding) for finding in verify(group.rows, BrokerConfig()).findings] == []
