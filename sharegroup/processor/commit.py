"""A commit of the loop, from its first cut to its publication.

The loop fills a `Commit` with cuts while the commit before it is on its way. Steps 3 and 4 write and publish it, and
add its id and durations. Then metrics, log events, dead letters and everything else that follows commits take the same
object. `UnmarkedCuts` makes its marker, which also lists the cuts of earlier commits that needed no row. `CommitPace`
keeps commits apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from threading import Condition
from typing import NamedTuple, Protocol

from sharegroup.actor.effects import Effect
from sharegroup.protocol.marker import CommitMarkerPayload, Cut, GroupCut, OutboxResponse
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.rows import RecordType, StateRow

MARKER_AFTER_MESSAGES = 1_000
MARKER_AFTER_S = 30.0
"""Limits after which a marker alone is committed: a number of messages, and the age of the first of them."""


class CommitPoint:
    """Points that a commit passes, for tests that stop a process there."""

    APPLIED = "applied"
    COMMITTED = "committed"
    PUBLISHED = "published"


class FencedTable(Protocol):
    """The state table for its only writer."""

    @property
    def leader_epoch(self) -> int:
        """Return the leader epoch of the writer's fence."""
        ...

    def append(self, rows: Sequence[StateRow], commit_id: int) -> None:
        """Append the rows in one durable commit."""
        ...


class GroupOutput(NamedTuple):
    """The output of one group's actors for their messages in a cut, as final values.

    Attributes:
        group_id: the group; "" for messages that belong to no group.
        oldest_ms: append time of the first of them; epoch ms.
        cut_ms: time of the cut; epoch ms.
        responses: for the response log.
        messages: for the request log: group id and the request envelope in JSON.
        unaddressed_count: responses without a valid address; they are dropped.
    """

    group_id: str
    request_partition: int
    message_count: int
    oldest_ms: int
    cut_ms: int
    effects: Sequence[Effect]
    rows: Sequence[StateRow] = ()
    responses: Sequence[OutboxResponse] = ()
    messages: Sequence[tuple[str, str]] = ()
    unaddressed_count: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a processor after applied cuts, as a marker records it.

    Attributes:
        end_offsets: request partition → offset after the last applied message.
        message_times_ms: request partition → time of the last applied message.
        group_epoch_floor: highest group epoch of any removed group.
        unapplied_groups: group → first message that is not applied, although the end offset is past it.
    """

    leader_epoch: int
    end_offsets: Mapping[int, int]
    message_times_ms: Mapping[int, int] = field(default_factory=dict)
    group_epoch_floor: int = 0
    unapplied_groups: Mapping[str, int] = field(default_factory=dict)

    def after(
        self,
        cuts: Iterable[Cut],
        message_times_ms: Mapping[int, int],
        group_epoch_floor: int,
        unapplied_groups: Mapping[str, int],
    ) -> Position:
        """Return the position after further cuts."""
        ends = dict(self.end_offsets)
        for cut in cuts:
            ends[cut.partition] = max(ends.get(cut.partition, 0), cut.end_offset)
        return Position(self.leader_epoch, ends, message_times_ms, group_epoch_floor, unapplied_groups)


@dataclass(slots=True)
class Commit:
    """Cuts that are committed and published together.

    Attributes:
        cuts: the cuts, in order of application.
        group_cuts: cuts of groups that had been rebuilt.
        outputs: the outputs of the groups, in order of application.
        ticks: Ticks that are due: group id and the request envelope in JSON.
        message_count: messages of the request log in the cuts.
        started_s: time at which the first of them was taken, in seconds of `time.perf_counter`.
        attempted_offset: request partition and offset of the next message, if each is announced before it is applied.
        attempted_ms: time of its request partition when it is announced; epoch ms.
        is_marker_due: True if the cuts need a marker even without rows.
        waiters: called once all these cuts are committed and published.
        commit_id: id of the Delta commit; None before it, and when there was nothing to commit.
        commit_ms: duration of the Delta commit; 0 without one.
        processing_ms: duration from taking the first message to the end of publishing.
    """

    position: Position
    cuts: list[Cut] = field(default_factory=list)
    group_cuts: list[GroupCut] = field(default_factory=list)
    outputs: list[GroupOutput] = field(default_factory=list)
    ticks: list[tuple[str, str]] = field(default_factory=list)
    message_count: int = 0
    started_s: float = 0.0
    attempted_offset: tuple[int, int] | None = None
    attempted_ms: int = 0
    is_marker_due: bool = False
    waiters: list[Callable[[], None]] = field(default_factory=list)
    commit_id: int | None = None
    commit_ms: float = 0.0
    processing_ms: float = 0.0

    def add(self, later: Commit) -> None:
        """Add cuts that were applied later."""
        self.started_s = self.started_s or later.started_s
        self.position = later.position
        self.cuts += later.cuts
        self.group_cuts += later.group_cuts
        self.outputs += later.outputs
        self.message_count += later.message_count
        self.waiters += later.waiters

    @property
    def is_empty(self) -> bool:
        """Return True while there is nothing to commit or to publish."""
        return not (self.has_cuts or self.ticks or self.attempted_offset)

    @property
    def has_cuts(self) -> bool:
        """Return True if anything was applied."""
        return bool(self.cuts or self.group_cuts or self.outputs)

    @property
    def needs_commit(self) -> bool:
        """Return True if there are durable changes, or a message is to be announced before it is applied."""
        return self.attempted_offset is not None or any(output.rows for output in self.outputs)

    @property
    def is_of_one_message(self) -> bool:
        """Return True if the next message waits for this commit, as each one does after starts that failed."""
        return self.attempted_offset is not None or self.is_marker_due

    def effects(self) -> Iterator[Effect]:
        """Yield the effects of all groups, in order of application."""
        return chain.from_iterable(output.effects for output in self.outputs)

    def rows(self) -> list[StateRow]:
        """Return the rows of all groups; the marker is not among them."""
        return list(chain.from_iterable(output.rows for output in self.outputs))

    def responses(self) -> list[tuple[int, OutboxResponse]]:
        """Return the responses of all groups, each with its group's request partition, in order of application."""
        return [(output.request_partition, response) for output in self.outputs for response in output.responses]

    def messages(self) -> list[tuple[str, str]]:
        """Return the internal messages of all groups: group id and the request envelope in JSON."""
        return list(chain.from_iterable(output.messages for output in self.outputs))


