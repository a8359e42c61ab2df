"""Invariants of each record that changes a share-partition (spec 002, "Invariants & guarantees").

Those of open writes are in `write_invariants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

from sharegroup.core.cause_rules import CAUSE_RULES, COUNT_RESETS, DELIVERIES, Author
from sharegroup.core.invariants import Circumstances, Violation, shown
from sharegroup.core.record_state import TRANSITIONS, Cause, RecordState, next_state
from sharegroup.core.records import SharePartitionRecord, StartOffsetMoved, Transition
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.suspects import portion_size
from sharegroup.core.transition_check import change_of, fresh_records_of
from sharegroup.core.transition_rules import (
    Change,
    acquires_no_delayed_record,
    count_does_not_fall,
    count_is_within_limit,
    ends_an_overdue_lock,
    is_by_its_holder,
    is_marked_as_suspect,
    is_within_the_span,
    is_within_the_window,
    lock_has_its_duration,
    starts_from_its_run,
)
from sharegroup.core.write_invariants import (
    end_of_a_lock_leaves_a_write_in_doubt,
    intended_end_is_applied,
    record_keeps_its_write_until_it_is_decided,
    write_opens_and_closes_once,
)

RecordInvariant = Callable[[SharePartition, SharePartitionRecord, Circumstances], list[Violation]]

RECORD_INVARIANTS: dict[str, RecordInvariant] = {}
"""Name → invariant of a record and of the state that it is about to change."""


def check_record(before: SharePartition, record: SharePartitionRecord, circumstances: Circumstances) -> list[Violation]:
    """Return the violations of a record; the cost grows with the runs that it touches."""
    return [
        violation for invariant in RECORD_INVARIANTS.values() for violation in invariant(before, record, circumstances)
    ]


def _transition_invariant(
    details: Callable[[SharePartition, Transition, Circumstances], Iterator[str]],
) -> RecordInvariant:
    @wraps(details)
    def invariant(
        before: SharePartition, record: SharePartitionRecord, circumstances: Circumstances
    ) -> list[Violation]:
        if not isinstance(record, Transition):
            return []
        return [Violation(details.__name__, detail) for detail in details(before, record, circumstances)]

    RECORD_INVARIANTS[details.__name__] = invariant
    return invariant


def _start_offset_invariant(details: Callable[[SharePartition, StartOffsetMoved], Iterator[str]]) -> RecordInvariant:
    @wraps(details)
    def invariant(
        before: SharePartition, record: SharePartitionRecord, circumstances: Circumstances
    ) -> list[Violation]:
        if not isinstance(record, StartOffsetMoved):
            return []
        return [Violation(details.__name__, detail) for detail in details(before, record)]

    RECORD_INVARIANTS[details.__name__] = invariant
    return invariant


def _changes(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[tuple[Run, Change]]:
    """Yield each run that a transition touches, with the two as the rules take them."""
    for run in before.runs.overlapping(transition.first_offset, transition.last_offset):
        yield run, change_of(before, transition, run, circumstances.now_ms)


@_transition_invariant
def transition_is_in_the_table(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that the new state and count follow the transition table.

    Two outcomes depend on the delivery count limit and on the dead-letter queue: `circumstances` must hold the
    configuration of that moment. Exception: the states that a record of another system may have reached there.
    """
    from_state = RecordState.AVAILABLE if transition.from_state is None else transition.from_state
    outcome = TRANSITIONS[from_state][transition.cause]
    if outcome is None:
        yield f"{shown(transition)}: a record that is {from_state.name} cannot change by that"
        return
    limits = circumstances.limits
    count_before = transition.delivery_count - outcome.delivery_count_change
    expected, count = next_state(
        from_state, transition.cause, count_before, limits.delivery_count_limit, limits.has_dead_letter_queue
    )
    if transition.to_state is not expected and transition.to_state not in outcome.other_states:
        yield f"{shown(transition)}: from {from_state.name} with count {count_before} that leads to {expected.name}"
    if transition.delivery_count != count and not outcome.other_states:
        yield f"{shown(transition)}: that leads to the count {count}"


