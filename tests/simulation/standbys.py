"""Standbys in virtual time: the production decision and watch, beside the production takeover and loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sharegroup.audit.verification.verify import verify
from sharegroup.client.settings import FetchSettings
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import FencedProcessorError, StateTableError
from sharegroup.logs.port import Log, LogRecord
from sharegroup.processor.standby.probe_responses import append_responses, folding_responses
from sharegroup.processor.standby.standby import Standby
from sharegroup.processor.standby.watch import StandbyWatch
from sharegroup.processor.takeover.takeover import Takeover, take_over
from tests.simulation.ledger import Ledger
from tests.simulation.log import SimulatedLog, StoredLog
from tests.simulation.member import REQUEST_TOPIC, RESPONSE_TOPIC, Network, SimulatedMember
from tests.simulation.processor import SimulatedProcessor
from tests.simulation.schedule import TOPIC_CONFIG
from tests.simulation.table import SimulatedTable, SimulatedWriter, StoredTable
from tests.simulation.world import World

GROUP, TOPIC = "group-1", "orders"
RESTART_MS = 3_000
"""Time after which a program that failed is started again."""
_COMMIT_DEADLINE_MS = 20_000


class StandbySite:
    """A log, a table, two standbys or more of which one works, and a member with records.

    Args:
        seed: decides all times.
        standby_count: programs that are started, one after the other.
        fold_ms: how long each fold takes.
        has_locks: all of them are on one machine.
    """

    def __init__(self, seed: int, standby_count: int = 2, fold_ms: int = 0, has_locks: bool = False) -> None:
        self.world = World(seed)
        self.fold_ms = fold_ms
        self.has_locks = has_locks
        self.table_away_until_ms = 0
        self.ended_epochs: set[int] = set()
        self.config = ProcessorConfig(
            state_table_path="s", checkpoint_path="c", request_topic_partitions=2, response_topic_partitions=2
        )
        self.broker = BrokerConfig()
        self.log = StoredLog(self.world)
        self.log.create(REQUEST_TOPIC, 2, TOPIC_CONFIG)
        self.log.create(RESPONSE_TOPIC, 2, TOPIC_CONFIG)
        self.log.create(TOPIC, 1, {})
        self.ledger = Ledger(
            self.broker.group_share_delivery_count_limit, self.broker.group_share_record_lock_duration_ms
        )
        self.table = StoredTable(self.ledger.committed)
        self.log.topic(REQUEST_TOPIC).observers.append(lambda _: self._wake())
        self.standbys: list[SimulatedStandby] = []
        for number in range(standby_count):
            self.standbys.append(SimulatedStandby(self, f"standby-{number}"))
            self.run(10_000 + fold_ms)
        self.member = SimulatedMember(
            self.world, self.log, self.ledger, GROUP, "anna", [TOPIC], Network(), FetchSettings(max_records=3)
        )
        self.member.is_good = True
        self.log.topic(RESPONSE_TOPIC).observers += [self._note_response, self.member.deliver]
        self._produce()
        self.run(10_000)

    @property
    def is_table_away(self) -> bool:
        """Return True while nobody reaches the table."""
        return self.world.now_ms < self.table_away_until_ms

    def check_table(self) -> None:
        """Raise StateTableError while the table is away."""
        if self.is_table_away:
            raise StateTableError("The table is away.")

    @property
    def active(self) -> SimulatedStandby:
        """The one whose processor took over last."""
        (active,) = (s for s in self.standbys if s.leader_epoch == self.table.leader_epoch)
        return active

    @property
    def takeover_count(self) -> int:
        """Takeovers so far."""
        return self.table.leader_epoch

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        self.world.run_until(self.world.now_ms + duration_ms)

    def takeover_ms(self, limit_ms: int = 600_000) -> int:
        """Let time pass until the next fence; return how long that took."""
        begun_ms, before = self.world.now_ms, self.takeover_count
        self.world.run_until(begun_ms + limit_ms, lambda: self.takeover_count > before)
        assert self.takeover_count > before
        return self.world.now_ms - begun_ms

    def findings(self) -> list[str]:
        """Let the member have what is left, and audit all that happened."""
        self.run(60_000)
        self.member.close()
        self.run(10_000)
        self.ledger.compare(self.table.rows)
        findings = [str(finding) for finding in verify(self.table.rows, self.broker).findings]
        return findings + self.ledger.violations

    def _note_response(self, record: LogRecord) -> None:
        # Those of a processor that folds or leaves rest on no commit.
        if record.headers:
            self.ledger.note_response(record)

    def _wake(self) -> None:
        for standby in self.standbys:
            if standby.processor is not None:
                standby.processor.wake_if_running()

    def _produce(self) -> None:
        if not self.log.is_away:
            self.log.grow(TOPIC, 0, 1)
            for standby in self.standbys:
                if standby.processor is not None:
                    standby.processor.poll()
        self.world.after(1_000, 10_000, self._produce)


class SimulatedStandby:
    """A program that stands by, works, and stands by again; as `standby_host` and its supervisor have it."""

    def __init__(self, site: StandbySite, name: str) -> None:
        self.standby = Standby()
        self.processor: StandbyProcessor | None = None
        self.leader_epoch = 0
        self._site = site
        self._name = name
        self._term = 0
        self._paused_until_ms = 0
        self._is_killed = False
        self._stand_by()

    def kill(self) -> None:
        """SIGKILL; nobody starts it again."""
        self._is_killed = True
        if self.processor is not None:
            if self._site.has_locks:
                self._site.ended_epochs.add(self.leader_epoch)
            self.processor.kill()

    def leave(self) -> None:
        """SIGTERM of the active one: what is applied is published, then it says that it leaves."""
        processor = self.processor
        assert processor is not None
        self._is_killed = True
        processor.leave()

    def pause(self, duration_ms: int) -> None:
        """SIGSTOP, and SIGCONT after this time."""
        self._paused_until_ms = self._site.world.now_ms + duration_ms
        if self.processor is not None:
            self.processor.stalled_until_ms = self._paused_until_ms

    def ended(self, processor: SimulatedProcessor) -> None:
        """Go on as a standby when another one took over, and as a new program after a failure."""
        if processor is not self.processor:
            return
        self.processor = None
        if self._is_killed:
            return
        if isinstance(processor.failure, FencedProcessorError):
            self.standby.lost(processor.leader_epoch or self.standby.leader_epoch, self._site.world.now_s)
            self._site.world.after(10, 200, self._stand_by)
        else:
            if self._site.has_locks:
                self._site.ended_epochs.add(processor.leader_epoch)
            self.standby = Standby()
            self._site.world.after(RESTART_MS, RESTART_MS, self._stand_by)

    def _stand_by(self) -> None:
        self._term += 1
        site = self._site
        log = SimulatedLog(site.log, lambda _: site.log.check_reachable(), lambda: None, lambda: 1_000)
        table = FollowedSimulatedTable(site)
        ended = _EndedProcessors(site)
        watch = StandbyWatch(
            self.standby, cast(Log, log), site.config, table, ended, lambda: site.world.now_s, self._name
        )
        self._step(watch, self._term)

    def _step(self, watch: StandbyWatch, term: int) -> None:
        world = self._site.world
        if self._is_killed or term != self._term:
            return
        if world.now_ms < self._paused_until_ms:
            world.at(self._paused_until_ms, lambda: self._step(watch, term))
        elif watch.step():
            self._take_over()
        else:
            world.after(20, 500, lambda: self._step(watch, term))

    def _take_over(self) -> None:
        site = self._site
        world = site.world
        world.trace(self._name, "takes over after", self.standby.leader_epoch)
        self.processor = StandbyProcessor(
            world, site.log, site.table, site.ledger, site.config, site.broker,
            {GROUP: {"share.auto.offset.reset": "earliest"}}, self.ended,
        )  # fmt: skip
        self.processor.belongs_to(self, site)
        self.processor.start()


class _EndedProcessors:
    def __init__(self, site: StandbySite) -> None:
        self._site = site

    def ended_epochs(self) -> list[int]:
        return sorted(self._site.ended_epochs)


class FollowedSimulatedTable(SimulatedTable):
    """The table of a standby, which may be away."""

    def __init__(self, site: StandbySite) -> None:
        super().__init__(site.table, lambda _: None)
        self._site = site
        self.commit_id = -1
        self.followed_epoch = 0

    def follow(self) -> None:
        self._site.check_table()
        marker = self.last_marker()
        self.commit_id = marker.commit_id if marker is not None else -1
        self.followed_epoch = self.leader_epoch()

    def fence(
        self, identity: Mapping[str, Any], after_epoch: int | None = None, *, accepts_loss: bool = False
    ) -> SimulatedWriter:
        self._site.check_table()
        return super().fence(identity, after_epoch, accepts_loss=accepts_loss)


class StandbyProcessor(SimulatedProcessor):
    """A processor of a standby: its log may be away for any time, and its fold may take long."""

    def belongs_to(self, owner: SimulatedStandby, site: StandbySite) -> None:
        """Set what the simulated processor has no argument for; comes before `start`."""
        self._owner, self._site = owner, site
        # The ledger accounts for responses that rest on commits; these do not.
        self._response_log = cast(Log, SimulatedLog(site.log, self._before_append, lambda: None, lambda: 1_000))

    def leave(self) -> None:
        """Publish what is applied, tell the standbys, and end."""
        self._guarded(self._loop.commit_and_publish)
        append_responses(self._response_log, self._config, self.standbys.leaving())
        self.kill()

    def _take_over(self) -> Takeover:
        table = FollowedSimulatedTable(self._site)
        table._reached = self.reached
        after_epoch = self._owner.standby.leader_epoch
        return take_over(
            cast(Log, self._log),
            table,
            self._config,
            after_epoch=after_epoch,
            fenced=self._fold,
            monotonic_s=lambda: self._world.now_s,
        )

    def _fold(self, leader_epoch: int) -> None:
        self.leader_epoch = self._owner.leader_epoch = leader_epoch
        ends = {p: len(records) for p, records in enumerate(self._stored_log.topic(REQUEST_TOPIC).partitions)}
        follower = self._log.follow(REQUEST_TOPIC, ends)
        end_ms = self._world.now_ms + self._site.fold_ms
        while self._world.now_ms < end_ms:
            self._let_time_pass(200)
            append_responses(
                self._response_log, self._config, folding_responses(follower.take(1_000, 1, 0), leader_epoch)
            )

    def _before_append(self, topic: str) -> None:
        while self._stored_log.is_away:
            self._let_time_pass(self._stored_log.away_until_ms - self._world.now_ms)

    def reached(self, point: str) -> None:
        if point == "before_commit" and self._site.is_table_away:
            self._let_time_pass(min(_COMMIT_DEADLINE_MS, self._site.table_away_until_ms - self._world.now_ms))
            self._site.check_table()
        super().reached(point)
