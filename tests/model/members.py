"""Writers and resolvers of the model, and Delta, which refuses a commit whose id was used since its snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.core.record_state import RecordState
from tests.model.rules import Check, Parts, Rules
from tests.model.state import (
    Acknowledge,
    Commit,
    Move,
    Resolve,
    Resolver,
    Sent,
    State,
    Writer,
    commits_of,
    fence_version,
    last_part,
    named,
    part_version,
    transaction_of,
    union,
)


def member_moves(state: State, rules: Rules) -> Iterator[Move]:
    for writer in dict.fromkeys(state.writers):
        yield from _writer_moves(state, writer, rules)
    yield from _resolver_moves(state, rules)
    if rules.has_second_run and not state.has_run_twice:
        for number, write in enumerate(state.writes):
            if write.has_begun:
                writers = (*state.writers, Writer(number, is_second_run=True))
                yield Move(f"write {number} is run again", state._replace(writers=writers, has_run_twice=True))


def _writer_moves(state: State, writer: Writer, rules: Rules) -> Iterator[Move]:
    if not writer.is_zombie and writer.part == 0:
        yield from _given_up(state, writer, rules)
    write = state.writes[writer.write]
    version = part_version(writer.write, writer.part, write, rules)
    if writer.snapshot < 0:
        if rules.check is not Check.NONE and transaction_of(state.sink, write.app) >= version:
            yield from _refused(state, writer, rules, is_silent=True)
        else:
            begun = state.with_write(writer.write, write._replace(has_begun=True))
            loaded = writer._replace(snapshot=len(state.sink))
            yield Move(f"writer of {writer.write} loads", _with_writer(begun, writer, loaded))
        return
    since = () if rules.check is Check.OF_AN_EARLIER_LOAD else state.sink[writer.snapshot :]
    if any(commit.app == write.app for commit in since):
        yield from _refused(state, writer, rules, is_silent=False)
        return
    for outcomes in _decisions(state, writer, rules):
        commit = Commit(write.app, version, writer.write, outcomes)
        after = state._replace(sink=(*state.sink, commit))
        is_last = writer.part == last_part(write, rules)
        following = None if is_last else writer._replace(snapshot=-1, part=writer.part + 1)
        message = _report(after, writer.write, outcomes, rules, is_last=is_last)
        after = _with_writer(after, writer, following)
        yield Move(
            f"writer of {writer.write} commits {outcomes}", after if writer.is_zombie else _sending(after, message)
        )


def _report(state: State, write: int, outcomes: str, rules: Rules, *, is_last: bool) -> Resolve:
    """The message after a commit."""
    if is_last and rules.parts in (Parts.UNION, Parts.BELOW_THE_FENCE):
        return Resolve(write, union(commits_of(state.sink, write), rules.records), is_closed=True)
    return Resolve(write, outcomes, is_closed=is_last)


def _decisions(state: State, writer: Writer, rules: Rules) -> Iterator[str]:
    """The outcomes that a handler may give the records of a part; a second run may divide and decide in another way."""
    mine = state.writes[writer.write].records
    if last_part(state.writes[writer.write], rules):
        mine = mine[:1] if (writer.part == 0) is not writer.is_second_run else mine[1:]
    yield named(mine, "A", rules.records)
    if rules.has_mixed_outcomes:
        first, *others = mine
        for kind in "RJ":
            accepted = named(others, "A", rules.records)
            yield accepted[:first] + kind + accepted[first + 1 :]


def _given_up(state: State, writer: Writer, rules: Rules) -> Iterator[Move]:
    """RELEASE and the like of the whole write, without a commit; after it has begun it goes on, as a zombie."""
    write = state.writes[writer.write]
    for kind in rules.given_up:
        message = Acknowledge(
            writer.write, named(write.records, kind, rules.records), write.has_begun and rules.says_begun
        )
        zombie = writer._replace(is_zombie=True) if writer.snapshot >= 0 else None
        yield Move(f"writer: {message}", _sending(_with_writer(state, writer, zombie), message))


def _refused(state: State, writer: Writer, rules: Rules, *, is_silent: bool) -> Iterator[Move]:
    """The sink has skipped or refused a commit: the writer reads back, and says what the sink has."""
    write, own = state.writes[writer.write], commits_of(state.sink, writer.write)
    outcomes = union(own, rules.records)
    gone = _with_writer(state, writer, None)
    label = f"writer of {writer.write} is {'skipped' if is_silent else 'refused'}"
    is_held = all(state.records[n][:2] == (RecordState.ACQUIRED, writer.write) for n in write.records)
    broken_rule = "a healthy write is refused" if is_held and not own and not writer.is_zombie else ""
    if writer.is_zombie:
        yield Move(label, gone)
    elif is_silent and not rules.reads_back:
        for decision in _decisions(state, writer, rules):
            yield Move(label, _sending(gone, Resolve(writer.write, decision, is_closed=True)), broken_rule)
    elif last_part(write, rules):
        yield from _refused_part(state, writer, rules, label, broken_rule)
    elif outcomes is not None:
        decisions = _decisions(state, writer, rules) if rules.says_own_decision else [outcomes]
        for outcomes_sent in decisions:
            yield Move(label, _sending(gone, Resolve(writer.write, outcomes_sent, is_closed=True)), broken_rule)
    else:
        of_fence = Resolve(writer.write, None, is_closed=True)
        yield Move(label, _sending(gone, of_fence) if own else gone, broken_rule)


def _refused_part(state: State, writer: Writer, rules: Rules, label: str, broken_rule: str) -> Iterator[Move]:
    write = state.writes[writer.write]
    version = part_version(writer.write, writer.part, write, rules)
    mine = [c for c in commits_of(state.sink, writer.write) if c.version == version and c.outcomes is not None]
    following = None
    if mine and not rules.second_run_stops and writer.part < last_part(write, rules):
        following = writer._replace(snapshot=-1, part=writer.part + 1)
    yield Move(label, _with_writer(state, writer, following), "" if mine else broken_rule)


def _resolver_moves(state: State, rules: Rules) -> Iterator[Move]:
    for number, write in enumerate(state.writes):
        if rules.anybody_reports and (seen := union(commits_of(state.sink, number), rules.records)) is not None:
            yield Move(f"anybody sees a commit of {number}", _sending(state, Resolve(number, seen, is_closed=False)))
        if not write.is_handed_out or not write.is_open:
            continue
        is_fenced = transaction_of(state.sink, write.app) >= fence_version(number)
        if is_fenced or not rules.fences:
            message = resolution_of(state, number, rules)
            if message is not None:
                yield Move(f"resolver of {number} looks", _sending(state, message))
        elif len(state.resolvers) < rules.resolvers:
            resolver = Resolver(number, len(state.sink))
            yield Move(f"resolver of {number} loads", state._replace(resolvers=(*state.resolvers, resolver)))
    for resolver in dict.fromkeys(state.resolvers):
        position = state.resolvers.index(resolver)
        left = state._replace(resolvers=state.resolvers[:position] + state.resolvers[position + 1 :])
        app = state.writes[resolver.write].app
        if any(commit.app == app for commit in state.sink[resolver.snapshot :]):
            yield Move(f"the fence of {resolver.write} is refused", left)
        else:
            yield Move(f"resolver of {resolver.write} commits the fence", fenced(left, resolver.write))


def fenced(state: State, write: int) -> State:
    commit = Commit(state.writes[write].app, fence_version(write), write, None)
    return state._replace(sink=(*state.sink, commit))


def resolution_of(state: State, write: int, rules: Rules) -> Resolve | None:
    """Return the resolution of a fenced write; None if no commit of it is there, so that nobody can decide."""
    commits = commits_of(state.sink, write)
    if not commits and rules.fences:
        return None
    return Resolve(write, union(commits, rules.records), is_closed=True)


def _with_writer(state: State, writer: Writer, after: Writer | None) -> State:
    position = state.writers.index(writer)
    others = state.writers[:position] + state.writers[position + 1 :]
    return state._replace(writers=others if after is None else (*others, after))


def _sending(state: State, message: Sent) -> State:
    return state._replace(sent=state.sent | {message})
