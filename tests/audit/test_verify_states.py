"""verify on the beginning and the end of states: silent on what the actors wrote, and not on rows that were changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import AlterShareGroupOffsetsRequest, DeleteGroupsRequest
from sharegroup.protocol.rows import RecordType, StateBatchEntry, StateRow
from tests.actor.group_harness import group_with, joined

ORDERS_0 = ("orders-id", 0)
Tampering = Callable[[list[StateRow]], None]


@pytest.fixture(scope="module")
def administered() -> tuple[StateRow, ...]:
    """Rows of a group that was read from, altered, read from again and deleted."""
    group = group_with(20)
    (anna,) = joined(group, "anna")
    for first in (0, 4):
        anna.fetch(max_records=4)
        anna.acknowledge({ORDERS_0: [(first, first + 3, AcknowledgeType.RELEASE)]})
    anna.leave()
    altered = {"topics": [{"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": 2}]}]}
    assert group.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, AlterShareGroupOffsetsRequest.model_validate(altered)) == 0
    (ben,) = joined(group, "ben")
    ben.fetch(max_records=4)
    ben.acknowledge({ORDERS_0: [(4, 5, AcknowledgeType.ACCEPT)]})
    ben.leave()
    assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
    return tuple(group.rows)


def test_rows_of_the_actors_hold(administered: tuple[StateRow, ...]) -> None:
    assert verify(administered, BrokerConfig()).findings == []


def test_rows_from_anywhere_on_hold(administered: tuple[StateRow, ...]) -> None:
    for first in range(len(administered)):
        assert verify(administered[first:], BrokerConfig()).findings == []


def _last(rows: list[StateRow], record_type: RecordType) -> int:
    return max(index for index, row in enumerate(rows) if row.record_type is record_type)


def _change(rows: list[StateRow], record_type: RecordType, **columns: Any) -> None:
    """Change the last row of a type; a number of a column is added to it."""
    index = _last(rows, record_type)
    changed = {
        name: getattr(rows[index], name) + value if isinstance(value, int) else value for name, value in columns.items()
    }
    rows[index] = rows[index].model_copy(update=changed)


def _without_tombstone(rows: list[StateRow]) -> None:
    del rows[_last(rows, RecordType.SHARE_TOMBSTONE)]


def _row_after_the_end(rows: list[StateRow]) -> None:
    update = rows[_last(rows, RecordType.SHARE_UPDATE)]
    rows.append(update.model_copy(update={"request_offset": rows[-1].request_offset + 1}))


def _member_stays(rows: list[StateRow]) -> None:
    """The record by which the last member left is gone; the epoch rises all the same."""
    for index, row in reversed(list(enumerate(rows))):
        records = row.payload.get("records", [])
        kept = [record for record in records if record["type"] != "ShareGroupMemberRemoved"]
        if len(kept) < len(records):
            rows[index] = row.model_copy(update={"payload": {"records": kept}})
            return


@pytest.mark.parametrize(
    ("tampering", "invariant"),
    [
        pytest.param(_without_tombstone, "state_ends_before_what_it_belongs_to", id="no tombstone"),
        pytest.param(_row_after_the_end, "tombstone_ends_a_state", id="a row after the tombstone"),
        pytest.param(_member_stays, "only_an_empty_group_is_dead", id="a member of a dead group"),
        pytest.param(
            lambda rows: _change(rows, RecordType.SHARE_TOMBSTONE, state_epoch=-1),
            "row_agrees_with_its_replay",
            id="tombstone of another state",
        ),
        pytest.param(
            lambda rows: _change(rows, RecordType.SHARE_SNAPSHOT, snapshot_epoch=1),
            "kafka_would_write_the_same",
            id="snapshot epoch skipped",
        ),
        pytest.param(
            lambda rows: _change(rows, RecordType.SHARE_SNAPSHOT, state_epoch=-100),
            "state_epoch_never_falls",
            id="state epoch falls",
        ),
        pytest.param(
            lambda rows: _change(rows, RecordType.SHARE_UPDATE, state_epoch=1),
            "state_epoch_never_rises_without_a_new_state",
            id="state epoch rises",
        ),
        pytest.param(
            lambda rows: _change(rows, RecordType.SHARE_UPDATE, leader_epoch=-1),
            "kafka_would_write_the_same",
            id="leader epoch falls",
        ),
        pytest.param(
            lambda rows: _change(
                rows,
                RecordType.SHARE_SNAPSHOT,
                state_batches=[
                    StateBatchEntry(
                        first_offset=2, last_offset=3, delivery_state=RecordState.AVAILABLE, delivery_count=1
                    )
                ],
            ),
            "kafka_would_write_the_same",
            id="a new state with something in flight",
        ),
    ],
)
def test_changed_rows_are_found(administered: tuple[StateRow, ...], tampering: Tampering, invariant: str) -> None:
    rows = list(administered)
    tampering(rows)
    assert invariant in {finding.violation.invariant for finding in verify(rows, BrokerConfig()).findings}
