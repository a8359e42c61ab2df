"""The loop of the processor, in four steps.

    1. take     the messages of the request log that are not applied, in offset order: a cut, whose time is fixed here
    2. apply    each message to the actors of its group: rows, responses and internal messages come out as final values
    3. commit   rows, marker and outbox as one append to the state table; no commit without durable changes
    4. publish  responses to the response log, internal messages to the request log, watches to the log watch

Steps 1 and 2 run on the thread that calls `run`, steps 3 and 4 on a thread of the loop: during a commit the next cuts
are taken and applied. All cuts applied meanwhile are one commit, which begins when the one before is published. So
responses are sent in the order of application, each after every commit that it depends on, and the outbox in a marker
is complete: it has all output that was applied and is not published. Applied messages are never taken back: a commit
is retried until it succeeds, or the processor stops.

The position of the loop (applied offsets, times of messages, groups that are being rebuilt) is that of the pending
commit, and of nothing else: only step 2 moves it, and each commit has the position after its own cuts.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from sharegroup.actor.effects import Undecodable, Wake, WatchLog, WatchTopics
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Follower, LogRecord
from sharegroup.metrics.processor_metrics import LoopFigures
from sharegroup.processor.clocks import Timers
from sharegroup.processor.commit import Commit, CommitPace, CommitPoint, UnmarkedCuts, group_cut
from sharegroup.processor.groups import Groups, Rebuild, TakenCut
from sharegroup.processor.part import Part
from sharegroup.processor.takeover.takeover import Takeover
from sharegroup.protocol.marker import Cut
from sharegroup.protocol.messages import constructed

MAX_PENDING_MESSAGES = 20_000
"""Messages that may be applied and not committed; beyond it the loop waits for the commit under way."""

_STAMP_BEHIND_MS = 500
"""Lag of a stamp behind the time of its partition for which a Tick is sent; also the minimum interval of such Ticks."""


class LoopHost(Protocol):
    """The parts beside a loop; its methods are called by the commit thread, and return at once."""

    def reached(self, point: str) -> None:
        """Note a point that a commit has passed; also called by the thread of `run`."""

    def update_watches(self, effects: Iterable[WatchLog | WatchTopics]) -> None:
        """Take the watches of a commit once it is published."""

    def published(self, commit: Commit) -> None:
        """Take a published commit."""

    def read_rows(self, rebuild: Rebuild) -> None:
        """Read the rows of a group that is rebuilt, all earlier commits included; `Loop.rebuild_is_read` takes them."""


class Loop:
    """Takes and applies messages, commits and publishes their effects.

    Args:
        config: limits of a cut, and the pace of commits.
        takeover: where the loop begins, the fenced state table, and the publisher.
        follower: the tail of the request log.
        groups: the live groups, with the clocks of the request partitions.
        host: the parts beside the loop.
    """

    def __init__(
        self, config: ProcessorConfig, takeover: Takeover, follower: Follower, groups: Groups, host: LoopHost
    ) -> None:
        self.figures = LoopFigures()
        self._commit_id = takeover.commit_id
        self._follower = follower
        self._groups = groups
        self._clocks = groups.clocks
        self._pace = CommitPace(config.processor_commit_interval_ms, groups.clocks.monotonic_s)
        self._writer = takeover.writer
        self._publisher = takeover.publisher
        self._timers = Timers(lambda group_id: partition_for(group_id, config.request_topic_partitions))
        self._host = host
        self._max_messages = config.max_requests_per_cut
        self._max_bytes = config.max_request_bytes_per_cut
        self._next_measurement_ms: dict[int, int] = {}
        self._longest_take_ms = 1_000
        self._one_by_one_ends: dict[int, int] = {}
        self._changed = threading.Condition()
        self._pending = Commit(takeover.position)
        self._unmarked = UnmarkedCuts()
        self._published_ends = takeover.position.end_offsets
        self._is_committing = False
        self._is_writing = False
        self._rebuilt: list[Rebuild] = []
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._committer = Part("commits", self._run_commits, self.fail)

    def start(self) -> None:
        """Start the thread of steps 3 and 4; callers of `take_and_apply` and `commit_and_publish` need none."""
        self._committer.start()

    # The thread of `run`: steps 1 and 2.

    def run(self, is_over: Callable[[], bool], poll_interval_ms: int = 1_000) -> None:
        """Take and apply until `is_over`, which is checked between two cuts, after `wake`, and at an interval.

        Raises:
            ShareGroupError: the cause of the stop; an unexpected exception is raised unchanged.
        """
        self._longest_take_ms = poll_interval_ms
        while not self._is_stopping and not is_over():
            self.raise_failure()
            try:
                if self._one_by_one_ends:
                    self._step_one_by_one()
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
        with self._changed:
            self._changed.wait_for(lambda: self._pending.message_count < MAX_PENDING_MESSAGES or self._is_stopping)
        # 1. Take.
        records = self._follower.take(self._max_messages, self._max_bytes, self._take_timeout_ms())
        self._send_due_ticks()
        # 2. Apply.
        self._submit(self._applied(records))

    def apply_one_by_one(self, end_offsets: Mapping[int, int]) -> None:
        """Apply messages below these offsets one per commit, each announced by a marker before it is applied.

        A message that ends the process is then known to the next processor, by the marker's `attempted_offset`.
        """
        applied_ends = self._applied_ends
        self._one_by_one_ends = {p: end for p, end in end_offsets.items() if applied_ends.get(p, 0) < end}

    def apply_first(self, records: Sequence[LogRecord]) -> None:
        """Apply messages below the position that an earlier processor had taken and not applied."""
        applied = self._applied(records)
        # Other groups' cuts have long passed these messages.
        group_ids = sorted({(record.partition, (record.key or b"").decode(errors="replace")) for record in records})
        cuts = {cut.partition: cut for cut in applied.cuts}
        applied.cuts = []
        applied.group_cuts += [group_cut(group_id, cuts[partition]) for partition, group_id in group_ids]
        self._submit(applied)

    def wake(self) -> None:
        """Let `run` check whether it is over."""
        self._follower.wake()

    def fail(self, failure: BaseException) -> None:
        """Stop because of a failure in any thread; the first failure is kept."""
        with self._changed:
            self._failure = self._failure or failure
            self._is_stopping = True
            self._changed.notify_all()
        self._follower.wake()

    def raise_failure(self) -> None:
        """Raise the failure that stopped the loop, if there is one."""
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout_s: float) -> bool:
        """Commit and publish all applied cuts once `run` has returned; return False while a commit is on its way."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._follower.wake()
        return self._committer.stop(timeout_s)

    @property
    def published_ends(self) -> Mapping[int, int]:
        """Return request partition → offset after the last message whose effects are published."""
        return self._published_ends

    @property
    def is_quiet(self) -> bool:
        """Return True while no applied cuts wait to be published."""
        return not self._pending.cuts and not self._is_committing

    @property
    def is_writing(self) -> bool:
        """Return True while a commit is being written to the state table, which has a deadline of its own."""
        return self._is_writing

    @property
    def _applied_ends(self) -> Mapping[int, int]:
        return self._pending.position.end_offsets

    def _step_one_by_one(self) -> None:
        self._await_published()
        records = self._follower.take(1, self._max_bytes, self._take_timeout_ms())
        for record in records:
            with self._changed:
                self._pending.attempted_offset = (record.partition, record.offset)
                self._pending.attempted_ms = self._clocks.now_ms(record.partition)
                self._changed.notify_all()
            self._await_published()
            with self._changed:
                self._pending.is_marker_due = True
            self._submit(self._applied([record]))
            self._await_published()
        self.apply_one_by_one(self._one_by_one_ends)

    def _applied(self, records: Sequence[LogRecord]) -> Commit:
        """Apply records, one cut for each request partition, and groups that were rebuilt meanwhile."""
        applied = Commit(self._pending.position, started_s=time.perf_counter(), message_count=len(records))
        by_partition: dict[int, list[LogRecord]] = defaultdict(list)
        for record in records:
            by_partition[record.partition].append(record)
        for partition, of_partition in sorted(by_partition.items()):
            cut = self._cut(partition, of_partition)
            self.figures.take_ms += cut.cut_ms - cut.times_ms[0]
            applied.outputs += self._groups.apply(cut)
            # The next processor starts no earlier, even if no cut of the partition is in the last marker.
            self._clocks.reach(partition, cut.times_ms[-1])
            applied.cuts.append(constructed(Cut, partition=partition, end_offset=cut.end_offset, time_ms=cut.cut_ms))
        # Groups that failed in these cuts are read once all of them are committed.
        applied.waiters += [partial(self._host.read_rows, rebuild) for rebuild in self._groups.take_new_rebuilds()]
        self._finish_rebuilds(applied)
        for output in applied.outputs:
            self._timers.update(effect for effect in output.effects if isinstance(effect, Wake))
        applied.position = applied.position.after(
            applied.cuts, self._clocks.message_times_ms, self._groups.group_epoch_floor, self._groups.unapplied
        )
        return applied

    def _cut(self, partition: int, records: Sequence[LogRecord]) -> TakenCut:
        times_ms = self._clocks.append_times_ms(partition, records)
        now_ms = self._clocks.observe(partition, times_ms[-1])
        self._measure_lead(partition, records[-1], now_ms)
        return TakenCut(partition, records, times_ms, records[-1].offset + 1, now_ms)

    def _measure_lead(self, partition: int, last: LogRecord, now_ms: int) -> None:
        """Send a Tick when a stamp is far behind: its message waited long, or the broker's clock was set back."""
        is_behind = self._clocks.lag_ms(partition, now_ms, last.timestamp_ms) > _STAMP_BEHIND_MS
        if last.key and is_behind and now_ms >= self._next_measurement_ms.get(partition, 0):
            self._next_measurement_ms[partition] = now_ms + _STAMP_BEHIND_MS
            with self._changed:
                self._pending.ticks.append(self._publisher.tick(last.key.decode(errors="replace"), now_ms))

    def _finish_rebuilds(self, applied: Commit) -> None:
        with self._changed:
            rebuilt, self._rebuilt = self._rebuilt, []
        for rebuild in rebuilt:
            partition, end_offset = rebuild.partition, rebuild.messages[-1].offset + 1
            cut = constructed(Cut, partition=partition, end_offset=end_offset, time_ms=self._clocks.now_ms(partition))
            applied.outputs += self._groups.finish_rebuild(rebuild, cut.time_ms)
            applied.group_cuts.append(group_cut(rebuild.group_id, cut))

    def _submit(self, applied: Commit) -> None:
        """Add applied cuts to the pending commit."""
        if applied.is_empty:
            return
        self.figures.messages += applied.message_count
        self.figures.cuts += len(applied.cuts)
        self.figures.apply_ms += (time.perf_counter() - applied.started_s) * 1_000
        self._host.reached(CommitPoint.APPLIED)
        with self._changed:
            self._pending.add(applied)
            self._changed.notify_all()

    def _send_due_ticks(self) -> None:
        due = [
            self._publisher.tick(group_id, now_ms)
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

    def rebuild_is_read(self, rebuild: Rebuild) -> None:
        """Accept a group whose rows were read; any thread may call it."""
        with self._changed:
            self._rebuilt.append(rebuild)
        self._follower.wake()

    # The commit thread: steps 3 and 4.

    def commit_and_publish(self) -> bool:
        """Do steps 3 and 4 for all cuts that are applied and not committed; return False when there are none.

        Raises:
            FencedProcessorError: another processor has taken over; nothing was committed or published.
            StateTableError: the state table cannot be written.
        """
        with self._changed:
            if not self._has_work():
                return False
            self._is_committing = True
            commit = self._pending
            self._pending = Commit(commit.position)
            self._changed.notify_all()
        # 3. Commit.
        self._commit(commit)
        # 4. Publish.
        self._publish(commit)
        self._hand_on(commit)
        with self._changed:
            self._published_ends = commit.position.end_offsets
            self._is_committing = False
            self._changed.notify_all()
        return True

    def _run_commits(self) -> None:
        while self._failure is None:
            self._pace.wait(self._changed, self._may_begin)
            if self.commit_and_publish():
                continue
            with self._changed:
                if self._is_stopping and not self._has_work():
                    return
                if not self._has_work():
                    self._changed.wait(self._unmarked.wait_s(self._clocks.monotonic_s()))

    def _may_begin(self) -> bool:
        """Return True if a commit need not wait for its interval, or there is none to make."""
        return self._is_stopping or not self._pending.needs_commit or self._pending.is_of_one_message

    def _has_work(self) -> bool:
        if not self._pending.is_empty:
            return True
        wait_s = self._unmarked.wait_s(self._clocks.monotonic_s())
        return wait_s is not None and (self._is_stopping or wait_s == 0)

    def _commit(self, commit: Commit) -> None:
        self._unmarked.add(commit, self._clocks.monotonic_s())
        if not (commit.needs_commit or self._is_marker_due(commit)):
            return
        started_s = time.perf_counter()
        self._pace.begin()
        rows = commit.rows()
        self._is_writing = True
        try:
            self._writer.append([self._unmarked.marker(commit, len(rows)), *rows], self._commit_id + 1)
        finally:
            self._is_writing = False
        self._commit_id += 1
        self._unmarked = UnmarkedCuts()
        commit.commit_id = self._commit_id
        commit.commit_ms = (time.perf_counter() - started_s) * 1_000
        self.figures.commits += 1
        self.figures.commit_ms += commit.commit_ms
        self._host.reached(CommitPoint.COMMITTED)

    def _is_marker_due(self, commit: Commit) -> bool:
        wait_s = self._unmarked.wait_s(self._clocks.monotonic_s())
        return wait_s is not None and (wait_s == 0 or commit.is_marker_due or self._is_stopping)

    def _publish(self, commit: Commit) -> None:
        started_s = time.perf_counter()
        responses, messages = commit.responses(), commit.messages()
        if responses or messages or commit.ticks:
            self._publisher.publish([*messages, *commit.ticks], responses, self._commit_id, self._clocks.now_ms)
        self._host.reached(CommitPoint.PUBLISHED)
        commit.processing_ms = (time.perf_counter() - commit.started_s) * 1_000
        self._host.update_watches(effect for effect in commit.effects() if isinstance(effect, WatchLog | WatchTopics))
        self.figures.responses += len(responses)
        self.figures.unaddressed_responses += sum(output.unaddressed_count for output in commit.outputs)
        self.figures.undecodable_messages += sum(isinstance(effect, Undecodable) for effect in commit.effects())
        self.figures.publish_ms += (time.perf_counter() - started_s) * 1_000

    def _hand_on(self, commit: Commit) -> None:
        """Pass a published commit on to the parts beside the loop."""
        if commit.has_cuts:
            self._host.published(commit)
        for action in commit.waiters:
            action()
