"""The plan of a redrive, from the rows of a group."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.audit.redrive.last_changes import last_changes
from sharegroup.audit.redrive.redrive_plan import Candidate, PresentTopic, RedrivePlan, redrive_plan
from sharegroup.audit.redrive.redrive_run import read_plan
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import GroupIdNotFoundError, GroupQuarantinedError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import PartitionOffsets
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.row_payloads import GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold
from tests.actor.group_harness import GROUP_ID, group_with, joined

ORDERS_0 = ("orders-id", 0)
REJECT, ACCEPT, GAP = AcknowledgeType.REJECT, AcknowledgeType.ACCEPT, AcknowledgeType.GAP


def planned(rows: list[StateRow], *candidates: Candidate, topic_id: str = "orders-id", start: int = 0) -> RedrivePlan:
    topics = {"orders": PresentTopic(topic_id, {0: PartitionOffsets(start, 60, 60)})}
    return redrive_plan(fold(rows).groups[GROUP_ID], last_changes(rows), topics, candidates)


def dead_letter(offset: int) -> Candidate:
    return Candidate("orders", 0, offset, offset, dead_letters_since_ms=1_000)


def copies(plan: RedrivePlan) -> list[tuple[int, int, int, bool]]:
    return [(c.records.first_offset, c.records.last_offset, c.delivery_count, c.has_original) for c in plan.copies]


def skipped(plan: RedrivePlan) -> list[tuple[int, int, str]]:
    return [(skip.first_offset, skip.last_offset, skip.reason) for skip in plan.skipped]


@pytest.fixture
def pinned() -> list[StateRow]:
    """Rows of a group: 0 and 1 rejected, 2 accepted, 3 held, 4 rejected, 5 a gap, 6 rejected."""
    group = group_with(20)
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=7)
    anna.acknowledge({ORDERS_0: [(0, 1, REJECT), (2, 2, ACCEPT), (4, 4, REJECT), (5, 5, GAP), (6, 6, REJECT)]})
    return list(group.rows)


def test_each_record_goes_its_way(pinned: list[StateRow]) -> None:
    plan = planned(pinned, Candidate("orders", 0, 0, 9))
    assert plan.redriven == {ORDERS_0: [(4, 4), (6, 6)]}
    assert copies(plan) == [(0, 1, 1, True)]
    assert skipped(plan) == [
        (2, 2, "ACKNOWLEDGED, not ARCHIVED"),
        (3, 3, "ACQUIRED, not ARCHIVED"),
        (5, 5, "there is no record (gap)"),
        (7, 9, "not delivered yet"),
    ]


def test_all_of_a_history_that_ends_with_deleted_records(rows: list[StateRow]) -> None:
    plan = planned(rows, Candidate("orders", 0, 0, 27))
    assert (plan.redriven, copies(plan)) == ({}, [(4, 4, 1, True)])
    assert "there is no record (log_start)" in {reason for _, _, reason in skipped(plan)}


def test_of_another_topic_of_the_name_the_dead_letter_records_are_copied(pinned: list[StateRow]) -> None:
    candidates = Candidate("orders", 0, 0, 1, dead_letters_since_ms=1_000), Candidate("orders", 0, 6, 6)
    plan = planned(pinned, *candidates, topic_id="another-id")
    assert (plan.redriven, copies(plan)) == ({}, [(0, 1, 0, False)])
    assert [c.since_ms for c in plan.copies] == [1_000]
    assert skipped(plan) == [(6, 6, "the state table does not have its history")]


def test_what_the_log_has_deleted_is_not_made_available(pinned: list[StateRow]) -> None:
    plan = planned(pinned, dead_letter(4), Candidate("orders", 0, 6, 6), start=7)
    assert (plan.redriven, copies(plan)) == ({}, [(4, 4, 0, False)])
    assert skipped(plan) == [(6, 6, "the log was deleted up to a later offset")]


def test_a_partition_that_is_not_there(pinned: list[StateRow]) -> None:
    plan = planned(pinned, Candidate("orders", 7, 0, 3), Candidate("nowhere", 0, 0, 3))
    assert {reason for _, _, reason in skipped(plan)} == {"the log has no such partition"}


def test_unknown_and_quarantined_groups_are_refused(pinned: list[StateRow], tmp_path: Path) -> None:
    payload = GroupStatusPayload(role=ActorRole.LEADER, status=GroupStatus.FAILED, reason="a bug")
    failed = pinned[-1].model_copy(
        update={
            "record_type": RecordType.GROUP_STATUS,
            "partition": -1,
            "topic_id": "",
            "topic": "",
            "transitions": [],
            "request_offset": pinned[-1].request_offset + 1,
            "payload": payload.model_dump(mode="json"),
        }
    )
    with LocalLog(tmp_path / "log.db") as log:
        with pytest.raises(GroupQuarantinedError, match="a bug"):
            read_plan(log, [*pinned, failed], GROUP_ID, [])
        with pytest.raises(GroupIdNotFoundError, match="nobody"):
            read_plan(log, pinned, "nobody", [])
