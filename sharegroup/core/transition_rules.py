"""The rules of a transition, each written once: for one transition, and for columns of them.

A rule is an expression of comparisons, `&` and `|`. So its fields may be numbers, for one transition and one run that
it touches, or columns of numbers, for a long history: the answer is one truth value, or a column of them. `invariants`
names what does not hold by the same rules, and `holds` asks all of them at once.

States, causes and members are numbers here: a record that is not in flight has the state `NOT_IN_FLIGHT`, a cause its
position in `CAUSES`; members need only be distinguished.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from sharegroup.core.cause_rules import (
    CAUSE_RULES,
    DELIVERIES,
    ENDS_OF_LOCKS,
    HOLDER_ACTS,
    OVERDUE,
    UNDELIVERED,
    Suspicion,
    is_persisted_by_kafka,
)
from sharegroup.core.record_state import TRANSITIONS, Cause, RecordState, next_state

NOT_IN_FLIGHT = -1
"""The state of a record past all that are in flight."""

CAUSES = tuple(Cause)
CAUSE_NUMBERS = {cause: number for number, cause in enumerate(CAUSES)}

_UNANSWERED = -2
"""The outcome of an illegal pair, and of one that an administrator or another system decides."""
_ANY_LIMIT = 2
_STATE_COUNT = len(RecordState)
_ACQUIRED = int(RecordState.ACQUIRED)
_AVAILABLE = int(RecordState.AVAILABLE)
_RESOLVING = int(RecordState.RESOLVING)


class Change(NamedTuple):
    """A transition and a run that it touches, as numbers or as columns of them.

    Attributes:
        delivery_count: its count after.
        now_ms: the time at which it was made.
    """

    from_state: Any
    to_state: Any
    delivery_count: Any
    member: Any
    deadline_ms: Any
    cause: Any
    now_ms: Any
    run_state: Any
    run_count: Any
    run_member: Any
    run_deadline_ms: Any
    is_suspect: Any
    run_is_suspect: Any


class FreshRecords(NamedTuple):
    """A transition of records that were never in flight, and the state before it, as numbers or as columns of them.

    Attributes:
        last_offset: last offset of the transition.
        start_offset: the start offset before it.
        next_offset: the lowest offset that was never in flight. Those from it on that the transition skips become
            available.
        window_count: records that are acquired, or available and not delayed.
        run_count: runs in flight.
    """

    last_offset: Any
    start_offset: Any
    next_offset: Any
    window_count: Any
    run_count: Any


class Tables(NamedTuple):
    """The transition table as sequences; as columns of numbers they answer for columns.

    Attributes:
        next_state: (state and cause, is at the limit, has a dead-letter queue) → new state.
        count_change: state and cause → change of the delivery count.
        is_delivery: cause → 1 if a member receives the records.
        is_undelivered: cause → 1 if it takes a delivery back.
        is_holder_act: cause → 1 if only the holder may do it.
        is_end_of_lock: cause → 1 if a lock ends by itself.
        needs_deadline: cause → 1 if it ends no lock before its deadline.
        is_persisted: (new state, cause) → 1 if Kafka would store it.
        raises_suspicion: cause → 1 if a record is a suspect after it.
        keeps_suspicion: cause → 1 if a record is a suspect after it that was one before.
    """

    next_state: Any
    count_change: Any
    is_delivery: Any
    is_undelivered: Any
    is_holder_act: Any
    is_end_of_lock: Any
    needs_deadline: Any
    is_persisted: Any
    raises_suspicion: Any
    keeps_suspicion: Any


def _next_states() -> tuple[int, ...]:
    """Ask the engine for each pair, below the limit and at it, without a dead-letter queue and with one."""
    answers: list[int] = []
    for from_state in range(NOT_IN_FLIGHT, _STATE_COUNT):
        state = RecordState(max(from_state, RecordState.AVAILABLE))
        for cause in CAUSES:
            outcome = TRANSITIONS[state][cause]
            is_answered = outcome is not None and not outcome.resets_delivery_count and not outcome.other_states
            for is_at_limit in (False, True):
                for has_dead_letter_queue in (False, True):
                    count = _ANY_LIMIT if is_at_limit else _ANY_LIMIT - 1
                    answer = _UNANSWERED
                    if is_answered:
                        answer = next_state(state, cause, count, _ANY_LIMIT, has_dead_letter_queue)[0]
                    answers.append(int(answer))
    return tuple(answers)


def _count_changes() -> tuple[int, ...]:
    states = [RecordState(max(state, RecordState.AVAILABLE)) for state in range(NOT_IN_FLIGHT, _STATE_COUNT)]
    outcomes = [TRANSITIONS[state][cause] for state in states for cause in CAUSES]
    return tuple(0 if outcome is None else outcome.delivery_count_change for outcome in outcomes)


def _is_in(causes: Collection[Cause]) -> tuple[int, ...]:
    return tuple(int(cause in causes) for cause in CAUSES)


TABLES = Tables(
    _next_states(),
    _count_changes(),
    _is_in(DELIVERIES),
    _is_in(UNDELIVERED),
    _is_in(HOLDER_ACTS),
    _is_in(ENDS_OF_LOCKS),
    _is_in(OVERDUE),
    tuple(int(is_persisted_by_kafka(state, cause)) for state in RecordState for cause in CAUSES),
    _is_in({cause for cause in CAUSES if CAUSE_RULES[cause].suspicion is Suspicion.RAISED}),
    _is_in({cause for cause in CAUSES if CAUSE_RULES[cause].suspicion is Suspicion.KEPT}),
)


def pair_of(from_state: Any, cause: Any) -> Any:
    """Return the position of a state and a cause in `Tables`."""
    return (from_state + 1) * len(CAUSES) + cause


def is_persisted(to_state: Any, cause: Any, tables: Tables) -> Any:
    """Return true if Kafka would store the transition."""
    return tables.is_persisted[to_state * len(CAUSES) + cause] == 1


def is_in_the_table(change: Change, limits: Any, tables: Tables = TABLES) -> Any:
    """Return true if the new state follows from the state, the cause and the count; never for what others decide."""
    pair = pair_of(change.from_state, change.cause)
    is_at_limit = change.delivery_count - tables.count_change[pair] >= limits.delivery_count_limit
    return change.to_state == tables.next_state[4 * pair + 2 * is_at_limit + limits.has_dead_letter_queue]


def starts_from_its_run(change: Change, tables: Tables = TABLES) -> Any:
    """Return true if the run has the state and count from which the transition starts."""
    count_before = change.delivery_count - tables.count_change[pair_of(change.from_state, change.cause)]
    return (change.run_state == change.from_state) & (change.run_count == count_before)


def count_does_not_fall(change: Change, tables: Tables = TABLES) -> Any:
    """Return true if the delivery count does not fall, but by the one delivery that `unread` takes back."""
    return change.delivery_count >= change.run_count - tables.is_undelivered[change.cause]


def count_is_within_limit(change: Change, highest_limit: Any, tables: Tables = TABLES) -> Any:
    """Return true unless the transition is one delivery too many."""
    return (tables.is_delivery[change.cause] == 0) | (change.delivery_count <= highest_limit)


def ends_an_overdue_lock(change: Change, tables: Tables = TABLES) -> Any:
    """Return true unless the transition ends a lock before its deadline; a RESOLVING record has no lock any more."""
    is_overdue = (change.run_deadline_ms <= change.now_ms) | (change.run_state == _RESOLVING)
    return (tables.needs_deadline[change.cause] == 0) | is_overdue


def lock_has_its_duration(change: Change, limits: Any) -> Any:
    """Return true unless the transition makes a lock of another duration."""
    return (change.to_state != _ACQUIRED) | (change.deadline_ms == change.now_ms + limits.lock_duration_ms)


def acquires_no_delayed_record(change: Change, tables: Tables = TABLES) -> Any:
    """Return true unless the transition acquires records before their "not before" time."""
    is_delayed = (change.run_state == _AVAILABLE) & (change.run_deadline_ms > change.now_ms)
    return (tables.is_delivery[change.cause] == 0) | (is_delayed == 0)


def is_by_its_holder(change: Change, tables: Tables = TABLES) -> Any:
    """Return true unless a member changes what another one holds."""
    return (tables.is_holder_act[change.cause] == 0) | (change.run_member == change.member)


def names_the_holder(change: Change, tables: Tables = TABLES) -> Any:
    """Return true unless a lock ends by itself, and the transition names another member than its holder."""
    return (tables.is_end_of_lock[change.cause] == 0) | (change.run_member == change.member)


def is_within_the_window(fresh: FreshRecords, limits: Any) -> Any:
    """Return true unless fresh records are acquired past `share.partition.max.record.locks`, or while draining."""
    count = fresh.window_count + fresh.last_offset + 1 - fresh.next_offset
    return (count <= limits.max_record_locks) & (limits.is_draining == 0)


def is_within_the_span(fresh: FreshRecords, limits: Any) -> Any:
    """Return true unless fresh records are acquired too far from the start offset, or with too many runs in flight."""
    return (fresh.last_offset < fresh.start_offset + limits.span_limit) & (fresh.run_count < limits.max_runs)


def is_marked_as_suspect(change: Change, tables: Tables = TABLES) -> Any:
    """Return true if the records are suspects after the transition exactly when they should be."""
    is_in_use = (change.to_state == _AVAILABLE) | (change.to_state == _ACQUIRED) | (change.to_state == _RESOLVING)
    is_kept = (tables.keeps_suspicion[change.cause] == 1) & (change.run_is_suspect == 1)
    return change.is_suspect == (((tables.raises_suspicion[change.cause] == 1) | is_kept) & is_in_use)


def takes_no_suspects(change: Change, tables: Tables = TABLES) -> Any:
    """Return true unless a member receives suspects, whose portion depends on more than the transition and its run."""
    return (tables.is_delivery[change.cause] == 0) | (change.run_is_suspect == 0)


def holds(change: Change, limits: Any, highest_limit: Any, tables: Tables = TABLES) -> Any:
    """Return true where no rule about a transition and the runs that it touches is broken.

    Never for a portion of suspects: it hangs on more than these fields.

    Args:
        limits: `SharePartitionLimits`, or its fields as columns.
        highest_limit: the highest delivery count limit that applied to any record in flight.
        tables: the transition table, as columns for columns.
    """
    return (
        is_in_the_table(change, limits, tables)
        & starts_from_its_run(change, tables)
        & count_does_not_fall(change, tables)
        & count_is_within_limit(change, highest_limit, tables)
        & ends_an_overdue_lock(change, tables)
        & lock_has_its_duration(change, limits)
        & acquires_no_delayed_record(change, tables)
        & is_by_its_holder(change, tables)
        & is_marked_as_suspect(change, tables)
        & takes_no_suspects(change, tables)
    )
