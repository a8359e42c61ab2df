"""The difference of two points leads from the state at the one to the state at the other."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.diff import diff
from sharegroup.errors import ConfigurationError, GroupIdNotFoundError
from tests.actor.group_harness import GROUP_ID
from tests.audit.recorded_table import LeaderState, Moment, RecordedTable

ALL = Selection()
Record = tuple[str, int, str]
"""State, delivery count and member."""

NOT_DELIVERED: Record = ("AVAILABLE", 0, "")
"""A difference does not name such records, be they in flight or not."""


def records(state: LeaderState) -> dict[int, Record]:
    """Offset → its state, of all records in flight."""
    return {
        offset: (run.state.name, run.delivery_count, run.member_id)
        for run in (state[1] if state else ())
        for offset in range(run.first_offset, run.last_offset + 1)
    }


def at(moment: Moment) -> str:
    return f"0:{moment.end_offset - 1}"


def test_a_difference_leads_from_one_state_to_the_other(recorded: RecordedTable) -> None:
    source = recorded.source
    moments = recorded.moments[::4]
    for before, after in combinations(moments, 2):
        documents = diff(source, at(before), at(after), ALL)["groups"]
        state, expected = records(before.leader), records(after.leader)
        for partition in (partition for group in documents for partition in group["partitions"]):
            assert partition["start_offset"]["from"] == (before.leader[0] if before.leader else None)
            assert partition["start_offset"]["to"] == (after.leader[0] if after.leader else None)
            for change in partition["records"]:
                for offset in range(change["first_offset"], change["last_offset"] + 1):
                    was = (change["from_state"], change["from_delivery_count"], change["from_member_id"])
                    assert was == state.get(offset, (None, 0, ""))
                    state[offset] = (change["to_state"], change["to_delivery_count"], change["to_member_id"])
        in_flight = {offset: state.get(offset, NOT_DELIVERED) for offset in expected}
        assert in_flight == expected, (before, after)
        joined = frozenset(member["member_id"] for group in documents for member in group["members_joined"])
        left = frozenset(member["member_id"] for group in documents for member in group["members_left"])
        assert (joined, left) == (after.members - before.members, before.members - after.members)


def test_records_are_ranges_that_are_as_large_as_possible(recorded: RecordedTable) -> None:
    (group,) = diff(recorded.source, "commit:0", "latest", ALL)["groups"]
    (partition,) = group["partitions"]
    assert [
        (r["first_offset"], r["last_offset"], r["to_state"], r["to_delivery_count"]) for r in partition["records"]
    ] == [
        (0, 3, "ACKNOWLEDGED", 1),
        (4, 4, "ARCHIVED", 1),
        (5, 5, "ARCHIVED", 3),
        (6, 6, "ARCHIVED", 1),
        (7, 9, "ARCHIVED", 2),
        (10, 17, "ACKNOWLEDGED", 1),
        (18, 19, "ARCHIVED", 2),
        (20, 24, "ARCHIVED", 1),
        (25, 27, "ACKNOWLEDGED", 1),
        (28, 43, "ACQUIRED", 1),
    ]


def test_a_point_does_not_differ_from_itself(recorded: RecordedTable) -> None:
    assert diff(recorded.source, "latest", "latest", ALL)["groups"] == []


@pytest.mark.parametrize(
    ("first", "last"), [("latest", "commit:3"), ("commit:4", "commit:3"), ("latest", "2026-01-01")]
)
def test_points_in_the_wrong_order_are_refused(recorded: RecordedTable, first: str, last: str) -> None:
    with pytest.raises(ConfigurationError, match="Exchange the two points"):
        diff(recorded.source, first, last, ALL)


def test_an_unknown_group_is_refused(recorded: RecordedTable) -> None:
    with pytest.raises(GroupIdNotFoundError):
        diff(recorded.source, "commit:3", "latest", Selection("nobody"))
    assert diff(recorded.source, "commit:0", "latest", Selection(GROUP_ID))["groups"]


def test_changes_of_the_configuration(configured: RecordedTable) -> None:
    documents: list[dict[str, Any]] = diff(configured.source, "commit:0", "latest", ALL)["groups"]
    assert documents[0]["config"]["share.delivery.count.limit"] == {"from": None, "to": "2"}
