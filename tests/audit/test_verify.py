"""verify: silent on what the actors wrote, and not on rows that somebody changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import RecordType, RunEntry, StateRow, TransitionEntry
from tests.actor.group_harness import group_with, joined
from tests.audit.conftest import ORDERS_0, REJECT

BROKER = BrokerConfig()
RUN = RunEntry(first_offset=0, last_offset=9, state=RecordState.AVAILABLE, delivery_count=1)
Tampering = Callable[[list[StateRow]], None]


def test_rows_of_the_actors_hold(rows: list[StateRow]) -> None:
    verification = verify(rows, BROKER)
    assert verification.findings == []
    assert verification.row_count == len(rows)
    assert verification.transition_count == sum(len(row.transitions) for row in rows)


def test_the_order_of_rows_comes_from_their_columns(rows: list[StateRow]) -> None:
    assert verify(reversed(rows), BROKER).findings == []


def test_a_table_without_its_oldest_rows_is_followed_from_a_snapshot_on(rows_with_snapshots: list[StateRow]) -> None:
    rows = rows_with_snapshots
    kinds = [row.record_type for row in rows]
    assert kinds.count(RecordType.SHARE_SNAPSHOT) > 2
    for first in range(len(rows)):
        verification = verify(rows[first:], BROKER)
        assert verification.findings == []
        assert verification.transition_count or RecordType.SHARE_SNAPSHOT not in kinds[first:-1]


def test_a_table_that_begins_after_the_last_snapshot_has_nothing_of_the_share_partition(rows: list[StateRow]) -> None:
    assert verify(rows[-2:], BROKER).transition_count == 0


def test_every_configuration_that_was_in_force_counts() -> None:
    group = group_with(500)
    (member,) = joined(group, "anna")
    for number in range(3):
        assert group.alter_config(share_record_lock_duration_ms=str(20_000 + number)) == 0
        member.fetch(max_records=5)
        assert group.alter_config(share_partition_max_record_locks=str(100 + 100 * number)) == 0
        member.fetch(max_records=5)
    assert verify(group.rows, BROKER).findings == []


def test_a_record_archived_in_spite_of_a_dead_letter_queue_is_a_finding() -> None:
    group = group_with(20)
    (member,) = joined(group, "anna")
    member.fetch(max_records=10)
    member.acknowledge({ORDERS_0: [(0, 0, REJECT)]})
    assert group.alter_config(errors_deadletterqueue_topic_name="dlq") == 0
    for offset in (1, 2):
        group.advance(1)
        member.acknowledge({ORDERS_0: [(offset, offset, REJECT)]})
    rows = list(group.rows)
    assert verify(rows, BROKER).findings == []
    # Record 1 shows that the leader has heard of the queue; so record 2 could not be archived directly.
    last = rows.pop()
    (entry,) = last.transitions
    rows.append(last.model_copy(update={"transitions": [entry.model_copy(update={"to_state": RecordState.ARCHIVED})]}))
    assert "transition_is_in_the_table" in {finding.violation.invariant for finding in verify(rows, BROKER).findings}


def test_a_configuration_that_comes_back_counts() -> None:
    group = group_with(60)
    (member,) = joined(group, "anna")
    for topic in ("dlq", "", "dlq", ""):
        group.alter_config(errors_deadletterqueue_topic_name=topic)
        group.advance(1)
        member.fetch(max_records=4)
        (held, *_) = group.leader.partitions[ORDERS_0].share_partition.runs.held_by("anna")
        member.acknowledge({ORDERS_0: [(held.first_offset, held.first_offset, REJECT)]})
    assert verify(group.rows, BROKER).findings == []


def _changed_row(rows: list[StateRow], cause: Cause, **columns: Any) -> None:
    index = _index(rows, cause)
    rows[index] = rows[index].model_copy(update=columns)


def _changed_entry(rows: list[StateRow], cause: Cause, **fields: Any) -> None:
    row = rows[_index(rows, cause)]
    entries = [e.model_copy(update=fields) if e.cause is cause else e for e in row.transitions]
    _changed_row(rows, cause, transitions=entries)


def _index(rows: list[StateRow], cause: Cause) -> int:
    return next(i for i, row in enumerate(rows) if any(entry.cause is cause for entry in row.transitions))


def _drop(rows: list[StateRow], cause: Cause) -> None:
    del rows[_index(rows, cause)]


def _add_early_timeout(rows: list[StateRow]) -> None:
    row = rows[_index(rows, Cause.LOCK_TIMEOUT)]
    entries = [entry.model_copy(update={"time_ms": entry.time_ms - 1}) for entry in row.transitions]
    _changed_row(rows, Cause.LOCK_TIMEOUT, transitions=entries)


def _second_holder(rows: list[StateRow]) -> None:
    """Another member is handed what anna holds."""
    row = rows[_index(rows, Cause.ACQUIRE)]
    again: list[TransitionEntry] = [
        entry.model_copy(update={"member_id": "ben", "from_state": RecordState.AVAILABLE, "delivery_count": 2})
        for entry in row.transitions
    ]
    _changed_row(rows, Cause.ACQUIRE, transitions=[*row.transitions, *again])


def _snapshot(rows: list[StateRow]) -> None:
    """A snapshot that forgets what is in flight."""
    columns = {
        "record_type": RecordType.SHARE_SNAPSHOT,
        "request_offset": rows[-1].request_offset + 1,
        "snapshot_epoch": rows[-1].snapshot_epoch + 1,
        "transitions": [],
        "state_batches": [],
        "runs": [],
    }
    rows.append(rows[-1].model_copy(update=columns))


def _first_snapshot(rows: list[StateRow], **columns: Any) -> None:
    index = next(i for i, row in enumerate(rows) if row.record_type is RecordType.SHARE_SNAPSHOT)
    rows[index] = rows[index].model_copy(update=columns)


def _without_metadata(rows: list[StateRow]) -> None:
    """The second row of the group's metadata, of three, is gone."""
    index = [i for i, row in enumerate(rows) if row.record_type is RecordType.GROUP_METADATA][2]
    del rows[index]


