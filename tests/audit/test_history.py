"""The history of a group: what became of each record, how often it was delivered, and to whom."""

from __future__ import annotations

from sharegroup.audit.history.group_history import group_history
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import StateRow
from tests.actor.group_harness import GROUP_ID


def test_each_record_has_its_last_state_and_its_deliveries(rows: list[StateRow]) -> None:
    (partition,) = group_history(GROUP_ID, rows).partitions.values()
    assert [
        (r.first_offset, r.last_offset, r.state.name, r.delivery_count, r.member_id) for r in partition.records
    ] == [
        (0, 3, "ACKNOWLEDGED", 1, ""),
        (4, 4, "ARCHIVED", 1, ""),
        (5, 5, "ARCHIVED", 3, ""),
        (6, 6, "ARCHIVED", 1, ""),
        (7, 9, "ARCHIVED", 2, ""),
        (10, 17, "ACKNOWLEDGED", 1, ""),
        (18, 19, "ARCHIVED", 2, ""),
        (20, 24, "ARCHIVED", 1, ""),
        (25, 27, "ACKNOWLEDGED", 1, ""),
        (28, 43, "ACQUIRED", 1, "ben"),
    ]
    assert partition.start_offset == 28


def test_records_are_counted_by_cause_and_by_member(rows: list[StateRow]) -> None:
    history = group_history(GROUP_ID, rows)
    assert {cause: history.record_count(cause) for cause in Cause if history.record_count(cause)} == {
        Cause.ACQUIRE: 20 + 3 + 3 + 27,
        Cause.ACCEPT: 4 + 8 + 3,
        Cause.REJECT: 1,
        Cause.RELEASE: 1,
        Cause.GAP: 1,
        Cause.RENEW: 1,
        Cause.UNREAD: 2,
        Cause.LOCK_TIMEOUT: 3,
        Cause.SESSION_CLOSE: 3,
        Cause.LOG_START: 11,
    }
    assert history.acquired_by_member == {"anna": 13, "ben": 10 - 2 + 27, "cora": 3}
    assert history.accepted_by_member == {"anna": 4, "ben": 11}
    assert history.redelivered_count == 6
    assert history.highest_delivery_count == 3
    assert history.count(RecordState.ACQUIRED) == 16


def test_other_groups_are_passed_over(rows: list[StateRow]) -> None:
    assert group_history("another", rows).partitions == {}
