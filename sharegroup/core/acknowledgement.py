"""Acknowledgement requests: each is applied completely or not at all (KIP-932, conformance 12 to 18).

The delay of returned records is an extension of this package, off by default.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.core.cause_rules import ACKNOWLEDGE_CAUSE, CAUSE_RULES, is_suspect_after
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import UNDECIDED_STATES, AcknowledgeType, Cause, RecordState, next_state
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, Transition
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.runs import RunMap
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError

# A lookup in an enumeration takes 60 ns, as long as one in a dictionary.
_ACQUIRED = RecordState.ACQUIRED

_HIGHEST_DOUBLING = 40
"""More doublings than any back-off needs to reach its maximum."""


def planned_transitions(
    runs: RunMap,
    start_offset: int,
    member_id: str,
    batches: Sequence[AcknowledgementBatch],
    limits: SharePartitionLimits,
    now_ms: int,
) -> list[Transition]:
    """Return the transitions for a request, in its order; change nothing.

    Acknowledgements of offsets below the start offset are accepted from any member and have no effect.

    Raises:
        InvalidRequestError: a range is reversed, ends past the last record in flight, has a wrong number of types, or
            says that a write has begun without its version.
        InvalidRecordStateError: a record is not acquired by this member, was acquired with another write, is accepted
            although it has an open write, or is named twice.
    """
    planned: list[Transition] = []
    # The parts of one batch do not overlap.
    acknowledged: RangeMap[None] | None = RangeMap() if len(batches) > 1 else None
    for batch in batches:
        _check_shape(batch)
        if batch.last_offset < start_offset:
            continue
        _check_in_flight(runs, start_offset, batch)
        for first, last, acknowledge_type in batch.runs():
            for run in runs.overlapping(first, last):
                _check_held(run, member_id, acknowledged)
                if run.write_version != NO_WRITE or batch.write_version != NO_WRITE:
                    _check_write(run, batch, acknowledge_type)
                cause = ACKNOWLEDGE_CAUSE[acknowledge_type]
                if batch.is_begun and acknowledge_type is not AcknowledgeType.RENEW:
                    transition = in_doubt(run, cause, limits, now_ms, batch.redelivery_delay_ms)
                else:
                    transition = transition_of(run, cause, limits, now_ms, batch.redelivery_delay_ms)
                if acknowledge_type is AcknowledgeType.RENEW:
                    _check_renew(run, limits)
                elif acknowledged is not None:
                    acknowledged.assign(run.first_offset, run.last_offset, None)
                planned.append(transition)
    return planned


def transition_of(
    run: Run, cause: Cause, limits: SharePartitionLimits, now_ms: int, redelivery_delay_ms: int | None = None
) -> Transition:
    """Return the transition of a whole run for a cause; a member that returns records may ask for a redelivery delay.

    Raises:
        IllegalTransitionError: the run's state does not allow the cause.
    """
    to_state, delivery_count = next_state(
        run.state, cause, run.delivery_count, limits.delivery_count_limit, limits.has_dead_letter_queue
    )
    deadline_ms = 0
    if to_state is _ACQUIRED:
        deadline_ms = now_ms + limits.lock_duration_ms
    elif to_state is RecordState.AVAILABLE:
        deadline_ms = _not_before_ms(cause, delivery_count, limits, now_ms, redelivery_delay_ms)
    write_version = run.write_version
    if write_version != NO_WRITE and to_state not in UNDECIDED_STATES:
        write_version = NO_WRITE
    return Transition(
        run.first_offset,
        run.last_offset,
        run.state,
        to_state,
        delivery_count,
        run.member_id,
        deadline_ms,
        cause,
        is_suspect_after(to_state, cause, was_suspect=run.is_suspect),
        write_version,
    )


def lock_end_of(run: Run, cause: Cause, limits: SharePartitionLimits, now_ms: int) -> Transition:
    """Return the transition of an ACQUIRED run whose lock ends without an acknowledgement."""
    end = transition_of if run.write_version == NO_WRITE else in_doubt
    return end(run, cause, limits, now_ms)


def in_doubt(
    run: Run, cause: Cause, limits: SharePartitionLimits, now_ms: int, redelivery_delay_ms: int | None = None
) -> Transition:
    """Return the transition of an ACQUIRED run whose delivery ends by a cause, if it is not in the sink after all."""
    intended = transition_of(run, cause, limits, now_ms, redelivery_delay_ms)
    doubt = transition_of(run, Cause.IN_DOUBT, limits, now_ms)
    return doubt._replace(deadline_ms=intended.deadline_ms, intended=cause)


def not_written(run: Run, limits: SharePartitionLimits, now_ms: int) -> Transition:
    """Return the transition of a run with an open write that is not in the sink: the end that was intended applies."""
    if run.intended is None:
        return transition_of(run, Cause.NOT_WRITTEN, limits, now_ms)
    transition = transition_of(run, run.intended, limits, now_ms)
    is_delayed = transition.to_state is RecordState.AVAILABLE and run.deadline_ms > now_ms
    return transition._replace(deadline_ms=run.deadline_ms if is_delayed else 0)


def _not_before_ms(
    cause: Cause, delivery_count: int, limits: SharePartitionLimits, now_ms: int, asked_delay_ms: int | None
) -> int:
    """Return the time before which a newly AVAILABLE record is not acquired; 0 when it may be acquired at once.

    A member that returns a record, by `release` or `unread`, may set the delay. Otherwise the group's back-off applies
    where an application failed on the record; it doubles with each delivery after the first.
    """
    if asked_delay_ms is not None:
        delay_ms = asked_delay_ms
    elif CAUSE_RULES[cause].backs_off:
        doublings = min(max(delivery_count - 1, 0), _HIGHEST_DOUBLING)
        delay_ms = min(limits.redelivery_backoff_ms << doublings, limits.redelivery_backoff_max_ms)
    else:
        delay_ms = 0
    return now_ms + delay_ms if delay_ms else 0


def _check_shape(batch: AcknowledgementBatch) -> None:
    if batch.first_offset > batch.last_offset or batch.first_offset < 0:
        raise InvalidRequestError(
            f"Acknowledgement batch {batch.first_offset}..{batch.last_offset} is not an ascending range of offsets."
        )
    size = batch.last_offset - batch.first_offset + 1
    if len(batch.types) not in (1, size):
        raise InvalidRequestError(
            f"Acknowledgement batch {batch.first_offset}..{batch.last_offset} has {len(batch.types)} types; "
            f"it needs 1 or {size}."
        )
    if batch.is_begun and batch.write_version == NO_WRITE:
        raise InvalidRequestError(
            f"Acknowledgement batch {batch.first_offset}..{batch.last_offset} says that its write has begun, "
            "and names no write."
        )


def _check_in_flight(runs: RunMap, start_offset: int, batch: AcknowledgementBatch) -> None:
    last_in_flight = runs.last_offset
    if last_in_flight is None:
        raise InvalidRecordStateError(
            f"Offsets {batch.first_offset}..{batch.last_offset} are not acquired: nothing is in flight "
            f"at or after the share-partition start offset {start_offset}."
        )
    if batch.last_offset > last_in_flight:
        raise InvalidRequestError(
            f"Acknowledgement batch {batch.first_offset}..{batch.last_offset} ends past the last offset in flight, "
            f"{last_in_flight}."
        )


def _check_held(run: Run, member_id: str, acknowledged: RangeMap[None] | None) -> None:
    if run.state is not _ACQUIRED or run.member_id != member_id:
        raise InvalidRecordStateError(
            f"Offsets {run.first_offset}..{run.last_offset} are {run.state.name}"
            f"{' by another member' if run.member_id else ''}, not acquired by member {member_id}."
        )
    if acknowledged is not None and (twice := acknowledged.overlapping(run.first_offset, run.last_offset)):
        raise InvalidRecordStateError(f"Offsets {twice[0][0]}..{twice[0][1]} are acknowledged twice in one request.")


def _check_write(run: Run, batch: AcknowledgementBatch, acknowledge_type: AcknowledgeType) -> None:
    """Refuse an acknowledgement of an earlier delivery to the same member, and one that only the sink may give."""
    if run.write_version != batch.write_version:
        raise InvalidRecordStateError(
            f"Offsets {run.first_offset}..{run.last_offset} are acquired with write {run.write_version}; "
            f"the acknowledgement is of write {batch.write_version}."
        )
    if run.write_version != NO_WRITE and acknowledge_type is AcknowledgeType.ACCEPT:
        raise InvalidRecordStateError(
            f"Offsets {run.first_offset}..{run.last_offset} have the open write {run.write_version}, and are accepted "
            "by what its sink says alone.",
            "Send ResolveWrite after the commit.",
        )


def _check_renew(run: Run, limits: SharePartitionLimits) -> None:
    if not limits.is_renew_enabled:
        raise InvalidRecordStateError(
            f"Offsets {run.first_offset}..{run.last_offset} cannot be renewed: share.renew.acknowledge.enable is false."
        )