@_transition_invariant
def transition_starts_from_the_state_before(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that records have the state and count from which the transition starts: no update is lost.

    A transition without a state before must lie past all records in flight, and starts from the count 0. Exception: the
    count of a record that another system has delivered meanwhile.
    """
    from_state = transition.from_state
    outcome = TRANSITIONS[RecordState.AVAILABLE if from_state is None else from_state][transition.cause]
    count_before = transition.delivery_count - (outcome.delivery_count_change if outcome else 0)
    has_any_count = outcome is not None and (outcome.resets_delivery_count or bool(outcome.other_states))
    if from_state is None:
        if transition.first_offset < before.next_offset:
            yield f"{shown(transition)} says never in flight, but all below {before.next_offset} was"
        change = change_of(before, transition, None, circumstances.now_ms)
        if not starts_from_its_run(change) and not has_any_count:
            yield f"{shown(transition)} starts from {count_before} deliveries, but was never in flight"
        return
    if transition.first_offset < before.start_offset or transition.last_offset >= before.next_offset:
        yield f"{shown(transition)} is not within {before.start_offset}..{before.next_offset - 1}, which is in flight"
    for run, change in _changes(before, transition, circumstances):
        if not starts_from_its_run(change) and not (has_any_count and run.state is from_state):
            yield f"{shown(transition)} starts from {from_state.name} with {count_before}, not {shown(run)}"


@_transition_invariant
def delivery_count_never_falls(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that a delivery count never falls.

    Exceptions: `unread` takes one delivery back, because it was no failure of the record; `redrive` starts again
    with 0, by an administrator's request.
    """
    if transition.cause in COUNT_RESETS:
        return
    for run, change in _changes(before, transition, circumstances):
        if not count_does_not_fall(change):
            yield f"{shown(transition)} lowers the delivery count of {shown(run)}"


@_transition_invariant
def delivery_count_stays_within_limit(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that a record is delivered at most `share.delivery.count.limit` times.

    Exception: the limit was lowered meanwhile; then `circumstances.highest_delivery_count_limit` is the bound.
    """
    limit = circumstances.highest_delivery_count_limit or circumstances.limits.delivery_count_limit
    if not count_is_within_limit(change_of(before, transition, None, circumstances.now_ms), limit):
        yield f"{shown(transition)} is delivery {transition.delivery_count} of at most {limit}"


@_transition_invariant
def lock_ends_no_sooner_than_its_deadline(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that LOCK_TIMEOUT comes at the lock's deadline or later.

    No exceptions: a renewal changes the deadline itself.
    """
    for run, change in _changes(before, transition, circumstances):
        if not ends_an_overdue_lock(change):
            yield f"{shown(transition)} at {circumstances.now_ms} ends a lock that runs until {run.deadline_ms}"


@_transition_invariant
def lock_runs_for_its_duration(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that a new or renewed lock ends `share.record.lock.duration.ms` later.

    No exceptions.
    """
    if not lock_has_its_duration(change_of(before, transition, None, circumstances.now_ms), circumstances.limits):
        deadline_ms = circumstances.now_ms + circumstances.limits.lock_duration_ms
        yield f"{shown(transition)} is locked until {transition.deadline_ms}, not {deadline_ms}"


@_transition_invariant
def delayed_records_are_not_acquired(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that a record released with a delay is not acquired before its "not before" time.

    No exceptions.
    """
    for run, change in _changes(before, transition, circumstances):
        if not acquires_no_delayed_record(change):
            yield f"{shown(transition)} at {circumstances.now_ms} takes records that wait until {run.deadline_ms}"


@_transition_invariant
def acknowledged_only_by_its_holder(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that only the member that holds a record acknowledges, renews, returns or releases it.

    No exceptions: offsets below the SPSO may be acknowledged by any member, but make no transition.
    """
    for run, change in _changes(before, transition, circumstances):
        if not is_by_its_holder(change):
            yield f"{shown(transition)} of {transition.member_id!r}, but {shown(run)} is held by {run.member_id!r}"


@_transition_invariant
def suspicion_follows_the_cause(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that records are suspects when their last delivery ended without an acknowledgement of the application.

    No exceptions: an acquisition, a renewal, `unread` and a closed session leave the suspicion as it was.
    """
    if transition.from_state is None:
        if transition.is_suspect:
            yield f"{shown(transition)} is a suspect, but was never in flight"
        return
    for run, change in _changes(before, transition, circumstances):
        if not is_marked_as_suspect(change):
            was, becomes = ("is a suspect" if value else "is none" for value in (run.is_suspect, transition.is_suspect))
            yield f"{shown(transition)} {becomes}, and {shown(run)} {was}"


@_transition_invariant
def suspects_are_delivered_apart(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that a member takes suspects in a portion (`suspects.portion_size`), and holds nothing beside them.

    No exceptions within a share-partition. Of other share-partitions and of other members of the process the leader
    knows, but not a share-partition's state.
    """
    if transition.cause not in DELIVERIES:
        return
    held = before.runs.held_by(transition.member_id)
    if not transition.is_suspect:
        if before.runs.are_suspects_held_by(transition.member_id):
            yield f"{shown(transition)} is taken by {transition.member_id!r}, which holds suspects"
        return
    count = transition.delivery_count
    same = True, count, transition.deadline_ms
    together = [run for run in held if (run.is_suspect, run.delivery_count, run.deadline_ms) == same]
    if len(together) < len(held):
        yield f"{shown(transition)} are suspects, taken by {transition.member_id!r}, which holds other records"
    taken = sum(run.size for run in together) + transition.size
    waiting = before.runs.suspect_count(count - 1) + taken - transition.size
    portion = portion_size(waiting, count - 1, circumstances.limits.delivery_count_limit)
    if taken > portion:
        yield f"{shown(transition)} makes {taken} of {waiting} suspects taken together, at most {portion} may be"


@_start_offset_invariant
def start_offset_passes_only_finished_records(before: SharePartition, moved: StartOffsetMoved) -> Iterator[str]:
    """Check that the SPSO passes only records in a terminal state, and at most all that were in flight.

    Exceptions: LOG_START, because records below it no longer exist; OFFSET_RESET, an administrator's request.
    """
    if moved.cause is not None:
        return
    if moved.start_offset > before.next_offset:
        yield f"the start offset {moved.start_offset} passes {before.next_offset}, which was never in flight"
    for run in before.runs.overlapping(before.start_offset, moved.start_offset - 1):
        if not run.state.is_terminal:
            yield f"the start offset {moved.start_offset} passes {shown(run)}"


@_start_offset_invariant
def start_offset_never_falls(before: SharePartition, moved: StartOffsetMoved) -> Iterator[str]:
    """Check that the SPSO only moves up.

    Exception: OFFSET_RESET, an administrator's request to deliver again.
    """
    if moved.cause is not Cause.OFFSET_RESET and moved.start_offset <= before.start_offset:
        yield f"the start offset moves from {before.start_offset} to {moved.start_offset}"


def _is_fresh(transition: Transition) -> bool:
    """Return True if records come in flight here; those of another system had the limits of that system."""
    return transition.from_state is None and CAUSE_RULES[transition.cause].author is not Author.OTHER_SYSTEM


@_transition_invariant
def window_is_within_limit(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that fresh records fit into `share.partition.max.record.locks` with all that are acquired or available.

    Delayed records do not count, nor do finished ones and those that wait for their dead-letter record. A group that
    drains acquires no fresh records.
    Exceptions: records that were in flight before may be acquired again at any time, because the limit may have been
    lowered, or a delay may have ended, meanwhile; records of another system had the limit of that system.
    """
    if not _is_fresh(transition):
        return
    limits, fresh = circumstances.limits, fresh_records_of(before, transition, circumstances.now_ms)
    if not is_within_the_window(fresh, limits):
        room = 0 if limits.is_draining else max(limits.max_record_locks - fresh.window_count, 0)
        yield f"{shown(transition)} reaches past the window, which has room for {room} from {before.next_offset} on"


@_transition_invariant
def span_is_within_limit(before: SharePartition, transition: Transition, circumstances: Circumstances) -> Iterator[str]:
    """Check that fresh records lie within the span from the SPSO, and come while few enough runs are in flight.

    Exceptions: records that were in flight before may be acquired again wherever they are, and divide runs; records of
    another system had the limits of that system.
    """
    if not _is_fresh(transition):
        return
    limits, fresh = circumstances.limits, fresh_records_of(before, transition, circumstances.now_ms)
    if not is_within_the_span(fresh, limits):
        span_end = before.start_offset + limits.span_limit
        yield (
            f"{shown(transition)} with {fresh.run_count} of at most {limits.max_runs} runs in flight reaches past the "
            f"span, which ends before {span_end}"
        )


for _details in (
    record_keeps_its_write_until_it_is_decided,
    end_of_a_lock_leaves_a_write_in_doubt,
    intended_end_is_applied,
):
    _transition_invariant(_details)
RECORD_INVARIANTS[write_opens_and_closes_once.__name__] = write_opens_and_closes_once
