"""A group begins with the state of another system: its counts count on, and what is finished stays finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import AlterShareGroupOffsetsRequest
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from tests.actor.group_harness import Group, group_with, joined

ORDERS_0 = ("orders-id", 0)
AVAILABLE, _, ACKNOWLEDGED, ARCHIVING, ARCHIVED, _ = RecordState
Batch = tuple[int, int, RecordState, int]
STATE: list[Batch] = [
    (10, 11, AVAILABLE, 2),
    (12, 14, ACKNOWLEDGED, 1),
    (16, 16, ARCHIVED, 5),
    (17, 17, AVAILABLE, 7),
]


def request(start_offset: int, batches: Sequence[Batch], partition: int = 0) -> dict[str, Any]:
    fields = {"partition_index": partition, "start_offset": start_offset, "state_batches": list(batches)}
    return {"topics": [{"topic_name": "orders", "partitions": [fields]}]}


def imported(group: Group, start_offset: int = 10, batches: Sequence[Batch] = tuple(STATE)) -> None:
    body = AlterShareGroupOffsetsRequest.model_validate(request(start_offset, batches))
    response: Mapping[str, Any] = group.response_to(ApiKey.ALTER_SHARE_GROUP_OFFSETS, body)
    assert not response.get("error_code"), response


def runs(group: Group) -> list[tuple[int, int, RecordState, int]]:
    engine = group.leader.partitions[ORDERS_0].share_partition
    return [(run.first_offset, run.last_offset, run.state, run.delivery_count) for run in engine.runs]


@pytest.fixture
def group() -> Group:
    return group_with(30)


def test_the_state_is_as_it_was_there(group: Group) -> None:
    imported(group)
    assert runs(group) == [*STATE[:2], (15, 15, AVAILABLE, 0), *STATE[2:]]
    assert group.leader.partitions[ORDERS_0].share_partition.start_offset == 10


def test_members_get_what_is_not_finished_with_their_counts(group: Group) -> None:
    imported(group)
    (anna,) = joined(group, "anna")
    ranges = []
    for _ in range(3):
        fetched = anna.fetch(max_records=30).acquired[ORDERS_0]
        ranges += fetched
        anna.acknowledge({ORDERS_0: [(first, last, AcknowledgeType.ACCEPT) for first, last, _ in fetched]})
    assert sorted(ranges) == [(10, 11, 3), (15, 15, 1), (17, 17, 8), (18, 29, 1)]
    assert verify(group.rows, BrokerConfig()).findings == []


def test_a_finished_beginning_is_passed(group: Group) -> None:
    imported(group, 10, [(10, 14, ACKNOWLEDGED, 1), (15, 15, ARCHIVED, 1), (16, 18, AVAILABLE, 1)])
    assert runs(group) == [(16, 18, AVAILABLE, 1)]


def test_each_record_has_a_transition_and_the_row_says_where_it_comes_from(group: Group) -> None:
    imported(group)
    (row,) = group.rows_of(RecordType.SHARE_SNAPSHOT)
    assert row.is_imported
    (entry,) = (entry for entry in row.transitions if entry.first_offset <= 13 <= entry.last_offset)
    assert (entry.cause, entry.to_state, entry.delivery_count) == (Cause.IMPORTED, ACKNOWLEDGED, 1)
    assert verify(group.rows, BrokerConfig()).findings == []


def test_it_replaces_an_older_state(group: Group) -> None:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    anna.leave()
    imported(group)
    assert runs(group)[0] == STATE[0]
    assert verify(group.rows, BrokerConfig()).findings == []


def test_it_survives_a_takeover_before_and_after_the_leader_has_begun(group: Group) -> None:
    body = AlterShareGroupOffsetsRequest.model_validate(request(10, STATE))
    group.send_as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, body)
    while not group.coordinator.group.state.changing_topic_ids:
        group.run_batch(count=1)
    group.drop_pending()
    group.restart()
    group.settle()
    before = runs(group)
    assert before[0] == STATE[0]
    group.restart()
    group.settle()
    assert runs(group) == before
    (partition,) = fold(group.rows).groups[group.group_id].partitions.values()
    assert list(partition.share_partition.runs) == list(group.leader.partitions[ORDERS_0].share_partition.runs)


def test_the_highest_offset_that_can_be_imported_is_followed_by_a_start_offset(group: Group) -> None:
    imported(group, batches=[(10, 2**63 - 2, ACKNOWLEDGED, 1)])
    assert group.leader.partitions[ORDERS_0].share_partition.start_offset == 2**63 - 1


def test_what_waits_for_its_dead_letter_is_archived_where_there_is_no_queue(group: Group) -> None:
    imported(group, 10, [(11, 11, ARCHIVING, 5)])
    assert runs(group)[-1] == (11, 11, ARCHIVED, 5)
    assert not group.dead_letters


def test_what_waits_for_its_dead_letter_gets_it_where_there_is_a_queue(group: Group) -> None:
    group.alter_config(errors_deadletterqueue_topic_name="dead")
    imported(group, 10, [(11, 11, ARCHIVING, 5)])
    assert [(d.first_offset, d.delivery_count) for w in group.dead_letters for d in w.dead_letters] == [(11, 5)]


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ([(9, 11, AVAILABLE, 1)], r"9\.\.11 is not an ascending range at or above offset 10"),
        ([(10, 12, AVAILABLE, 1), (12, 13, AVAILABLE, 2)], r"12\.\.13 is not an ascending range at or above offset 13"),
        ([(12, 11, AVAILABLE, 1)], r"12\.\.11 is not an ascending range"),
        ([(10, 10, RecordState.ACQUIRED, 1)], "locks cannot be imported"),
        ([(10, 10, AVAILABLE, 2**15)], "less than 32768"),
        ([(10, 2**63 - 1, ACKNOWLEDGED, 1)], "less than 9223372036854775807"),
    ],
)
def test_a_state_that_no_system_has_is_refused(batches: list[Batch], text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        parsed(AlterShareGroupOffsetsRequest, request(10, batches))
