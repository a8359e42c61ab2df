"""What an acknowledgement request does: all of it, or nothing (KIP-932, conformance 12 to 18)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sharegroup.core.record_state import ACKNOWLEDGE_CAUSE, AcknowledgeType, Cause, RecordState, next_state
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, Transition
from sharegroup.core.redelivery import not_before_ms
from sharegroup.core.runs import Run, RunMap
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError


def planned_transitions(
    runs: RunMap,
    start_offset: int,
    member_id: str,
    batches: Sequence[AcknowledgementBatch],
    limits: SharePartitionLimits,
    now_ms: int,
) -> list[Transition]:
    """The transitions that a request asks for, in its order; nothing is changed.

    Offsets below the start offset take any acknowledgement, from any member, without effect.

    Raises:
        InvalidRequestError: a range is reversed or ends past the last record in flight, or the number of types is off.
        InvalidRecordStateError: a record is not acquired by this member, or is named twice.
    """
    planned: list[Transition] = []
    taken = _TakenRecords()
    for batch in batches:
        _check_shape(batch)
        if batch.last_offset < start_offset:
            continue
        _check_in_flight(runs, start_offset, batch)
        for first, last, acknowledge_type in _pieces(batch):
            for run in runs.overlapping(first, last):
                _check_held(run, member_id, taken)
                cause = ACKNOWLEDGE_CAUSE[acknowledge_type]
                transition = transition_of(run, cause, limits, now_ms, batch.redelivery_delay_ms)
                if acknowledge_type is AcknowledgeType.RENEW:
                    _check_renew(run, limits)
                else:
                    taken.add(run)
                planned.append(transition)
    return planned


def transition_of(
    run: Run, cause: Cause, limits: SharePartitionLimits, now_ms: int, redelivery_delay_ms: int | None = None
) -> Transition:
    """The transition that a cause makes of a whole run.

    Args:
        run: the records.
        cause: what happens to them.
        limits: limits in force.
        now_ms: when it happens.
        redelivery_delay_ms: how long a member that releases them keeps them away from everybody, when it says so.

    Raises:
        IllegalTransitionError: the run's state does not allow the cause.
    """
    to_state, delivery_count = next_state(
        run.state, cause, run.delivery_count, limits.delivery_count_limit, limits.has_dead_letter_queue
    )
    deadline_ms = 0
    if to_state is RecordState.ACQUIRED:
        deadline_ms = now_ms + limits.lock_duration_ms
    elif to_state is RecordState.AVAILABLE:
        deadline_ms = not_before_ms(cause, delivery_count, limits, now_ms, redelivery_delay_ms)
    return Transition(
        run.first_offset,
        run.last_offset,
        run.state,
        to_state,
        delivery_count,
        run.member_id,
        deadline_ms,
        cause,
    )


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


def _pieces(batch: AcknowledgementBatch) -> Iterator[tuple[int, int, AcknowledgeType]]:
    if len(batch.types) == 1:
        yield batch.first_offset, batch.last_offset, batch.types[0]
        return
    first_offset = batch.first_offset
    for acknowledge_type, group in groupby(batch.types):
        size = sum(1 for _ in group)
        yield first_offset, first_offset + size - 1, acknowledge_type
        first_offset += size


class _TakenRecords:
    """Records that a request has acknowledged so far.

    Most requests name their records in ascending order: a list is enough until one does not.
    """

    def __init__(self) -> None:
        self._ascending: list[Run] = []
        self._map: RunMap | None = None

    def overlapping(self, run: Run) -> list[Run]:
        """The taken records among those of a run."""
        if self._map is None:
            if not self._ascending or self._ascending[-1].last_offset < run.first_offset:
                return []
            self._map = RunMap(self._ascending)
        return self._map.overlapping(run.first_offset, run.last_offset)

    def add(self, run: Run) -> None:
        """Take a run of which nothing is taken yet."""
        if self._map is None:
            self._ascending.append(run)
        else:
            self._map.assign(run)


def _check_held(run: Run, member_id: str, taken: _TakenRecords) -> None:
    if run.state is not RecordState.ACQUIRED or run.member_id != member_id:
        raise InvalidRecordStateError(
            f"Offsets {run.first_offset}..{run.last_offset} are {run.state.name}"
            f"{' by another member' if run.member_id else ''}, not acquired by member {member_id}."
        )
    twice = taken.overlapping(run)
    if twice:
        raise InvalidRecordStateError(
            f"Offsets {twice[0].first_offset}..{twice[0].last_offset} are acknowledged twice in one request."
        )


def _check_renew(run: Run, limits: SharePartitionLimits) -> None:
    if not limits.is_renew_enabled:
        raise InvalidRecordStateError(
            f"Offsets {run.first_offset}..{run.last_offset} cannot be renewed: share.renew.acknowledge.enable is false."
        )
