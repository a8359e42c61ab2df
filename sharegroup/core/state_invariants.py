"""Invariants of a share-partition between two operations (spec 002, "Invariants & guarantees")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise

from sharegroup.core.invariants import Violation, shown
from sharegroup.core.record_state import UNDECIDED_STATES, RecordState
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.runs import PAST_ALL_OFFSETS, RunMap
from sharegroup.core.share_partition import SharePartition

StateInvariant = Callable[[SharePartition], list[Violation]]

_Count = tuple[str, object, object]
"""A name, the value that the share-partition keeps, and the one by its runs."""

STATE_INVARIANTS: dict[str, StateInvariant] = {}
"""Name → invariant of a share-partition between two operations."""


def check_state(share_partition: SharePartition) -> list[Violation]:
    """Return the violations of a state; the cost grows with all its runs."""
    return [violation for invariant in STATE_INVARIANTS.values() for violation in invariant(share_partition)]


def _state_invariant(details: Callable[[SharePartition], Iterator[str]]) -> StateInvariant:
    @wraps(details)
    def invariant(share_partition: SharePartition) -> list[Violation]:
        return [Violation(details.__name__, detail) for detail in details(share_partition)]

    STATE_INVARIANTS[details.__name__] = invariant
    return invariant


@_state_invariant
def runs_are_contiguous_and_merged(share_partition: SharePartition) -> Iterator[str]:
    """Check that runs cover every offset from the SPSO without holes or overlaps, and equal neighbours are merged.

    No exceptions.
    """
    runs = list(share_partition.runs)
    if runs and runs[0].first_offset != share_partition.start_offset:
        yield f"the first run is {shown(runs[0])}, the start offset is {share_partition.start_offset}"
    yield from (f"{shown(run)} is reversed" for run in runs if run.first_offset > run.last_offset)
    for run, after in pairwise(runs):
        if after.first_offset != run.last_offset + 1:
            yield f"{shown(after)} does not touch {shown(run)} before it"
        elif run.is_alike(after):
            yield f"{shown(after)} is not merged with {shown(run)} before it"


@_state_invariant
def counts_match_runs(share_partition: SharePartition) -> Iterator[str]:
    """Check that the delivery-complete, available and locked counts and every index agree with the runs.

    No exceptions.
    """
    runs, kept = list(share_partition.runs), share_partition.runs
    finished = ("delivery-complete count", kept.terminal_count, sum(run.size for run in runs if run.state.is_terminal))
    counts = [
        finished,
        *_counts_of_available([run for run in runs if run.state is RecordState.AVAILABLE], kept),
        *_counts_of_held([run for run in runs if run.state is RecordState.ACQUIRED], kept),
        *_counts_of_writes([run for run in runs if run.write_version != NO_WRITE], kept),
    ]
    yield from (
        f"the {name} is {is_kept}, the runs say {counted}" for name, is_kept, counted in counts if is_kept != counted
    )


def _counts_of_available(available: list[Run], kept: RunMap) -> Iterator[_Count]:
    ready = {kind: list(kept.available(are_suspects=kind)) for kind in (False, True)}
    for kind, name in ((False, "other records"), (True, "suspects")):
        count = kept.available_count_below(PAST_ALL_OFFSETS, are_suspects=kind)
        yield f"available count of {name}", count, sum(run.size for run in ready[kind])
    indexed = sorted([*ready[False], *ready[True], *kept.delayed()], key=lambda run: run.first_offset)
    yield "index of available and delayed runs", indexed, available
    yield "index of available suspects", ready[True], [run for run in ready[True] if run.is_suspect]
    for delivery_count in sorted({run.delivery_count for run in available if run.is_suspect}):
        suspects = [run for run in available if run.is_suspect and run.delivery_count == delivery_count]
        name = f"count of suspects delivered {delivery_count} times"
        yield name, kept.suspect_count(delivery_count), sum(run.size for run in suspects)


def _counts_of_held(held: list[Run], kept: RunMap) -> Iterator[_Count]:
    members = sorted({run.member_id for run in held})
    by_deadline = sorted(held, key=lambda run: (run.deadline_ms, run.first_offset))
    yield "locked count", kept.locked_count, sum(run.size for run in held)
    yield "index of members", kept.member_ids, members
    by_member = [[run for run in held if run.member_id == member_id] for member_id in members]
    yield "index of holders", [kept.held_by(member_id) for member_id in members], by_member
    of_suspects = [member_id for member_id in members if kept.are_suspects_held_by(member_id)]
    yield "index of holders of suspects", of_suspects, sorted({run.member_id for run in held if run.is_suspect})
    last_deadline_ms = by_deadline[-1].deadline_ms if by_deadline else 0
    yield "index of locks", kept.due(last_deadline_ms), by_deadline


def _counts_of_writes(with_write: list[Run], kept: RunMap) -> Iterator[_Count]:
    versions = sorted({run.write_version for run in with_write})
    yield "index of open writes", kept.write_versions, versions
    resolving = sorted({run.write_version for run in with_write if run.state is RecordState.RESOLVING})
    yield "index of writes in doubt", [version for version in versions if kept.is_resolving(version)], resolving


@_state_invariant
def only_undecided_records_have_a_holder(share_partition: SharePartition) -> Iterator[str]:
    """Check that exactly the ACQUIRED and RESOLVING records name a member, and finished records have no deadline.

    No exceptions.
    """
    for run in share_partition.runs:
        if (run.state in UNDECIDED_STATES) != bool(run.member_id):
            yield f"{shown(run)} has the holder {run.member_id!r}"
        if run.state not in (*UNDECIDED_STATES, RecordState.AVAILABLE) and run.deadline_ms:
            yield f"{shown(run)} has the deadline {run.deadline_ms}"


@_state_invariant
def writes_in_flight_are_open(share_partition: SharePartition) -> Iterator[str]:
    """Check that a record's write is open, and that only an undecided record has one, a RESOLVING record always.

    No exceptions: a write may be open without a record in flight.
    """
    for run in share_partition.runs:
        is_resolving = run.state is RecordState.RESOLVING
        if run.write_version != NO_WRITE:
            opened = share_partition.open_writes.get(run.write_version)
            if run.state not in UNDECIDED_STATES:
                yield f"{shown(run)} has the write {run.write_version}"
            if opened is None or not opened.first_offset <= run.first_offset <= run.last_offset <= opened.last_offset:
                yield f"{shown(run)} has the write {run.write_version}, which is not open for these offsets"
        elif is_resolving:
            yield f"{shown(run)} has no open write"
        if is_resolving != (run.intended is not None):
            yield f"{shown(run)} has the intended end {run.intended}"


@_state_invariant
def suspects_can_be_delivered(share_partition: SharePartition) -> Iterator[str]:
    """Check that suspects are AVAILABLE, ACQUIRED or RESOLVING, and were delivered before.

    No exceptions.
    """
    for run in share_partition.runs:
        is_held = run.state in UNDECIDED_STATES
        if run.is_suspect and (not (is_held or run.state is RecordState.AVAILABLE) or run.delivery_count < 1 + is_held):
            yield f"{shown(run)} is a suspect"


@_state_invariant
def held_records_were_delivered(share_partition: SharePartition) -> Iterator[str]:
    """Check that no delivery count is negative, and that of an ACQUIRED or RESOLVING record is at least 1.

    No exceptions.
    """
    for run in share_partition.runs:
        if run.delivery_count < (1 if run.state in UNDECIDED_STATES else 0):
            yield f"{shown(run)} was never delivered"


@_state_invariant
def start_offset_is_not_finished(share_partition: SharePartition) -> Iterator[str]:
    """Check that the record at the SPSO is not in a terminal state: the SPSO has passed all that it can.

    Exception: between a transition and the StartOffsetMoved that follows it. Check after whole operations.
    """
    first = next(iter(share_partition.runs), None)
    if first is not None and first.state.is_terminal:
        yield f"the start offset {share_partition.start_offset} stands on {shown(first)}"
