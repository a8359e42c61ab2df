"""A processor in virtual time: the production takeover, loop and groups, on a log, a table and a watch in memory.

It has no threads: taking and applying, and committing and publishing, are events. While a commit is on its way the
world goes on, the processor's own taking and applying included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import FencedProcessorError, LogUnavailableError, StateTableError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.processor.assembly import GroupOverrides, initial_configuration
from sharegroup.processor.clocks import PartitionClocks, Timers
from sharegroup.processor.commit import Commit
from sharegroup.processor.dead_letters.writer import DeadLetterWriter
from sharegroup.processor.groups import Rebuild
from sharegroup.processor.loop import Loop
from sharegroup.processor.output import LogPublisher, ResponseRecords
from sharegroup.processor.standby.probe_responses import KnownStandbys
from sharegroup.processor.takeover.takeover import Takeover, take_over
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import RequestEnvelope, request
from tests.simulation.groups import BadMessages, SimulatedGroups
from tests.simulation.ledger import Ledger
from tests.simulation.log import SimulatedFollower, SimulatedLog, StoredLog
from tests.simulation.table import SimulatedTable, StoredTable
from tests.simulation.watch import SimulatedWatch
from tests.simulation.world import Alarm, World

REFUSED_BEFORE = "refused_before_commit"
REFUSED_AFTER = "refused_after_commit"
BEFORE_CONFIRMATION = "before_confirmation"
"""Dead-letter records are in their topic, and nobody knows it yet."""
_MARKER_ALONE_MS = 30_100


class Crash(BaseException):
    """The process ends here."""


class SimulatedLoop(Loop):
    """The loop without its thread: what waits for commits makes them, one at a time."""

    is_committing = False

    @property
    def timers(self) -> Timers:
        return self._timers

    def commit_and_publish(self) -> bool:
        if self.is_committing:
            return False
        self.is_committing = True
        try:
            return super().commit_and_publish()
        finally:
            self.is_committing = False

    def _await_published(self) -> None:
        while self.commit_and_publish():
            pass


class SimulatedProcessor:
    """One processor, from its takeover to its end.

    Args:
        world: time.
        log: all topics.
        table: the state table.
        ledger: keeps accounts.
        config: names and partition counts of the topics.
        broker: configuration of all groups.
        overrides: what groups start with.
        ended: called once when the processor is over.
        bad_messages: messages that actors fail on.
    """

    def __init__(
        self,
        world: World,
        log: StoredLog,
        table: StoredTable,
        ledger: Ledger,
        config: ProcessorConfig,
        broker: BrokerConfig,
        overrides: GroupOverrides,
        ended: Callable[[SimulatedProcessor], None],
        bad_messages: BadMessages | None = None,
    ) -> None:
        self.is_over = False
        self.end_at: str | None = None
        """The point at which the process ends, or its table fails."""
        self.stall: tuple[str, int] | None = None
        """A point, and how long the processor stands still there."""
        self.stalled_until_ms = 0
        self.leader_epoch = 0
        self.failure: BaseException | None = None
        self.standbys = KnownStandbys(0)
        self.fired_count = 0
        self._world = world
        self._stored_log = log
        self._stored_table = table
        self._ledger = ledger
        self._config = config
        self._broker = broker
        self._overrides = overrides
        self._ended = ended
        self._bad_messages = {} if bad_messages is None else bad_messages
        self._log = SimulatedLog(log, self._before_append, ledger.publish, self._cut_size)
        self.repeats_confirmations = False
        """Confirmations of dead-letter records come late, and twice."""
        self._is_stepping = False
        self._commits_again = False
        self._next_step = Alarm(world, self._step)
        self._next_poll = Alarm(world, self._poll)
        self._takeover: Takeover | None = None
        self._loop: SimulatedLoop
        self._follower: SimulatedFollower
        self._watch: SimulatedWatch
        self._dead_letters: DeadLetterWriter
        self._next_writing = Alarm(world, self._write_dead_letters)
        self._is_writing = False
        self._has_rebuilt = False
        self._publisher: LogPublisher
        self._clocks: PartitionClocks

    def start(self) -> None:
        """Take over."""
        self._guarded(self._start)

    def wake(self) -> None:
        """Take what the request log has, soon."""
        self._next_step.set(self._world.now_ms + self._world.between(1, 30))

    def wake_if_running(self) -> None:
        """Take what the request log has, if there is a loop already."""
        if not self.is_over and self._takeover is not None:
            self.wake()

    def calm_down(self) -> None:
        """Have no fault any more."""
        self.end_at, self.stall, self.stalled_until_ms, self.repeats_confirmations = None, None, 0, False

    def poll(self) -> None:
        """Poll the record log, soon."""
        if not self.is_over and self._takeover is not None:
            self._next_poll.set(self._world.now_ms + self._world.random.randint(1, 30))

    def _poll(self) -> None:
        if self.is_over:
            return

        def poll() -> None:
            next_poll_s = self._watch.poll()
            if next_poll_s is not None:
                self._next_poll.set(max(round(next_poll_s * 1_000), self._world.now_ms + 1))

        self._guarded(poll)

    def kill(self) -> None:
        """End now."""
        if not self.is_over:
            self.is_over = True
            self._world.trace("processor", self.leader_epoch, "is killed")
            self._ended(self)

    def _start(self) -> None:
        takeover = self._take_over()
        position = takeover.position
        self._publisher = takeover.publisher
        self.leader_epoch = position.leader_epoch
        self._world.trace(
            "processor", self.leader_epoch, "takes over after commit", takeover.commit_id, position.end_offsets,
            "careful" if takeover.applies_one_by_one else "",
        )  # fmt: skip
        self._follower = self._log.follow(self._config.request_topic_name, position.end_offsets)
        self._watch = SimulatedWatch(self._world, self._stored_log, takeover.publisher.send, self.leader_epoch)
        self._clocks = takeover.clocks
        self._dead_letters = DeadLetterWriter(
            cast(Log, self._log),
            self._confirm,
            self._fail,
            self.leader_epoch,
            {self._config.request_topic_name, self._config.response_topic_name},
            may_create_topics=True,
            clock_s=lambda: self._world.now_s,
        )
        self._dead_letters.resume(takeover.folded, self._broker)
        groups = SimulatedGroups(
            self._bad_messages,
            self._ledger.requests.rebuilt,
            takeover.beginning,
            self._broker,
            ResponseRecords(cast(Log, self._log), self._config),
            self._clocks,
        )
        opening = [
            *(
                request(ApiKey.TICK, group_id, Tick(), leader_epoch=self.leader_epoch)
                for group_id in takeover.folded.groups
            ),
            *initial_configuration(takeover.folded, self._overrides),
        ]
        self.standbys = groups.standbys
        self._loop = self._new_loop(takeover, groups)
        unapplied = takeover.unapplied_records(cast(Log, self._log), self._config.request_topic_name)
        if unapplied:
            self._loop.apply_first(unapplied)
        if takeover.applies_one_by_one:
            self._loop.apply_one_by_one({p: offset + 1 for p, offset in takeover.announced_offsets.items()})
        takeover.publisher.send(opening)
        self._takeover = takeover
        self.wake()
        self._next_writing.set(self._world.now_ms + 1)
        self._world.at(self._world.now_ms + _MARKER_ALONE_MS, self._commit_marker)

    def _take_over(self) -> Takeover:
        table = SimulatedTable(self._stored_table, self.reached)
        return take_over(cast(Log, self._log), table, self._config, monotonic_s=lambda: self._world.now_s)

    def _new_loop(self, takeover: Takeover, groups: SimulatedGroups) -> SimulatedLoop:
        return SimulatedLoop(self._config, takeover, self._follower, groups, self)

    # The host of the loop.

    def read_rows(self, rebuild: Rebuild) -> None:
        rebuild.rows = list(self._stored_table.recovery(rebuild.group_id).rows)
        self._loop.rebuild_is_read(rebuild)
        self._has_rebuilt = True
        self.wake()

    def update_watches(self, effects: Iterable[WatchLog | WatchTopics]) -> None:
        if self._watch.update(effects):
            self.poll()

    def published(self, commit: Commit) -> None:
        self._dead_letters.published(commit)
        self._next_writing.set(self._world.now_ms + self._world.between(1, 20))

    def reached(self, point: str) -> None:
        """Pass a point: the process may have ended, end here, or stand still here."""
        if self.is_over:
            raise Crash
        if point == "before_commit" and self._world.happens(0.4):
            self._let_time_pass(self._world.random.randint(2, 40))
        if self.stall is not None and self.stall[0] == point:
            duration_ms, self.stall = self.stall[1], None
            self.fired_count += 1
            self._world.trace("processor", self.leader_epoch, "stands still at", point, "for", duration_ms)
            self._let_time_pass(duration_ms)
        if self.end_at is None:
            return
        ends_here = self.end_at == point or (point, self.end_at) in (
            ("before_commit", REFUSED_BEFORE),
            ("after_commit", REFUSED_AFTER),
        )
        if not ends_here:
            return
        end_at, self.end_at = self.end_at, None
        self.fired_count += 1
        if end_at in (REFUSED_BEFORE, REFUSED_AFTER):
            raise StateTableError(f"The outcome is not known: {end_at}.")
        self._world.trace("processor", self.leader_epoch, "ends at", point)
        raise Crash

    # Events.

    def _step(self) -> None:
        if self.is_over or self._takeover is None:
            return
        if self._world.now_ms < self.stalled_until_ms:
            self._next_step.set(self.stalled_until_ms)
            return
        if self._is_stepping or (self._loop.is_committing and self._takeover.applies_one_by_one):
            self._next_step.set(self._world.now_ms + 5)
            return
        if self._follower.has_records or self._has_rebuilt or self._wait_ms() == 0:
            self._is_stepping, self._has_rebuilt = True, False
            try:
                self._guarded(self._run_once)
            finally:
                self._is_stepping = False
            if self.is_over:
                return
            if self._world.happens(0.8):
                self._world.after(0, 3, self._commit)
            else:
                self._world.after(5, 60, self._commit)
        if self._follower.has_records:
            self.wake()
        elif (wait_ms := self._wait_ms()) is not None:
            self._next_step.set(self._world.now_ms + max(1, wait_ms))

    def _wait_ms(self) -> int | None:
        """How long until a group wants a Tick; None when none does."""
        waits_ms = [
            next_ms - self._clocks.now_ms(partition)
            for partition in range(self._config.request_topic_partitions)
            if (next_ms := self._loop.timers.next_ms(partition)) is not None
        ]
        return max(0, min(waits_ms)) if waits_ms else None

    def _run_once(self) -> None:
        is_over = iter([False])
        self._loop.run(lambda: next(is_over, True))

    def _commit(self) -> None:
        if self.is_over or self._takeover is None:
            return
        if self._loop.is_committing:
            self._commits_again = True
            return
        if self._world.now_ms < self.stalled_until_ms:
            self._world.at(self.stalled_until_ms, self._commit)
            return
        self._commits_again = False
        self._guarded(self._loop.commit_and_publish)
        if self._commits_again:
            self._world.after(0, 3, self._commit)

    def _commit_marker(self) -> None:
        if not self.is_over:
            self._commit()
            self._world.at(self._world.now_ms + _MARKER_ALONE_MS, self._commit_marker)

    # Dead letters.

    def _write_dead_letters(self) -> None:
        if self.is_over:
            return
        if self._is_writing:
            self._next_writing.set(self._world.now_ms + 5)
            return
        if self._world.now_ms < self.stalled_until_ms:
            self._next_writing.set(self.stalled_until_ms)
            return

        def write() -> None:
            self._is_writing = True
            pause_s = self._dead_letters.write_due()
            self._is_writing = False
            if pause_s is not None:
                self._next_writing.set(self._world.now_ms + max(1, round(pause_s * 1_000)))

        self._guarded(write)

    def _confirm(self, requests: list[RequestEnvelope]) -> None:
        """Send what the dead-letter writer says, perhaps again when this processor is long over."""
        if any(envelope.api_key == ApiKey.DLQ_WRITTEN for envelope in requests):
            self.reached(BEFORE_CONFIRMATION)
            if self.repeats_confirmations:
                self._world.trace("processor", self.leader_epoch, "confirms dead letters twice")
                self._world.after(100, 20_000, lambda: self._confirm_late(requests))
        self._publisher.send(requests)

    def _confirm_late(self, requests: Iterable[RequestEnvelope]) -> None:
        for envelope in requests:
            partition = partition_for(envelope.group_id, self._config.request_topic_partitions)
            record = NewRecord(envelope.group_id.encode(), envelope.encoded())
            self._stored_log.append(self._config.request_topic_name, partition, [record])

    def _fail(self, failure: BaseException) -> None:
        raise failure

    # Faults.

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (Crash, FencedProcessorError, StateTableError, LogUnavailableError) as failure:
            self.failure = failure
        else:
            return
        if not self.is_over:
            self.is_over = True
            self._world.trace("processor", self.leader_epoch, "ends:", type(self.failure).__name__, self.failure)
            self._ended(self)

    def _before_append(self, topic: str) -> None:
        self.reached(f"append {topic}")
        if self._stored_log.is_away and self._world.happens(0.7):
            self._let_time_pass(self._stored_log.away_until_ms - self._world.now_ms)
        self._stored_log.check_reachable()

    def _let_time_pass(self, duration_ms: int) -> None:
        self._world.run_until(self._world.now_ms + duration_ms)
        if self.is_over:
            raise Crash

    def _cut_size(self) -> int:
        return self._world.random.choice((1, 2, 3, 5, 20))
