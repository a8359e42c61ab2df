"""Every delivery of a record, a range, a member or a time window, with its outcome."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.deliveries import Delivery
from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.history.lineage import LineageRequest, lineage
from sharegroup.core.record_state import Cause
from sharegroup.errors import (
    ConfigurationError,
    GroupIdNotFoundError,
    ShareGroupError,
    UnknownMemberIdError,
    UnknownTopicError,
)
from tests.actor.group_harness import GROUP_ID, START_MS
from tests.audit.conftest import FIRST_KEPT, LOCK_MS
from tests.audit.recorded_table import RecordedTable

JOINED_MS = START_MS + 2_000
"""When both members have their assignments."""

ORDERS_0 = Selection(GROUP_ID, "orders", 0)


def deliveries(table: RecordedTable, selection: Selection = ORDERS_0, **conditions: Any) -> list[Delivery]:
    of_request: list[Delivery] = lineage(table.source, LineageRequest(selection=selection, **conditions))["deliveries"]
    return of_request


def outcomes(of: list[Delivery]) -> list[tuple[int, int, int, str, str | None, str | None]]:
    return [(d.first_offset, d.last_offset, d.delivery_count, d.member_id, d.outcome, d.to_state) for d in of]


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ((4, 4), [(4, 4, 1, "anna", "reject", "ARCHIVED")]),
        (
            (5, 5),
            [
                (5, 5, 1, "anna", "release", "AVAILABLE"),
                (5, 5, 2, "anna", "session_close", "AVAILABLE"),
                (5, 5, 3, "ben", "log_start", "ARCHIVED"),
            ],
        ),
        (
            (2, 6),
            [
                (2, 3, 1, "anna", "accept", "ACKNOWLEDGED"),
                (4, 4, 1, "anna", "reject", "ARCHIVED"),
                (5, 5, 1, "anna", "release", "AVAILABLE"),
                (6, 6, 1, "anna", "gap", "ARCHIVED"),
                (5, 5, 2, "anna", "session_close", "AVAILABLE"),
                (5, 5, 3, "ben", "log_start", "ARCHIVED"),
            ],
        ),
        (
            (18, 18),
            [
                (18, 18, 1, "ben", "unread", "AVAILABLE"),
                (18, 18, 1, "anna", "session_close", "AVAILABLE"),
                (18, 18, 2, "ben", "log_start", "ARCHIVED"),
            ],
        ),
        ((27, 29), [(27, 27, 1, "ben", "accept", "ACKNOWLEDGED"), (28, 29, 1, "ben", None, None)]),
        ((44, 50), []),
    ],
    ids=["a record", "a record that came back", "a range", "a record handed back unread", "a held range", "none"],
)
def test_the_deliveries_of_records(
    recorded: RecordedTable, offsets: tuple[int, int], expected: list[tuple[int, int, int, str, str | None, str | None]]
) -> None:
    assert outcomes(deliveries(recorded, offsets=offsets)) == expected


def test_a_delivery_has_its_times_and_its_requests(recorded: RecordedTable) -> None:
    first, second = deliveries(recorded, offsets=(7, 7))
    assert (first.acquired_ms, first.ended_ms, first.outcome) == (JOINED_MS, JOINED_MS + LOCK_MS, "lock_timeout")
    assert (first.renewed_count, second.renewed_count) == (1, 0)
    assert first.acquire_request_offset is not None
    assert second.acquire_request_offset is not None
    assert first.acquire_request_offset < second.acquire_request_offset
    assert (second.topic, second.topic_id, second.partition, second.group_id) == ("orders", "orders-id", 0, GROUP_ID)
    assert second.leader_epoch == 1


def test_every_transition_of_a_held_record_is_in_a_delivery(recorded: RecordedTable) -> None:
    every = deliveries(recorded)
    counts = Counter[str]()
    for delivery in every:
        counts[delivery.outcome or "held"] += delivery.last_offset - delivery.first_offset + 1
    history = group_history(GROUP_ID, recorded.rows)
    assert counts.total() == history.record_count(Cause.ACQUIRE)
    not_ends = {Cause.ACQUIRE, Cause.RENEW}
    ends = {c.value: history.record_count(c) for c in Cause if c not in not_ends and history.record_count(c)}
    assert counts == Counter({**ends, "held": 16})
    assert sum(delivery.renewed_count for delivery in every) == history.record_count(Cause.RENEW)


@pytest.mark.parametrize(("member", "record_count"), [("anna", 13), ("ben", 37), ("cora", 3)])
def test_the_deliveries_to_a_member(recorded: RecordedTable, member: str, record_count: int) -> None:
    of_member = deliveries(recorded, Selection(), member=member)
    assert {delivery.member_id for delivery in of_member} == {member}
    assert sum(delivery.last_offset - delivery.first_offset + 1 for delivery in of_member) == record_count


def test_the_deliveries_in_a_window_are_those_that_began_in_it(recorded: RecordedTable) -> None:
    every = deliveries(recorded)
    middle_ms = JOINED_MS + LOCK_MS // 2
    early = deliveries(recorded, Selection(), until_ms=middle_ms)
    late = deliveries(recorded, Selection(), since_ms=middle_ms)
    assert (early, late) == ([d for d in every if d in early], [d for d in every if d not in early])
    assert {delivery.acquired_ms for delivery in early} == {JOINED_MS}
    assert {delivery.delivery_count for delivery in late} >= {2, 3}


def test_a_delivery_whose_begin_was_pruned(pruned_table: RecordedTable) -> None:
    document = lineage(pruned_table.source, LineageRequest(selection=ORDERS_0, offsets=(7, 7)))
    assert (document["history_start"].commit_id, document["history_start"].is_whole) == (FIRST_KEPT, False)
    first, *later = document["deliveries"]
    assert (first.acquired_ms, first.acquire_request_offset, first.member_id) == (None, None, "anna")
    assert (first.outcome, first.ended_ms, first.delivery_count) == ("lock_timeout", JOINED_MS + LOCK_MS, 1)
    assert [delivery.outcome for delivery in later] == ["log_start"]


@pytest.mark.parametrize(
    ("selection", "conditions", "error"),
    [
        (Selection("nobody"), {}, GroupIdNotFoundError),
        (Selection(GROUP_ID, "payments"), {}, UnknownTopicError),
        (Selection(GROUP_ID), {"member": "carl"}, UnknownMemberIdError),
    ],
)
def test_unknown_names(
    recorded: RecordedTable, selection: Selection, conditions: dict[str, Any], error: type[ShareGroupError]
) -> None:
    with pytest.raises(error):
        deliveries(recorded, selection, **conditions)


def test_a_window_may_end_in_the_future_but_not_before_it_begins(recorded: RecordedTable) -> None:
    whole = lineage(recorded.source, LineageRequest(selection=Selection()))
    until_later = LineageRequest(selection=Selection(), since_ms=START_MS, until_ms=START_MS + 10**9)
    assert lineage(recorded.source, until_later, now_ms=START_MS) == whole
    with pytest.raises(ConfigurationError, match=r"begins at 2026-01-01T00:00:00\.000Z and ends before"):
        lineage(recorded.source, LineageRequest(selection=Selection(), since_ms=START_MS, until_ms=START_MS - 1))
