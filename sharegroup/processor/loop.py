"""The loop of the processor, in four steps.

    1. take     what the request log has beyond what is applied, in offset order: a cut, whose time is fixed here
    2. apply    each message to the actors of its group: rows, answers and internal messages come out as final values
    3. commit   rows, marker and outbox as one append to the state table; nothing durable happened: no commit
    4. publish  answers to the response log, internal messages to the request log, watches to the log watch

Steps 1 and 2 run on the thread that calls `run`, steps 3 and 4 on a thread of the loop's own: while a commit is on its
way the next cuts are taken and applied. All that was applied meanwhile is one commit, which begins when the one before
is published. So answers leave in the order of application, each after every commit that it rests on, and the outbox
in a marker is complete: it has whatever was applied and is not published. Nothing that was applied is taken back: a
commit is repeated until it is in, or the processor stops.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sharegroup.actor.effects import Undecodable, Wake, WatchLog, WatchTopics
from sharegroup.logs.port import Follower, LogRecord
from sharegroup.processor.commit import AppliedGroup, Commit
from sharegroup.processor.figures import LoopFigures
from sharegroup.processor.groups import GroupOutput, Groups, Rebuild, TakenCut
from sharegroup.processor.partition_clock import PartitionClocks
from sharegroup.processor.timers import Timers
from sharegroup.protocol.marker import CommitMarkerPayload, Cut, OutboxAnswer
from sharegroup.protocol.rows import RecordType, StateRow

logger = logging.getLogger("sharegroup.processor")

MARKER_AFTER_MESSAGES = 1_000
MARKER_AFTER_S = 30.0
"""A marker alone is committed after so many messages, or so long after the first of them."""

MAX_PENDING_MESSAGES = 20_000
"""Messages that may be applied and not committed; then the loop waits for the commit on its way."""


_STAMP_BEHIND_MS = 500
"""A stamp that is further behind the time of its partition is looked into, at most so often."""


class StateWriter(Protocol):
    """The state table, as the loop writes it."""

    def append(self, rows: Sequence[StateRow], commit_id: int) -> None:
        """Append the rows in one durable commit."""
        ...


class Publisher(Protocol):
    """The request and response logs, as the loop writes them."""

    def publish(self, messages: Sequence[tuple[str, str]], answers: Sequence[OutboxAnswer], commit_id: int) -> None:
        """Append internal messages, then answers."""
        ...


class Point:
    """Points that a commit passes, for tests that stop a process there."""

    APPLIED = "applied"
    COMMITTED = "committed"
    PUBLISHED = "published"


@dataclass
class Position:
    """How far the processor is when the loop begins.

    Attributes:
        leader_epoch: epoch of the processor.
        commit_id: id of the last commit; -1 before the first.
        end_offsets: request partition → offset after the last applied message.
        unapplied_groups: group → first message that is not applied, though the end offset is past it.
        message_times_ms: request partition → time of the last applied message.
    """

    leader_epoch: int
    commit_id: int
    end_offsets: dict[int, int]
    unapplied_groups: dict[str, int] = field(default_factory=dict)
    message_times_ms: dict[int, int] = field(default_factory=dict)


@dataclass
class _Batch:
    """Cuts that were applied and wait for their commit."""

    cuts: list[Cut] = field(default_factory=list)
    outputs: list[GroupOutput] = field(default_factory=list)
    ticks: list[tuple[str, str]] = field(default_factory=list)
    message_count: int = 0
    started_s: float = 0.0
    end_offsets: dict[int, int] = field(default_factory=dict)
    message_times_ms: dict[int, int] = field(default_factory=dict)
    group_epoch_floor: int = 0
    unapplied_groups: dict[str, int] = field(default_factory=dict)
    attempted_offset: tuple[int, int] | None = None
    is_marker_due: bool = False
    waiters: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_durable(self) -> bool:
        return any(output.rows for output in self.outputs)


class Loop:
    """Takes, applies, commits and publishes.

    Args:
        position: where to begin.
        follower: the tail of the request log.
        clocks: times of the request partitions.
        groups: the live groups; made with the loop's own `start_rebuild`.
        writer: the state table, fenced.
        publisher: request and response log.
        timers: when groups want a Tick.
        tick: group id and time → a Tick, as the publisher takes it.
        update_watches: takes the watches of a commit once it is published; returns at once.
        published: called with each commit once it is published.
        reached: called at each point that a commit passes.
        max_messages: messages of one cut.
        max_bytes: their bytes.
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(
        self,
        position: Position,
        follower: Follower,
        clocks: PartitionClocks,
        groups: Groups,
        writer: StateWriter,
        publisher: Publisher,
        timers: Timers,
        tick: Callable[[str, int], tuple[str, str]],
        update_watches: Callable[[Iterable[WatchLog | WatchTopics]], None],
        published: Callable[[Commit], None] = lambda _: None,
        reached: Callable[[str], None] = lambda _: None,
        max_messages: int = 10_000,
        max_bytes: int = 16 * 1024 * 1024,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.figures = LoopFigures()
        self._position = position
        self._follower = follower
        self._clocks = clocks
        self._groups = groups
        self._writer = writer
        self._publisher = publisher
        self._timers = timers
        self._tick = tick
        self._update_watches = update_watches
        self._on_published = published
        self._reached = reached
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._monotonic_s = monotonic_s
        self._applied_ends = dict(position.end_offsets)
        self._message_times_ms = dict(position.message_times_ms)
        self._next_measurement_ms: dict[int, int] = {}
        self._published_ends = dict(position.end_offsets)
        self._longest_take_ms = 1_000
        self._careful_ends: dict[int, int] = {}
        self._changed = threading.Condition()
        self._pending = _Batch(
            end_offsets=dict(position.end_offsets),
            message_times_ms=dict(position.message_times_ms),
            group_epoch_floor=groups.group_epoch_floor,
            unapplied_groups=position.unapplied_groups,
        )
        self._is_committing = False
        self._unmarked_cuts: list[Cut] = []
        self._unmarked_messages = 0
        self._unmarked_since_s = 0.0
        self._rebuilt: list[Rebuild] = []
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._committer = threading.Thread(target=self._run_commits, name="sharegroup-commits", daemon=True)

    def start(self) -> None:
        """Start the thread of steps 3 and 4; whoever calls `take_and_apply` and `commit_and_publish` needs none."""
        self._committer.start()

    # The thread of `run`: steps 1 and 2.

    def run(self, is_over: Callable[[], bool], look_interval_ms: int = 1_000) -> None:
        """Take and apply until `is_over`, which is looked at between two cuts, after `wake`, and now and then.

        Args:
            is_over: ends the run.
            look_interval_ms: how late an end may be noticed while nothing is to be taken.

        Raises:
            ShareGroupError: what stopped the processor; an unexpected exception is raised as it is.
        """
        self._longest_take_ms = look_interval_ms
        while not self._is_stopping and not is_over():
            self.raise_failure()
            try:
                if self._careful_ends:
                    self._step_carefully()
                else:
                    self.take_and_apply()
            except BaseException as failure:
                self.fail(failure)
                raise
        self.raise_failure()

    def take_and_apply(self) -> None:
        """Do steps 1 and 2 once.

        Raises:
            FencedProcessorError: another processor has taken over.
        """
        self._await_room()
        self._apply(self._take())

    def be_careful(self, end_offsets: Mapping[int, int]) -> None:
        """Apply messages below these offsets one a commit, each announced by a marker before it is applied.

        A message that ends the process is then known to the next processor, by the marker's `attempted_offset`.
        """
        applied = self._applied_ends
        self._careful_ends = {p: end for p, end in end_offsets.items() if applied.get(p, 0) < end}

    def apply_first(self, records: Sequence[LogRecord]) -> None:
        """Apply messages below the position that an earlier processor had taken and not applied."""
        self._apply(records)

    def wake(self) -> None:
        """Let `run` look whether it is over."""
        self._follower.wake()

    def fail(self, failure: BaseException) -> None:
        """Stop for a failure, this thread's or another's; the first one counts."""
        with self._changed:
            self._failure = self._failure or failure
            self._is_stopping = True
            self._changed.notify_all()
        self._follower.wake()

    def raise_failure(self) -> None:
        """Raise what stopped the loop; do nothing when nothing did."""
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout_s: float) -> None:
        """Commit and publish what was applied, and end the thread of the commits; `run` must have returned."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._follower.wake()
        self._committer.join(timeout_s)

    @property
    def applied_ends(self) -> Mapping[int, int]:
        """Request partition → offset after the last applied message."""
        return self._applied_ends

    @property
    def published_ends(self) -> Mapping[int, int]:
        """Request partition → offset after the last message whose effects are published."""
        return self._published_ends

    @property
    def is_quiet(self) -> bool:
        """Return True while nothing that was applied waits to be published."""
        return not self._pending.cuts and not self._is_committing

    def _take(self) -> list[LogRecord]:
        """Step 1."""
        records = self._follower.take(self._max_messages, self._max_bytes, self._take_timeout_ms())
        self._send_due_ticks()
        return records

    def _step_carefully(self) -> None:
        self._await_published()
        records = self._follower.take(1, self._max_bytes, self._take_timeout_ms())
        for record in records:
            with self._changed:
                self._pending.attempted_offset = (record.partition, record.offset)
                self._changed.notify_all()
            self._await_published()
            with self._changed:
                self._pending.is_marker_due = True
            self._apply([record])
            self._await_published()
        self.be_careful(self._careful_ends)

    def _apply(self, records: Sequence[LogRecord]) -> None:
        """Step 2."""
        started_s = time.perf_counter()
        outputs: list[GroupOutput] = []
        cuts: list[Cut] = []
        by_partition: dict[int, list[LogRecord]] = defaultdict(list)
        for record in records:
            by_partition[record.partition].append(record)
        for partition, of_partition in sorted(by_partition.items()):
            cut = self._cut(partition, of_partition)
            self.figures.take_ms += cut.cut_ms - cut.times_ms[0]
            outputs += self._groups.apply(cut)
            cuts.append(Cut.model_construct(partition=partition, end_offset=cut.end_offset, time_ms=cut.cut_ms))
        outputs += self._finished_rebuilds()
        if not outputs and not cuts:
            return
        for cut_ in cuts:
            self._applied_ends[cut_.partition] = max(self._applied_ends.get(cut_.partition, 0), cut_.end_offset)
        for output in outputs:
            self._timers.update(effect for effect in output.applied.effects if isinstance(effect, Wake))
        self.figures.messages += len(records)
        self.figures.cuts += len(cuts)
        self.figures.apply_ms += (time.perf_counter() - started_s) * 1_000
        self._reached(Point.APPLIED)
        self._submit(started_s, cuts, outputs, len(records))

    def _cut(self, partition: int, records: Sequence[LogRecord]) -> TakenCut:
        times_ms: list[int] = []
        time_ms = self._message_times_ms.get(partition, 0)
        for record in records:
            time_ms = max(time_ms, record.timestamp_ms)
            times_ms.append(time_ms)
        self._message_times_ms[partition] = time_ms
        self._clocks.observe(partition, time_ms)
        self._measure_lead(partition, records[-1])
        return TakenCut(partition, records, times_ms, records[-1].offset + 1, self._clocks.now_ms(partition))

    def _measure_lead(self, partition: int, last: LogRecord) -> None:
        """Send a Tick when a stamp is far behind: its message waited long, or the broker put its clock back."""
        now_ms = self._clocks.now_ms(partition)
        is_behind = now_ms - last.timestamp_ms - self._groups.lead_ms(partition) > _STAMP_BEHIND_MS
        if last.key and is_behind and now_ms >= self._next_measurement_ms.get(partition, 0):
            self._next_measurement_ms[partition] = now_ms + _STAMP_BEHIND_MS
            with self._changed:
                self._pending.ticks.append(self._tick(last.key.decode(errors="replace"), now_ms))

    def _submit(
        self, started_s: float, cuts: Sequence[Cut], outputs: Sequence[GroupOutput], message_count: int
    ) -> None:
        with self._changed:
            pending = self._pending
            if not pending.started_s:
                pending.started_s = started_s
            pending.cuts += cuts
            pending.outputs += outputs
            pending.message_count += message_count
            pending.end_offsets = dict(self._applied_ends)
            pending.message_times_ms = dict(self._message_times_ms)
            pending.group_epoch_floor = self._groups.group_epoch_floor
            pending.unapplied_groups = self._groups.unapplied
            self._changed.notify_all()

    def _send_due_ticks(self) -> None:
        due = [
            self._tick(group_id, now_ms)
            for partition in self._applied_ends
            for now_ms in (self._clocks.now_ms(partition),)
            for group_id in self._timers.due(partition, now_ms)
        ]
        if due:
            with self._changed:
                self._pending.ticks += due
                self._changed.notify_all()

    def _take_timeout_ms(self) -> int:
        waits_ms = [
            at_ms - self._clocks.now_ms(partition)
            for partition in self._applied_ends
            if (at_ms := self._timers.next_ms(partition)) is not None
        ]
        return max(0, min(self._longest_take_ms, *waits_ms)) if waits_ms else self._longest_take_ms

    def _await_published(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: (self.is_quiet and not self._has_work()) or self._is_stopping)

    def _await_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._pending.message_count < MAX_PENDING_MESSAGES or self._is_stopping)

    def _finished_rebuilds(self) -> list[GroupOutput]:
        with self._changed:
            rebuilt, self._rebuilt = self._rebuilt, []
        outputs: list[GroupOutput] = []
        for rebuild in rebuilt:
            outputs += self._groups.finish_rebuild(rebuild, self._clocks.now_ms(rebuild.partition))
        return outputs

    def when_committed(self, action: Callable[[], None]) -> None:
        """Call an action, on the commits' thread, once all that was applied so far is committed and published."""
        with self._changed:
            self._pending.waiters.append(action)
            self._changed.notify_all()

    def rebuild_is_read(self, rebuild: Rebuild) -> None:
        """Take a group whose rows were read; any thread may call it."""
        with self._changed:
            self._rebuilt.append(rebuild)
        self._follower.wake()

    # The commits' thread: steps 3 and 4.

    def commit_and_publish(self) -> bool:
        """Do steps 3 and 4 for all that was applied and is not committed; False when there is nothing to do.

        Raises:
            FencedProcessorError: another processor has taken over; nothing was committed or published.
            StateTableError: the state table cannot be written.
        """
        with self._changed:
            if not self._has_work():
                return False
            self._is_committing = True
            batch = self._pending
            self._pending = _Batch(
                end_offsets=batch.end_offsets,
                message_times_ms=batch.message_times_ms,
                group_epoch_floor=batch.group_epoch_floor,
                unapplied_groups=batch.unapplied_groups,
            )
            self._changed.notify_all()
        commit_ms = self._commit(batch)
        self._publish(batch, commit_ms)
        with self._changed:
            self._is_committing = False
            self._changed.notify_all()
        return True

    def _run_commits(self) -> None:
        try:
            while self._failure is None:
                if self.commit_and_publish():
                    continue
                with self._changed:
                    if self._is_stopping and not self._has_work():
                        return
                    if not self._has_work():
                        self._changed.wait(self._marker_wait_s())
        except BaseException as failure:
            self.fail(failure)

    def _has_work(self) -> bool:
        pending = self._pending
        if pending.cuts or pending.outputs or pending.ticks or pending.waiters or pending.attempted_offset:
            return True
        return bool(self._unmarked_messages) and (self._is_stopping or self._marker_wait_s() == 0)

    def _marker_wait_s(self) -> float | None:
        if not self._unmarked_messages:
            return None
        return max(0.0, self._unmarked_since_s + MARKER_AFTER_S - self._monotonic_s())

    def _commit(self, batch: _Batch) -> float:
        """Step 3; returns its duration in ms, 0 when nothing was to be committed."""
        if batch.cuts and not self._unmarked_messages:
            self._unmarked_since_s = self._monotonic_s()
        self._unmarked_cuts += batch.cuts
        self._unmarked_messages += batch.message_count
        if not (batch.is_durable or batch.attempted_offset or self._is_marker_due(batch)):
            return 0.0
        started_s = time.perf_counter()
        rows = [row for output in batch.outputs for row in output.rows]
        marker = CommitMarkerPayload.model_construct(
            row_count=len(rows) + 1,
            end_offsets=batch.end_offsets,
            cuts=self._unmarked_cuts,
            message_times_ms=batch.message_times_ms,
            answers=[answer for output in batch.outputs for answer in output.answers],
            messages=[value for output in batch.outputs for _, value in output.messages],
            unapplied_groups=batch.unapplied_groups,
            group_epoch_floor=batch.group_epoch_floor,
            attempted_offset=batch.attempted_offset,
        )
        time_ms = max((cut.time_ms for cut in self._unmarked_cuts), default=0)
        row = StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=time_ms, payload=marker.model_dump(mode="json"))
        commit_id = self._position.commit_id + 1
        self._writer.append([row, *rows], commit_id)
        self._position.commit_id = commit_id
        self._unmarked_cuts, self._unmarked_messages = [], 0
        commit_ms = (time.perf_counter() - started_s) * 1_000
        self.figures.commits += 1
        self.figures.commit_ms += commit_ms
        self._reached(Point.COMMITTED)
        return commit_ms

    def _is_marker_due(self, batch: _Batch) -> bool:
        if not self._unmarked_messages:
            return False
        is_due = self._unmarked_messages >= MARKER_AFTER_MESSAGES or self._marker_wait_s() == 0
        return is_due or batch.is_marker_due or self._is_stopping

    def _publish(self, batch: _Batch, commit_ms: float) -> None:
        """Step 4."""
        started_s = time.perf_counter()
        answers = [answer for output in batch.outputs for answer in output.answers]
        messages = [message for output in batch.outputs for message in output.messages]
        if answers or messages or batch.ticks:
            self._publisher.publish([*messages, *batch.ticks], answers, self._position.commit_id)
        self._published_ends = batch.end_offsets
        self._reached(Point.PUBLISHED)
        groups: list[AppliedGroup] = [output.applied for output in batch.outputs]
        commit = Commit(
            self._position.commit_id if commit_ms else None,
            self._position.leader_epoch,
            batch.cuts,
            groups,
            batch.end_offsets,
            commit_ms,
            (time.perf_counter() - batch.started_s) * 1_000,
        )
        self._update_watches(effect for effect in commit.effects() if isinstance(effect, WatchLog | WatchTopics))
        self.figures.answers += len(answers)
        self.figures.unanswerable_answers += sum(output.unanswerable_count for output in batch.outputs)
        self.figures.undecodable_messages += sum(isinstance(effect, Undecodable) for effect in commit.effects())
        self.figures.publish_ms += (time.perf_counter() - started_s) * 1_000
        if groups or batch.cuts:
            self._on_published(commit)
        for action in batch.waiters:
            action()
