"""Invariants of open writes: only the sink decides on a record with one, and no write is closed too early.

`record_invariants` registers them.
"""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.core.cause_rules import CHOSEN_ENDS, DECIDED_ENDS, OVERDUE
from sharegroup.core.invariants import Circumstances, Violation, shown
from sharegroup.core.open_writes import WriteClosed, WriteOpened
from sharegroup.core.record_state import UNDECIDED_STATES, Cause, RecordState
from sharegroup.core.records import SharePartitionRecord, Transition
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.share_partition import SharePartition

_ENDS_WITHOUT_A_CHOICE = DECIDED_ENDS - CHOSEN_ENDS
"""Ends of locks: of a record with an open write they say only that it is in doubt."""
_OF_WRITES_ONLY = frozenset({Cause.IN_DOUBT, Cause.NOT_WRITTEN})


def record_keeps_its_write_until_it_is_decided(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that an undecided record keeps the write that it was acquired with, and that all others have none.

    No exceptions.
    """
    if transition.to_state not in UNDECIDED_STATES:
        if transition.write_version != NO_WRITE:
            yield f"{shown(transition)} has the write {transition.write_version}"
        return
    if transition.from_state not in UNDECIDED_STATES:
        return
    for run in before.runs.overlapping(transition.first_offset, transition.last_offset):
        if transition.write_version != run.write_version:
            yield f"{shown(transition)} has the write {transition.write_version}, {shown(run)} {run.write_version}"


def end_of_a_lock_leaves_a_write_in_doubt(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that the end of a lock does not decide on a record with an open write, and the log start not either.

    No exceptions: a time-out is no sooner in doubt than its lock ends.
    """
    for run in before.runs.overlapping(transition.first_offset, transition.last_offset):
        if run.state is RecordState.ACQUIRED:
            yield from _wrong_ends(run, transition, circumstances.now_ms)
        elif run.write_version != NO_WRITE and transition.cause is Cause.LOG_START:
            yield f"{shown(transition)} passes {shown(run)}, which has the open write {run.write_version}"


def _wrong_ends(run: Run, transition: Transition, now_ms: int) -> Iterator[str]:
    if run.write_version == NO_WRITE:
        if transition.cause in _OF_WRITES_ONLY:
            yield f"{shown(transition)}, but {shown(run)} has no open write"
    elif transition.cause in _ENDS_WITHOUT_A_CHOICE or transition.cause is Cause.LOG_START:
        yield f"{shown(transition)} decides on {shown(run)}, which has the open write {run.write_version}"
    elif transition.cause is Cause.IN_DOUBT:
        if transition.intended not in DECIDED_ENDS - {Cause.ACCEPT}:
            yield f"{shown(transition)} intends {transition.intended}"
        if transition.intended in OVERDUE and run.deadline_ms > now_ms:
            yield f"{shown(transition)} at {now_ms} ends a lock that runs until {run.deadline_ms}"


def intended_end_is_applied(
    before: SharePartition, transition: Transition, circumstances: Circumstances
) -> Iterator[str]:
    """Check that a RESOLVING record ends by what a commit of its write says, or by the end that was intended.

    No exceptions.
    """
    for run in before.runs.overlapping(transition.first_offset, transition.last_offset):
        is_chosen = transition.cause in CHOSEN_ENDS or transition.cause is run.intended
        if run.state is RecordState.RESOLVING and not is_chosen:
            yield f"{shown(transition)}, but {shown(run)} intends {run.intended}"


def write_opens_and_closes_once(
    before: SharePartition, record: SharePartitionRecord, circumstances: Circumstances
) -> list[Violation]:
    """Check that no two open writes have one version or one application id, and that none closes with records.

    No exceptions.
    """
    return [Violation("write_opens_and_closes_once", detail) for detail in _write_details(before, record)]


def _write_details(before: SharePartition, record: SharePartitionRecord) -> Iterator[str]:
    if isinstance(record, WriteOpened):
        for version, opened in before.open_writes.items():
            if version == record.write.version or opened.write.app_id == record.write.app_id:
                yield f"write {record.write.version} of {record.write.app_id} opens while write {version} is open"
    elif isinstance(record, WriteClosed):
        if record.version not in before.open_writes:
            yield f"write {record.version} closes, but is not open"
        if before.runs.has_write(record.version):
            yield f"write {record.version} closes while records in flight have it"
