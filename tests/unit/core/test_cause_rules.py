"""Each cause has every column, and each check by cause holds for every cause that the table allows."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from sharegroup.core.cause_rules import (
    ACKNOWLEDGE_CAUSE,
    CAUSE_RULES,
    COUNT_RESETS,
    DELIVERIES,
    ENDS_OF_DELIVERIES,
    ENDS_OF_LOCKS,
    HOLDER_ACTS,
    RETURNS,
    UNDELIVERED,
    Author,
    CauseRule,
    is_suspect_after,
)
from sharegroup.core.invariants import Circumstances
from sharegroup.core.record_invariants import check_record
from sharegroup.core.record_state import TRANSITIONS, AcknowledgeType, Cause, RecordState, next_state
from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.core.transition_check import change_of
from sharegroup.core.transition_rules import TABLES, Tables, is_by_its_holder, names_the_holder
from tests.unit.core.notation import partition

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, RESOLVING = RecordState
NOW_MS = 500
LIMITS = SharePartitionLimits(delivery_count_limit=5)
START_OFFSET_MOVES = {Cause.LOG_START, Cause.OFFSET_RESET}
"""They pass records, whichever member holds them."""
OF_OPEN_WRITES = {Cause.IN_DOUBT, Cause.NOT_WRITTEN}
"""They change records with an open write only (`test_open_writes`)."""


def legal_in(state: RecordState) -> list[Cause]:
    return [cause for cause, outcome in TRANSITIONS[state].items() if outcome is not None]


def transition(cause: Cause, state: RecordState, count: int, member_id: str) -> Transition:
    to_state, count_after = next_state(state, cause, count, LIMITS.delivery_count_limit, False)
    deadline_ms = NOW_MS + LIMITS.lock_duration_ms if to_state is ACQUIRED else 0
    is_suspect = is_suspect_after(to_state, cause, was_suspect=False)
    return Transition(10, 14, state, to_state, count_after, member_id, deadline_ms, cause, is_suspect)


def violated(record: Transition, *runs: str) -> list[str]:
    violations = check_record(partition(*runs), record, Circumstances(LIMITS, NOW_MS))
    return [violation.invariant for violation in violations]


def test_every_cause_has_every_column_and_no_column_has_a_default() -> None:
    assert set(CAUSE_RULES) == set(Cause)
    assert all(field.default is MISSING and field.default_factory is MISSING for field in fields(CauseRule))


def test_every_acknowledge_type_has_a_cause_of_its_own_that_the_holder_may_use() -> None:
    assert set(ACKNOWLEDGE_CAUSE) == set(AcknowledgeType)
    assert len(set(ACKNOWLEDGE_CAUSE.values())) == len(AcknowledgeType)
    assert all(TRANSITIONS[ACQUIRED][cause] for cause in ACKNOWLEDGE_CAUSE.values())
    assert set(ACKNOWLEDGE_CAUSE.values()) <= HOLDER_ACTS


def test_only_an_acknowledgement_is_the_application_s_answer() -> None:
    answer_causes = {cause for cause, rule in CAUSE_RULES.items() if rule.is_answer}
    assert answer_causes <= set(ACKNOWLEDGE_CAUSE.values()) - UNDELIVERED


@pytest.mark.parametrize("cause", Cause)
def test_the_author_and_the_table_agree_on_the_records_that_a_member_holds(cause: Cause) -> None:
    concerns_the_holder = cause in legal_in(ACQUIRED) and cause not in START_OFFSET_MOVES
    assert (CAUSE_RULES[cause].author in (Author.HOLDER, Author.LEADER)) is concerns_the_holder
    assert (CAUSE_RULES[cause].author is Author.ACQUIRER) is (cause in DELIVERIES)


@pytest.mark.parametrize("cause", sorted(set(legal_in(ACQUIRED)) - START_OFFSET_MOVES - OF_OPEN_WRITES))
def test_every_change_of_a_held_record_is_checked_for_its_holder(cause: Cause) -> None:
    runs = "10..14 ACQUIRED 2 m1 @400"
    by_holder, by_another = (transition(cause, ACQUIRED, 2, member_id) for member_id in ("m1", "m2"))
    assert violated(by_holder, runs) == []
    before = partition(runs)
    (run,) = before.runs
    changes = [change_of(before, record, run, NOW_MS) for record in (by_holder, by_another)]
    assert [is_by_its_holder(change) and names_the_holder(change) for change in changes] == [True, False]
    is_request = cause in HOLDER_ACTS
    assert violated(by_another, runs) == (["acknowledged_only_by_its_holder"] if is_request else [])
    assert (cause in ENDS_OF_LOCKS) is not is_request


@pytest.mark.parametrize("cause", [cause for cause in legal_in(AVAILABLE) if TRANSITIONS[AVAILABLE][cause]])
def test_every_delivery_is_checked_for_the_limit_and_the_delay(cause: Cause) -> None:
    outcome = TRANSITIONS[AVAILABLE][cause]
    assert outcome is not None
    if outcome.delivery_count_change > 0 or outcome.to_state is ACQUIRED:
        assert violated(transition(cause, AVAILABLE, 5, "m1"), "10..14 AVAILABLE 5") == [
            "delivery_count_stays_within_limit"
        ]
        assert violated(transition(cause, AVAILABLE, 2, "m1"), "10..14 AVAILABLE 2 @600") == [
            "delayed_records_are_not_acquired"
        ]
    else:
        assert cause not in DELIVERIES


@pytest.mark.parametrize("cause", sorted(set(legal_in(ACQUIRED)) - OF_OPEN_WRITES))
def test_a_cause_ends_a_lock_before_its_deadline_only_if_its_column_allows_it(cause: Cause) -> None:
    names = violated(transition(cause, ACQUIRED, 2, "m1"), "10..14 ACQUIRED 2 m1 @900")
    assert names == (["lock_ends_no_sooner_than_its_deadline"] if CAUSE_RULES[cause].needs_deadline else [])


@pytest.mark.parametrize("cause", legal_in(ACQUIRED))
def test_a_delivery_ends_with_the_state_of_being_acquired(cause: Cause) -> None:
    to_state, count = next_state(ACQUIRED, cause, 2, 5, False)
    at_limit, _ = next_state(ACQUIRED, cause, 5, 5, False)
    assert (cause in ENDS_OF_DELIVERIES) is (to_state not in (ACQUIRED, RESOLVING))
    assert (cause in UNDELIVERED) is (count < 2)
    assert (cause in RETURNS) is (to_state is AVAILABLE and at_limit is not AVAILABLE)


def test_a_count_falls_for_the_causes_of_its_sets_only() -> None:
    falling = {
        cause for state in RecordState for cause in legal_in(state) if next_state(state, cause, 2, 5, False)[1] < 2
    }
    assert falling == COUNT_RESETS | UNDELIVERED


@pytest.mark.parametrize("table", Tables._fields)
def test_every_column_of_the_rules_has_an_entry_for_each_cause(table: str) -> None:
    assert len(getattr(TABLES, table)) % len(Cause) == 0
