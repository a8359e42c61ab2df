"""Redrive: archived records at or above the start offset become available again, all of a request or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sharegroup.actor.effects import DeadLetterReason
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.errors import (
    GroupIdNotFoundError,
    InvalidRecordStateError,
    InvalidRequestError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import RedriveShareGroupRecordsRequest
from sharegroup.protocol.rows import RecordType
from tests.actor.group_harness import Group, Member, PartitionKey, findings, group_with, joined, leader_state

ACCEPT, REJECT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE
ORDERS_0, ORDERS_1 = ("orders-id", 0), ("orders-id", 1)
Ranges = Mapping[PartitionKey, Sequence[tuple[int, int]]]


def redrive_request(ranges: Ranges) -> RedriveShareGroupRecordsRequest:
    partitions = [
        {
            "topic_id": topic_id,
            "partition_index": partition,
            "ranges": [{"first_offset": first, "last_offset": last} for first, last in offsets],
        }
        for (topic_id, partition), offsets in ranges.items()
    ]
    return RedriveShareGroupRecordsRequest.model_validate({"partitions": partitions, "reason": "the sink is back"})


def redrive(group: Group, ranges: Ranges) -> tuple[int, str, int]:
    """Error code and message, and the number of records."""
    response = group.response_to(ApiKey.REDRIVE_SHARE_GROUP_RECORDS, redrive_request(ranges))
    return response.get("error_code", 0), response.get("error_message", ""), response.get("record_count", 0)


def states(group: Group, partition: int = 0) -> list[tuple[int, int, RecordState, int]]:
    runs = group.leader.partitions["orders-id", partition].share_partition.runs
    return [(run.first_offset, run.last_offset, run.state, run.delivery_count) for run in runs]


@pytest.fixture
def group() -> Group:
    return group_with(10, 10)


@pytest.fixture
def anna(group: Group) -> Member:
    """Holds 0 of both partitions; 1 to 4 are archived, 5 to 9 accepted."""
    (anna,) = joined(group, "anna")
    for _ in range(2):
        anna.fetch(max_records=10)
    worked_off = [(1, 4, REJECT), (5, 9, ACCEPT)]
    anna.acknowledge({ORDERS_0: worked_off, ORDERS_1: worked_off})
    return anna


def test_archived_records_are_delivered_again_with_count_1(group: Group, anna: Member) -> None:
    assert redrive(group, {ORDERS_0: [(1, 2), (4, 4)]}) == (0, "", 3)
    assert states(group) == [
        (0, 0, RecordState.ACQUIRED, 1),
        (1, 2, RecordState.AVAILABLE, 0),
        (3, 3, RecordState.ARCHIVED, 1),
        (4, 4, RecordState.AVAILABLE, 0),
        (5, 9, RecordState.ACKNOWLEDGED, 1),
    ]
    assert anna.fetch([ORDERS_0], max_records=10).record_count == 3
    assert states(group)[0] == (0, 2, RecordState.ACQUIRED, 1)
    assert findings(group) == []


def test_the_row_is_a_snapshot_with_cause_and_reason(group: Group, anna: Member) -> None:
    redrive(group, {ORDERS_0: [(1, 4)]})
    row = group.rows_of(RecordType.SHARE_SNAPSHOT)[-1]
    (entry,) = row.transitions
    assert (entry.cause, entry.reason, entry.from_state, entry.to_state) == (
        Cause.REDRIVE,
        "the sink is back",
        RecordState.ARCHIVED,
        RecordState.AVAILABLE,
    )
    group.restart()
    assert states(group)[1] == (1, 4, RecordState.AVAILABLE, 0)
    assert findings(group) == []


def test_a_waiting_fetch_gets_them_in_the_same_cut(group: Group, anna: Member) -> None:
    correlation_id = anna.send_fetch([ORDERS_0], max_records=10, max_wait_ms=10_000)
    group.settle()
    assert anna.fetched(correlation_id).is_parked
    redrive(group, {ORDERS_0: [(1, 4)]})
    assert anna.fetched(correlation_id).record_count == 4
    assert group.rows[-1].record_type is RecordType.SHARE_SNAPSHOT
    assert findings(group) == []


def test_a_repeated_request_is_refused_and_changes_nothing(group: Group, anna: Member) -> None:
    redrive(group, {ORDERS_0: [(1, 4)]})
    before, row_count = leader_state(group), len(group.rows)
    code, message, _ = redrive(group, {ORDERS_0: [(1, 4)]})
    assert (code, "orders-0" in message, "1..4 AVAILABLE" in message) == (InvalidRecordStateError.code, True, True)
    assert (leader_state(group), len(group.rows)) == (before, row_count)


def test_one_refused_share_partition_refuses_the_whole_request(group: Group, anna: Member) -> None:
    before = leader_state(group)
    code, message, _ = redrive(group, {ORDERS_0: [(1, 4)], ORDERS_1: [(4, 5)]})
    assert (code, "orders-1" in message, "5..5 ACKNOWLEDGED" in message) == (InvalidRecordStateError.code, True, True)
    assert leader_state(group) == before


@pytest.mark.parametrize(
    ("ranges", "code", "text"),
    [
        ({ORDERS_0: [(0, 1)]}, InvalidRecordStateError.code, "0..0 ACQUIRED"),
        ({ORDERS_0: [(9, 12)]}, InvalidRecordStateError.code, "9..9 ACKNOWLEDGED, 10..12 never in flight"),
        ({ORDERS_0: [(3, 2)]}, InvalidRequestError.code, "3..2"),
        ({ORDERS_0: [(1, 2), (2, 3)]}, InvalidRequestError.code, "2..3"),
        ({("orders-id", 7): [(1, 2)]}, UnknownTopicOrPartitionError.code, ""),
        ({("other-id", 0): [(1, 2)]}, UnknownTopicIdError.code, ""),
        ({}, InvalidRequestError.code, "partitions"),
    ],
)
def test_refusals(group: Group, anna: Member, ranges: Ranges, code: int, text: str) -> None:
    before = leader_state(group)
    body = redrive_request(ranges) if ranges else RedriveShareGroupRecordsRequest.model_construct(partitions=[])
    response = group.response_to(ApiKey.REDRIVE_SHARE_GROUP_RECORDS, body)
    assert response["error_code"] == code
    assert text in response["error_message"]
    assert leader_state(group) == before


def test_records_below_the_start_offset_are_refused(group: Group, anna: Member) -> None:
    anna.acknowledge({ORDERS_0: [(0, 0, ACCEPT)]})
    code, message, _ = redrive(group, {ORDERS_0: [(1, 4)]})
    assert (code, "start offset 10: 1..4 below it" in message) == (InvalidRecordStateError.code, True)


def test_there_is_no_group() -> None:
    group = group_with(10, earliest=False)
    assert redrive(group, {ORDERS_0: [(1, 4)]})[0] == GroupIdNotFoundError.code


def test_a_record_that_was_rejected_and_is_given_up_again_has_the_reason_of_the_second_time() -> None:
    group = group_with(10)
    group.alter_config(errors_deadletterqueue_topic_name="dlq", share_delivery_count_limit="2")
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    anna.acknowledge({ORDERS_0: [(1, 1, REJECT)]})
    group.write_dead_letters()
    group.settle()
    assert redrive(group, {ORDERS_0: [(1, 1)]})[0] == 0
    for _ in range(2):
        assert anna.fetch(max_records=10).record_count == 1
        anna.acknowledge({ORDERS_0: [(1, 1, RELEASE)]})
    (dead_letters,) = [d for effect in group.dead_letters for d in effect.dead_letters]
    assert (dead_letters.delivery_count, dead_letters.reason) == (2, DeadLetterReason.DELIVERY_COUNT_EXCEEDED)
    group.restart()
    led = group.leader.partitions[ORDERS_0]
    assert [is_rejected for _, is_rejected in led.rejected.split(led.share_partition.runs)] == [False]
    assert findings(group) == []
