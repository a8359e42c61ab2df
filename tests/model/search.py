"""Breadth-first search over all states of a variant, so that the first trace to a broken rule is a shortest one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from sharegroup.core.record_state import RecordState
from tests.model.leader import acquired, leader_moves, lock_ended, resolved, settled
from tests.model.members import fenced, member_moves, resolution_of
from tests.model.rules import Rules
from tests.model.state import Commit, Move, Record, State, fence_version, is_undecided, named, rows_of, transaction_of

TWICE = "a result is in the sink twice"
WITHOUT_RESULT = "a record is accepted without a result"
DELIVERED_AGAIN = "a record is delivered again although its result is in the sink"
GIVEN_UP = "a record is given up although its result is in the sink"
MISCOUNTED = "a delivery count is not that of the deliveries"
STUCK = "a record is never decided"

_MOST_STATES = 1_000_000


@dataclass
class Findings:
    """The result of a search.

    Attributes:
        traces: broken rule → the labels of a shortest way to it.
    """

    state_count: int = 0
    traces: dict[str, list[str]] = field(default_factory=dict)


def search(rules: Rules) -> Findings:
    """Visit all states, or as many as there are until a rule is broken.

    Raises:
        AssertionError: there are too many states for a search.
    """
    start = State(tuple(Record() for _ in range(rules.records)))
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    calm: dict[tuple[object, ...], str] = {}
    findings = Findings()
    while waiting and not findings.traces:
        state = waiting.popleft()
        for move in _moves(state, rules):
            after = _normal(move.state, rules)
            is_new = after not in came_from
            if is_new:
                came_from[after] = (state, move.label)
                waiting.append(after)
            rule = move.broken_rule or (is_new and (_broken_rule(after, rules) or _calm(after, rules, calm)))
            if rule and rule not in findings.traces:
                findings.traces[rule] = [*_trace(came_from, state), move.label]
        assert len(came_from) <= _MOST_STATES, f"{rules} has more than {_MOST_STATES} states"
    findings.state_count = len(came_from)
    return findings


def _moves(state: State, rules: Rules) -> Iterator[Move]:
    yield from leader_moves(state, rules)
    yield from member_moves(state, rules)


def _normal(state: State, rules: Rules) -> State:
    """One form of all states with the same future: what can have no effect any more is dropped."""
    sent = state.sent
    if rules.resolve_names_version and rules.acknowledgement_names_version:
        sent = frozenset(message for message in sent if state.writes[message.write].is_open)
    return state._replace(sent=sent, writers=tuple(sorted(state.writers)), resolvers=tuple(sorted(state.resolvers)))


def _broken_rule(state: State, rules: Rules) -> str:
    for number, record in enumerate(state.records):
        rows = rows_of(state, number)
        if rows > 1:
            return TWICE
        if record.state is RecordState.ACKNOWLEDGED and not rows:
            return WITHOUT_RESULT
        if rows and record.state is RecordState.ARCHIVED:
            return GIVEN_UP
        if rows and (record.state is RecordState.AVAILABLE or not _has_result(state, number, record)):
            return DELIVERED_AGAIN
        if state.reset_at < 0 and _is_miscounted(state, number, record, rules):
            return MISCOUNTED
    return ""


def _has_result(state: State, number: int, record: Record) -> bool:
    """True if the result of an undecided record is that of its present write."""
    since = state.sink[max(state.reset_at, 0) :]
    with_result = [commit for commit in since if commit.outcomes is not None and commit.outcomes[number] == "A"]
    return not is_undecided(record) or all(commit.write == record.write for commit in with_result)


def _is_miscounted(state: State, number: int, record: Record, rules: Rules) -> bool:
    taken = sum(number in write.records for write in state.writes)
    return not 0 <= record.deliveries <= taken or ("U" not in rules.given_up and record.deliveries != taken)


def _calm(state: State, rules: Rules, known: dict[tuple[object, ...], str]) -> str:
    """The rule that is broken if all members die here, all messages are lost, and one live member goes on."""
    key = (state.records, state.writes, state.sink, state.is_log_started, state.reset_at)
    if key not in known:
        known[key] = _end(state._replace(writers=(), resolvers=(), sent=frozenset(), has_run_twice=True), rules)
    return known[key]


def _end(state: State, rules: Rules) -> str:
    for _ in range(2 * rules.limit + 4):
        for number, record in enumerate(state.records):
            if record.state is RecordState.ACQUIRED:
                state = lock_ended(state, number, rules)
        free = tuple(number for number, record in enumerate(state.records) if record.state is RecordState.AVAILABLE)
        waiting = sorted({record.write for record in state.records if record.state is RecordState.RESOLVING})
        if waiting and not rules.hands_out_always and not free:
            return STUCK
        for write in waiting:
            if rules.fences and transaction_of(state.sink, state.writes[write].app) < fence_version(write):
                state = fenced(state, write)
            message = resolution_of(state, write, rules)
            if message is None:
                return STUCK
            state = settled(resolved(state, message, rules), rules)
        if all(record.state.is_terminal for record in state.records):
            return _broken_rule(state, rules)
        free = tuple(number for number, record in enumerate(state.records) if record.state is RecordState.AVAILABLE)
        if free:
            state = _written(acquired(state, free, rules), rules)
    return STUCK


def _written(state: State, rules: Rules) -> State:
    """The one live member writes what it has acquired last, and accepts it, unless the sink refuses the write."""
    write = len(state.writes) - 1
    app, records = state.writes[write].app, state.writes[write].records
    if transaction_of(state.sink, app) >= fence_version(write):
        return state
    commit = Commit(app, fence_version(write), write, named(records, "A", rules.records))
    state = state._replace(sink=(*state.sink, commit))
    message = resolution_of(state, write, rules)
    return state if message is None else resolved(state, message, rules)


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    labels: list[str] = []
    while (step := came_from[state]) is not None:
        state, label = step
        labels.append(label)
    return labels[::-1]
