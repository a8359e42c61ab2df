from __future__ import annotations

from itertools import product

import pytest

from sharegroup.core.record_state import (
    TRANSITIONS,
    Cause,
    RecordState,
    next_state,
    outcome_of,
)
from sharegroup.errors import IllegalTransitionError

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, RESOLVING = RecordState

LEGAL = {
    # (state, cause): (below the limit, at the limit, below the limit with a dead-letter queue, at it with one)
    (AVAILABLE, Cause.ACQUIRE): (ACQUIRED, ACQUIRED, ACQUIRED, ACQUIRED),
    (AVAILABLE, Cause.LOG_START): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (AVAILABLE, Cause.OFFSET_RESET): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (AVAILABLE, Cause.IMPORTED): (AVAILABLE, AVAILABLE, AVAILABLE, AVAILABLE),
    (ACQUIRED, Cause.GAP): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (ACQUIRED, Cause.ACCEPT): (ACKNOWLEDGED, ACKNOWLEDGED, ACKNOWLEDGED, ACKNOWLEDGED),
    (ACQUIRED, Cause.RELEASE): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (ACQUIRED, Cause.REJECT): (ARCHIVED, ARCHIVED, ARCHIVING, ARCHIVING),
    (ACQUIRED, Cause.RENEW): (ACQUIRED, ACQUIRED, ACQUIRED, ACQUIRED),
    (ACQUIRED, Cause.UNREAD): (AVAILABLE, AVAILABLE, AVAILABLE, AVAILABLE),
    (ACQUIRED, Cause.LOCK_TIMEOUT): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (ACQUIRED, Cause.SESSION_CLOSE): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (ACQUIRED, Cause.MEMBER_SILENT): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (ACQUIRED, Cause.MEMBER_ENDED): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (ACQUIRED, Cause.LOG_START): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (ACQUIRED, Cause.OFFSET_RESET): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (ARCHIVING, Cause.DEAD_LETTER_WRITTEN): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (ARCHIVING, Cause.LOG_START): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (ARCHIVING, Cause.OFFSET_RESET): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (ARCHIVING, Cause.IMPORTED): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (ACQUIRED, Cause.IN_DOUBT): (RESOLVING, RESOLVING, RESOLVING, RESOLVING),
    (ACQUIRED, Cause.NOT_WRITTEN): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (RESOLVING, Cause.GAP): (ARCHIVED, ARCHIVED, ARCHIVED, ARCHIVED),
    (RESOLVING, Cause.ACCEPT): (ACKNOWLEDGED, ACKNOWLEDGED, ACKNOWLEDGED, ACKNOWLEDGED),
    (RESOLVING, Cause.RELEASE): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (RESOLVING, Cause.REJECT): (ARCHIVED, ARCHIVED, ARCHIVING, ARCHIVING),
    (RESOLVING, Cause.UNREAD): (AVAILABLE, AVAILABLE, AVAILABLE, AVAILABLE),
    (RESOLVING, Cause.LOCK_TIMEOUT): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (RESOLVING, Cause.SESSION_CLOSE): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (RESOLVING, Cause.MEMBER_SILENT): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (RESOLVING, Cause.MEMBER_ENDED): (AVAILABLE, ARCHIVED, AVAILABLE, ARCHIVING),
    (ARCHIVED, Cause.REDRIVE): (AVAILABLE, AVAILABLE, AVAILABLE, AVAILABLE),
}
COUNT_CHANGE = {Cause.ACQUIRE: +1, Cause.UNREAD: -1}
LIMIT = 5


def test_the_table_has_an_entry_for_every_pair() -> None:
    assert {(state, cause) for state, row in TRANSITIONS.items() for cause in row} == set(product(RecordState, Cause))


@pytest.mark.parametrize(("state", "cause"), LEGAL, ids=lambda value: value.name)
def test_a_legal_pair_leads_where_the_table_of_examples_says(state: RecordState, cause: Cause) -> None:
    reached = tuple(
        next_state(state, cause, count, LIMIT, has_dead_letter_queue)
        for has_dead_letter_queue in (False, True)
        for count in (LIMIT - 1, LIMIT)
    )
    counts = (LIMIT - 1, LIMIT, LIMIT - 1, LIMIT)
    change = COUNT_CHANGE.get(cause, 0)
    if cause is Cause.REDRIVE:
        counts, change = (0, 0, 0, 0), 0
    assert reached == tuple((to, count + change) for to, count in zip(LEGAL[state, cause], counts, strict=True))


@pytest.mark.parametrize(
    ("state", "cause"), sorted(set(product(RecordState, Cause)) - set(LEGAL)), ids=lambda value: value.name
)
def test_every_other_pair_is_refused(state: RecordState, cause: Cause) -> None:
    with pytest.raises(IllegalTransitionError, match=f"{state.name} cannot change by {cause.value}"):
        outcome_of(state, cause)


def test_a_count_past_a_lowered_limit_is_at_the_limit() -> None:
    assert next_state(ACQUIRED, Cause.RELEASE, LIMIT + 2, LIMIT, False) == (ARCHIVED, LIMIT + 2)


def test_finished_states_are_the_ones_that_only_a_redrive_leaves() -> None:
    assert {state for state in RecordState if state.is_terminal} == {
        state for state, row in TRANSITIONS.items() if {cause for cause, o in row.items() if o} <= {Cause.REDRIVE}
    }
