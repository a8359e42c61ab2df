"""The leader of the model. What a cause makes of a record comes from the engine's transition table."""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.core.record_state import Cause, RecordState, next_state
from tests.model.rules import Intended, Rules, Slot, Wait
from tests.model.state import (
    CAUSE_OF,
    NO_WRITE,
    Acknowledge,
    Move,
    Record,
    Resolve,
    State,
    Write,
    Writer,
    is_undecided,
    subsets,
)

AVAILABLE, ACQUIRED, RESOLVING = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.RESOLVING


def leader_moves(state: State, rules: Rules) -> Iterator[Move]:
    yield from _acquisitions(state, rules)
    yield from _ends_of_locks(state, rules)
    for message in sorted(state.sent, key=repr):
        after = (
            acknowledged(state, message, rules) if isinstance(message, Acknowledge) else resolved(state, message, rules)
        )
        if after != state:
            yield Move(f"leader: {message}", settled(after, rules))
    yield from _administration(state, rules)


def changed(record: Record, cause: Cause, rules: Rules) -> Record:
    """The record after a cause, by the transition table; only an undecided record keeps its write."""
    to_state, count = next_state(record.state, cause, record.deliveries, rules.limit, has_dead_letter_queue=False)
    after = Record(to_state, NO_WRITE, count)
    return after._replace(write=record.write) if is_undecided(after) else after


def in_doubt(record: Record, intended: Cause, rules: Rules) -> Record:
    return changed(record, Cause.IN_DOUBT, rules)._replace(intended=intended)


def not_written(record: Record, rules: Rules) -> Record:
    return changed(record, record.intended or Cause.NOT_WRITTEN, rules)


def _acquisitions(state: State, rules: Rules) -> Iterator[Move]:
    if len(state.writes) >= rules.writes:
        return
    for taken in subsets([n for n, record in enumerate(state.records) if record.state is AVAILABLE]):
        yield Move(f"leader: records {taken} are acquired as write {len(state.writes)}", acquired(state, taken, rules))


def acquired(state: State, taken: tuple[int, ...], rules: Rules) -> State:
    number, app = len(state.writes), free_app(state, rules)
    for record in taken:
        held = changed(state.records[record], Cause.ACQUIRE, rules)._replace(write=number)
        state = state.with_record(record, held)
    writes = (*state.writes, Write(app, taken))
    return state._replace(writes=writes, writers=(*state.writers, Writer(number)))


def free_app(state: State, rules: Rules) -> int:
    if rules.slot is Slot.FOR_EVER_THE_GROUP_S:
        return 0
    used = {
        write.app
        for number, write in enumerate(state.writes)
        if (
            write.is_open
            if rules.slot is Slot.UNTIL_CLOSED
            else any(state.records[n].state is ACQUIRED for n in state.undecided(number))
        )
    }
    return next(app for app in range(len(used) + 1) if app not in used)


def _ends_of_locks(state: State, rules: Rules) -> Iterator[Move]:
    for number, record in enumerate(state.records):
        if record.state is ACQUIRED:
            yield Move(f"leader: the lock of record {number} ends", lock_ended(state, number, rules))


def lock_ended(state: State, number: int, rules: Rules) -> State:
    record = state.records[number]
    if rules.limit_at_lock_end and record.deliveries >= rules.limit:
        return state.with_record(number, changed(record, Cause.LOCK_TIMEOUT, rules))
    return handed_out(state.with_record(number, in_doubt(record, Cause.LOCK_TIMEOUT, rules)), record.write)


def handed_out(state: State, write: int) -> State:
    return state.with_write(write, state.writes[write]._replace(is_handed_out=True))


def acknowledged(state: State, message: Acknowledge, rules: Rules) -> State:
    """ShareAcknowledge of records with an open write: what is no outcome of a commit."""
    for number, kind in enumerate(message.outcomes):
        record = state.records[number]
        is_same = record.write == message.write or not rules.acknowledgement_names_version
        if kind == "-" or record.state is not ACQUIRED or not is_same:
            continue
        if message.is_begun and rules.intended is not Intended.AT_ONCE:
            after = state.with_record(number, in_doubt(record, CAUSE_OF[kind], rules))
            state = handed_out(after, record.write)
        else:
            state = state.with_record(number, changed(record, CAUSE_OF[kind], rules))
            if not state.undecided(record.write):
                state = closed(state, record.write)
    return state


def resolved(state: State, message: Resolve, rules: Rules) -> State:
    """ResolveWrite: named records have the commit's outcome; if it closes the write, the others are not written."""
    for number, record in enumerate(state.records):
        if not is_undecided(record) or not _is_of(state, record.write, message, rules):
            continue
        kind = "-" if message.outcomes is None else message.outcomes[number]
        if kind != "-":
            state = state.with_record(number, changed(record, CAUSE_OF[kind], rules))
        elif message.is_closed:
            state = state.with_record(number, not_written(record, rules))
    return closed(state, message.write) if message.is_closed and not state.undecided(message.write) else state


def _is_of(state: State, write: int, message: Resolve, rules: Rules) -> bool:
    if rules.resolve_names_version:
        return write == message.write
    return state.writes[write].app == state.writes[message.write].app


def closed(state: State, write: int) -> State:
    return state.with_write(write, state.writes[write]._replace(is_open=False))


def settled(state: State, rules: Rules) -> State:
    """The leader follows the log start as soon as no open write is in its way."""
    first = state.records[0]
    if state.is_log_started and first.state is AVAILABLE:
        return state.with_record(0, changed(first, Cause.LOG_START, rules))
    return state


def _administration(state: State, rules: Rules) -> Iterator[Move]:
    if rules.log_start is not Wait.NEVER_HAPPENS and not state.is_log_started:
        after, first = state._replace(is_log_started=True), state.records[0]
        if rules.log_start is Wait.AT_ONCE and first.write != NO_WRITE:
            # The table has no such transition: the record is given up, and its write is forgotten.
            after = closed(after.with_record(0, Record(RecordState.ARCHIVED, NO_WRITE, first.deliveries)), first.write)
        yield Move("log: record 0 is deleted", settled(after, rules))
    if rules.reset is not Wait.NEVER_HAPPENS and state.reset_at < 0:
        is_open = any(write.is_open for write in state.writes)
        if not is_open or rules.reset is Wait.AT_ONCE:
            fresh = tuple(Record() for _ in state.records)
            after = state._replace(records=fresh, reset_at=len(state.sink))
            for number in range(len(state.writes)):
                after = closed(after, number)
            yield Move("administrator: resets the offsets", after)