@dataclass
class UnmarkedCuts:
    """Cuts that no marker lists yet: those of the current commit, and those without durable changes.

    Attributes:
        cuts: the cuts, in order of application.
        group_cuts: cuts of groups that had been rebuilt.
        message_count: messages in them.
        since_s: time at which the first of them was to be committed, in seconds of the caller's clock.
    """

    cuts: list[Cut] = field(default_factory=list)
    group_cuts: list[GroupCut] = field(default_factory=list)
    message_count: int = 0
    since_s: float = 0.0

    def add(self, commit: Commit, now_s: float) -> None:
        """Add the cuts of a commit."""
        if not self.message_count:
            self.since_s = now_s
        self.cuts += commit.cuts
        self.group_cuts += commit.group_cuts
        self.message_count += commit.message_count

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until a marker alone is due; None when none is needed."""
        if not self.message_count:
            return None
        if self.message_count >= MARKER_AFTER_MESSAGES:
            return 0.0
        return max(0.0, self.since_s + MARKER_AFTER_S - now_s)

    def marker(self, commit: Commit, row_count: int) -> StateRow:
        """Return the marker of a commit, which lists these cuts; the commit's own output is the outbox.

        Args:
            commit: the commit; its cuts are among these.
            row_count: rows of the commit without the marker.
        """
        position = commit.position
        payload = constructed(
            CommitMarkerPayload,
            row_count=row_count + 1,
            end_offsets=position.end_offsets,
            cuts=self.cuts,
            group_cuts=self.group_cuts,
            message_times_ms=position.message_times_ms,
            responses=[response for _, response in commit.responses()],
            messages=[value for _, value in commit.messages()],
            unapplied_groups=position.unapplied_groups,
            group_epoch_floor=position.group_epoch_floor,
            attempted_offset=commit.attempted_offset,
        )
        time_ms = max((commit.attempted_ms, *(cut.time_ms for cut in (*self.cuts, *self.group_cuts))))
        fields = payload.model_dump(mode="json")
        return constructed(StateRow, record_type=RecordType.COMMIT_MARKER, time_ms=time_ms, payload=fields)


class CommitPace:
    """Counts the time since the begin of the last commit: on an object store each of them is paid for.

    Args:
        interval_ms: least time between the begins of two commits; 0 for none.
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(self, interval_ms: int, monotonic_s: Callable[[], float]) -> None:
        self._interval_s = interval_ms / 1_000
        self._monotonic_s = monotonic_s
        self._next_s = 0.0

    def begin(self) -> None:
        """Begin a commit."""
        self._next_s = self._monotonic_s() + self._interval_s

    def wait(self, changed: Condition, is_over: Callable[[], bool]) -> None:
        """Wait until the next commit may begin, or there is nothing to wait for.

        Args:
            changed: notified when `is_over` may have changed.
            is_over: returns True if there is nothing to wait for.
        """
        pause_s = self._next_s - self._monotonic_s()
        if self._interval_s and pause_s > 0:
            with changed:
                changed.wait_for(is_over, pause_s)


def group_cut(group_id: str, cut: Cut) -> GroupCut:
    """Return a cut of one group's own messages."""
    return constructed(
        GroupCut, group_id=group_id, partition=cut.partition, end_offset=cut.end_offset, time_ms=cut.time_ms
    )