def _damaged_metadata(rows: list[StateRow]) -> None:
    index = next(i for i, row in enumerate(rows) if row.record_type is RecordType.GROUP_METADATA)
    rows[index] = rows[index].model_copy(update={"payload": {"records": [{"type": "Unheard"}]}})


@pytest.mark.parametrize(
    ("tampering", "invariant"),
    [
        pytest.param(lambda rows: _drop(rows, Cause.ACQUIRE), "transition_starts_from_the_state_before", id="lost row"),
        pytest.param(_second_holder, "transition_starts_from_the_state_before", id="two holders"),
        pytest.param(
            lambda rows: _changed_entry(rows, Cause.ACCEPT, member_id="ben"),
            "acknowledged_only_by_its_holder",
            id="acknowledged by another member",
        ),
        pytest.param(
            lambda rows: _changed_entry(rows, Cause.RELEASE, delivery_count=0),
            "delivery_count_never_falls",
            id="delivery taken back",
        ),
        pytest.param(
            lambda rows: _changed_entry(rows, Cause.RELEASE, to_state=RecordState.ACKNOWLEDGED),
            "transition_is_in_the_table",
            id="released into acknowledged",
        ),
        pytest.param(_add_early_timeout, "lock_ends_no_sooner_than_its_deadline", id="early timeout"),
        pytest.param(
            lambda rows: _changed_row(rows, Cause.LOCK_TIMEOUT, start_offset=18),
            "row_agrees_with_its_replay",
            id="start offset raised",
        ),
        pytest.param(
            lambda rows: _changed_row(rows, Cause.ACCEPT, delivery_complete_count=99),
            "row_agrees_with_its_replay",
            id="count of finished records changed",
        ),
        pytest.param(
            lambda rows: _changed_entry(rows, Cause.ACQUIRE, last_offset=1_099_999),
            "window_is_within_limit",
            id="more acquired than the window allows",
        ),
        pytest.param(_snapshot, "row_agrees_with_its_replay", id="snapshot without its runs"),
        pytest.param(
            lambda rows: _first_snapshot(rows, runs=[RUN, RUN]),
            "snapshot_is_a_state",
            id="snapshot with a run twice",
        ),
        pytest.param(
            lambda rows: _first_snapshot(rows, delivery_complete_count=4),
            "row_agrees_with_its_replay",
            id="snapshot with another count",
        ),
        pytest.param(
            lambda rows: _changed_row(rows, Cause.ACCEPT, state_batches=[]),
            "row_agrees_with_its_replay",
            id="nothing for Kafka to persist",
        ),
        pytest.param(
            lambda rows: _changed_row(rows, Cause.ACCEPT, snapshot_epoch=7),
            "row_agrees_with_its_replay",
            id="snapshot epoch changed",
        ),
        pytest.param(
            lambda rows: _changed_row(rows, Cause.ACCEPT, state_epoch=-1),
            "state_epoch_never_falls",
            id="old state epoch",
        ),
        pytest.param(
            lambda rows: _changed_row(rows, Cause.ACCEPT, record_type=RecordType.SHARE_TRANSITIONS),
            "row_is_of_the_type_of_its_transitions",
            id="an update that does not count as one",
        ),
        pytest.param(
            lambda rows: _changed_entry(rows, Cause.RENEW, deadline_ms=2**60),
            "lock_runs_for_its_duration",
            id="lock without end",
        ),
        pytest.param(
            lambda rows: _changed_entry(rows, Cause.REJECT, last_offset=0), "ranges_are_ascending", id="reversed range"
        ),
        pytest.param(_without_metadata, "group_epoch_rises_by_one", id="lost metadata"),
        pytest.param(_damaged_metadata, "payload_can_be_read", id="metadata that cannot be read"),
    ],
)
def test_tampering_is_a_finding_of_its_invariant(rows: list[StateRow], tampering: Tampering, invariant: str) -> None:
    tampering(rows)
    assert invariant in {finding.violation.invariant for finding in verify(rows, BROKER).findings}


def test_a_finding_has_its_location(rows: list[StateRow]) -> None:
    _changed_row(rows, Cause.ACCEPT, delivery_complete_count=99)
    (finding,) = verify(rows, BROKER).findings
    assert str(finding) == (
        "group group-1 orders-0 at request offset 10: row_agrees_with_its_replay: "
        "delivery_complete_count is 99, the replay has 1"
    )
