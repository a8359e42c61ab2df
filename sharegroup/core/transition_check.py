"""One answer for all invariants of a transition, for audits of long histories.

The invariants (`core/record_invariants.py`) name what does not hold, each by itself. Nearly all transitions of a
history hold: this asks once, and the invariants are asked only where the answer is False.
"""

from __future__ import annotations

from sharegroup.core.cause_rules import DELIVERIES
from sharegroup.core.record_state import RecordState
from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.transition_rules import (
    CAUSE_NUMBERS,
    NOT_IN_FLIGHT,
    Change,
    FreshRecords,
    holds,
    is_within_the_span,
    is_within_the_window,
)


def record_holds(
    before: SharePartition, record: Transition, limits: SharePartitionLimits, now_ms: int, highest_limit: int
) -> bool:
    """Return True if `check_record` has no violation of a transition, for a fraction of its cost.

    A change that another system or an administrator has decided is never answered with True, nor a portion of suspects,
    nor a change of records with an open write.

    Args:
        before: the state that the transition is about to change.
        limits: see `Circumstances`.
        now_ms: see `Circumstances`.
        highest_limit: the highest delivery count limit that applied to any record in flight.
    """
    if record.cause in DELIVERIES and before.runs.are_suspects_held_by(record.member_id):
        return False
    if record.write_version != NO_WRITE or record.from_state is RecordState.RESOLVING:
        return False
    if record.from_state is None:
        change, fresh = change_of(before, record, None, now_ms), fresh_records_of(before, record, now_ms)
        return record.first_offset >= before.next_offset and bool(
            holds(change, limits, highest_limit)
            & is_within_the_window(fresh, limits)
            & is_within_the_span(fresh, limits)
        )
    if record.first_offset < before.start_offset or record.last_offset >= before.next_offset:
        return False
    return all(
        run.write_version == NO_WRITE and holds(change_of(before, record, run, now_ms), limits, highest_limit)
        for run in before.runs.overlapping(record.first_offset, record.last_offset)
    )


def change_of(before: SharePartition, record: Transition, run: Run | None, now_ms: int) -> Change:
    """Return a transition with a run that it touches, for its rules.

    Args:
        before: the state that the transition is about to change.
        run: the run; None if the records are not in flight, or the rule is not about runs.
        now_ms: the time at which it was made.
    """
    _, _, from_state, to_state, delivery_count, member_id, deadline_ms, cause, is_suspect, *_ = record
    return Change(
        NOT_IN_FLIGHT if from_state is None else from_state,
        to_state,
        delivery_count,
        member_id,
        deadline_ms,
        CAUSE_NUMBERS[cause],
        now_ms,
        NOT_IN_FLIGHT if run is None else run.state,
        0 if run is None else run.delivery_count,
        "" if run is None else run.member_id,
        0 if run is None else run.deadline_ms,
        is_suspect,
        False if run is None else run.is_suspect,
    )


def fresh_records_of(before: SharePartition, record: Transition, now_ms: int) -> FreshRecords:
    """Return a transition of records that were never in flight, for its rules.

    Args:
        before: the state that the transition is about to change.
        now_ms: the time at which it was made.
    """
    return FreshRecords(
        record.last_offset,
        before.start_offset,
        before.next_offset,
        before.runs.window_count(now_ms),
        len(before.runs),
    )
