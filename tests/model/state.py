"""The state of the model: records and writes of the leader, the sink, its writers and resolvers, all messages sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.core.record_state import UNDECIDED_STATES, Cause, RecordState
from tests.model.rules import Parts, Rules

CAUSE_OF = {"A": Cause.ACCEPT, "R": Cause.RELEASE, "J": Cause.REJECT, "G": Cause.GAP, "U": Cause.UNREAD}
"""Character of an outcome → cause; a text with a kind for each record has `-` for those that it does not name."""
NO_WRITE = -1
PARTS_PER_WRITE = 4
FENCE_PART = PARTS_PER_WRITE - 1


class Record(NamedTuple):
    state: RecordState = RecordState.AVAILABLE
    write: int = NO_WRITE
    deliveries: int = 0
    intended: Cause | None = None


class Write(NamedTuple):
    """A write: its number is the order of its acquisition, and makes its version."""

    app: int
    records: tuple[int, ...]
    is_open: bool = True
    is_handed_out: bool = False
    has_begun: bool = False


class Commit(NamedTuple):
    app: int
    version: int
    write: int
    outcomes: str | None
    """None for a fence."""


class Writer(NamedTuple):
    """A run of a write; it may stop for ever after each step, so that no step is needed for pauses and kills."""

    write: int
    snapshot: int = -1
    """Length of the sink that it has loaded; -1 before that."""
    part: int = 0
    is_zombie: bool = False
    is_second_run: bool = False


class Resolver(NamedTuple):
    write: int
    snapshot: int


class Acknowledge(NamedTuple):
    write: int
    outcomes: str
    is_begun: bool


class Resolve(NamedTuple):
    write: int
    outcomes: str | None
    """None if nothing is written."""
    is_closed: bool


Sent = Acknowledge | Resolve
"""Messages are a set: each may arrive at any time, often, or never."""


class State(NamedTuple):
    records: tuple[Record, ...]
    writes: tuple[Write, ...] = ()
    sink: tuple[Commit, ...] = ()
    writers: tuple[Writer, ...] = ()
    resolvers: tuple[Resolver, ...] = ()
    sent: frozenset[Sent] = frozenset()
    is_log_started: bool = False
    reset_at: int = -1
    """Length of the sink when the offsets were reset; -1 before."""
    has_run_twice: bool = False

    def with_record(self, number: int, record: Record) -> State:
        return self._replace(records=(*self.records[:number], record, *self.records[number + 1 :]))

    def with_write(self, number: int, write: Write) -> State:
        return self._replace(writes=(*self.writes[:number], write, *self.writes[number + 1 :]))

    def undecided(self, write: int) -> list[int]:
        """The records that have a write."""
        return [n for n, record in enumerate(self.records) if record.write == write and is_undecided(record)]


class Move(NamedTuple):
    label: str
    state: State
    broken_rule: str = ""


def is_undecided(record: Record) -> bool:
    return record.state in UNDECIDED_STATES


def transaction_of(sink: tuple[Commit, ...], app: int) -> int:
    """The version that the sink knows of an application id: that of its last commit."""
    return next((commit.version for commit in reversed(sink) if commit.app == app), -1)


def commits_of(sink: tuple[Commit, ...], write: int) -> list[Commit]:
    return [commit for commit in sink if commit.write == write]


def union(commits: list[Commit], record_count: int) -> str | None:
    """The outcomes of the commits of a write; None if they are fences only."""
    with_rows = [commit.outcomes for commit in commits if commit.outcomes is not None]
    if not with_rows:
        return None
    return "".join(
        next((outcomes[n] for outcomes in with_rows if outcomes[n] != "-"), "-") for n in range(record_count)
    )


def fence_version(write: int) -> int:
    return write * PARTS_PER_WRITE + FENCE_PART


def last_part(write: Write, rules: Rules) -> int:
    return 1 if rules.parts is not Parts.NONE and len(write.records) > 1 else 0


def part_version(write: int, part: int, of: Write, rules: Rules) -> int:
    is_last = part == last_part(of, rules)
    if is_last and rules.parts is not Parts.BELOW_THE_FENCE:
        return fence_version(write)
    return write * PARTS_PER_WRITE + part


def rows_of(state: State, record: int) -> int:
    """The results of a record that the sink has, since the offsets were last reset."""
    since = state.sink[max(state.reset_at, 0) :]
    return sum(commit.outcomes is not None and commit.outcomes[record] == "A" for commit in since)


def named(records: tuple[int, ...] | list[int], kind: str, count: int) -> str:
    return "".join(kind if n in records else "-" for n in range(count))


def subsets(items: list[int]) -> Iterator[tuple[int, ...]]:
    for bits in range(1, 1 << len(items)):
        yield tuple(item for position, item in enumerate(items) if bits >> position & 1)
