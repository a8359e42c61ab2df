"""The faults of a schedule: each of them may happen at any time until the schedule is calm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.protocol.api_key import ActorRole
from tests.simulation.administrator import DEAD_LETTER_TOPICS, Administrator
from tests.simulation.drains import DRAIN
from tests.simulation.groups import BadMessages, Failure
from tests.simulation.log import StoredLog
from tests.simulation.member import REQUEST_TOPIC, RESPONSE_TOPIC, Application, Network, SimulatedMember
from tests.simulation.processor import BEFORE_CONFIRMATION, REFUSED_AFTER, REFUSED_BEFORE, SimulatedProcessor
from tests.simulation.table import StoredTable
from tests.simulation.world import World

START_CRASH_POINTS = ("fenced", f"append {REQUEST_TOPIC}", f"append {RESPONSE_TOPIC}")
"""Where a processor may end while it takes over."""
_CRASH_POINTS = (
    "applied",
    "before_commit",
    "after_commit",
    "committed",
    f"append {REQUEST_TOPIC}",
    f"append {RESPONSE_TOPIC}",
    "published",
)
_STALL_POINTS = ("before_commit", "after_commit", "committed", "published")


class Faults:
    """Makes faults.

    Args:
        world: time.
        log: all topics.
        network: how the members' requests and responses travel.
        administrator: changes groups and topics.
        table: the state table.
        applications: group → what its members run.
        members: returns the members that are there.
        config: partition counts of the topics.
        processor: returns the processor that took over last.
        start_another: starts a processor while others go on.
        wake_all: lets all processors poll the request log.
    """

    def __init__(
        self,
        world: World,
        log: StoredLog,
        network: Network,
        administrator: Administrator,
        table: StoredTable,
        applications: Mapping[str, Application],
        members: Callable[[], Sequence[SimulatedMember]],
        config: ProcessorConfig,
        processor: Callable[[], SimulatedProcessor],
        start_another: Callable[[], None],
        wake_all: Callable[[], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.bad_messages: BadMessages = {}
        self.is_over = False
        self._world = world
        self._log = log
        self._network = network
        self._administrator = administrator
        self._table = table
        self._applications = applications
        self._groups = list(applications)
        self._members = members
        self._config = config
        self._processor = processor
        self._start_another = start_another
        self._wake_all = wake_all
        self._weights: dict[Callable[[], None], int] = {
            self.crash: 5,
            self.commit_with_unknown_outcome: 2,
            self.stall_in_commit: 3,
            self.stall: 2,
            self.second_processor: 3,
            self.clock_jump: 2,
            self.network_trouble: 2,
            self.actor_failure: 3,
            self.failing_dead_letters: 1,
            self.repeated_confirmations: 1,
            self.topic_change: 2,
            self.configuration_change: 2,
            self.offset_reset: 2,
            self.redrive: 3,
            self.drain: 1,
            self.log_away: 2,
            self.restored_table: 2,
            self.busy_interpreter: 2,
            self.sink_away: 2,
            self.deadly_record: 2,
        }

    @property
    def count(self) -> int:
        """Number of faults so far."""
        return self.counts.total()

    def happen(self, *, ends_processor: bool) -> None:
        """Let some fault happen.

        Args:
            ends_processor: let it be a crash.
        """
        if self.is_over:
            return
        (fault,) = self._world.random.choices(list(self._weights), list(self._weights.values()))
        if ends_processor:
            fault = self.crash
        self.counts[fault.__name__] += 1
        self._world.trace("fault:", fault.__name__)
        fault()

    def calm_down(self) -> None:
        """End all faults."""
        self.is_over = True
        self._log.away_until_ms = self._world.now_ms
        self._log.refused_topics.clear()
        ends = self._log.topic(REQUEST_TOPIC).end_offsets
        for partition, offset in [key for key in self.bad_messages if key[1] >= ends[key[0]]]:
            del self.bad_messages[partition, offset]
        vars(self._network).update(vars(Network()))
        self._table.restore_newest()
        for application in self._applications.values():
            application.calm_down()
        for member in self._members():
            member.busy_until_ms = 0

    def crash(self) -> None:
        if self._world.happens(0.2):
            self._processor().kill()
        else:
            self._processor().end_at = self._world.random.choice(_CRASH_POINTS)

    def commit_with_unknown_outcome(self) -> None:
        self._processor().end_at = self._world.random.choice((REFUSED_BEFORE, REFUSED_AFTER))

    def stall_in_commit(self) -> None:
        """Let a processor stand still at a point of a commit, and another one take over meanwhile, or not."""
        duration_ms = self._world.random.choice((500, 3_000, 10_000))
        self._processor().stall = (self._world.random.choice(_STALL_POINTS), duration_ms)
        if self._world.happens(0.7):
            self._world.after(100, duration_ms, self._start_another)

    def stall(self) -> None:
        duration_ms = self._world.random.choice((500, 3_000, 10_000, 30_000))
        self._processor().stalled_until_ms = self._world.now_ms + duration_ms
        if self._world.happens(0.5):
            self._world.after(100, duration_ms, self._start_another)

    def second_processor(self) -> None:
        """Start a processor while the one before goes on."""
        self._start_another()

    def clock_jump(self) -> None:
        partition = self._world.random.randrange(self._config.request_topic_partitions)
        jump_ms = self._world.random.choice((-20_000, -1_000, 1_000, 4_000, 60_000))
        self._world.trace("the clock of request partition", partition, "jumps by", jump_ms)
        self._log.jump(REQUEST_TOPIC, partition, jump_ms)

    def network_trouble(self) -> None:
        random = self._world.random
        before = Network(**vars(self._network))
        name = random.choice(sorted(vars(self._network)))
        self._world.trace("the network has more", name)
        setattr(self._network, name, 0.4)

        def restore() -> None:
            if not self.is_over:
                vars(self._network).update(vars(before))

        self._world.after(500, 4_000, restore)

    def actor_failure(self) -> None:
        """Let an actor fail on one of the next messages."""
        random = self._world.random
        partition = random.randrange(self._config.request_topic_partitions)
        offset = self._log.topic(REQUEST_TOPIC).end_offsets[partition] + random.randint(0, 5)
        self.bad_messages[partition, offset] = (random.choice(list(ActorRole)), random.choice(list(Failure)))

    def failing_dead_letters(self) -> None:
        """Let a dead-letter topic take no records for a while, or a processor end before they are confirmed."""
        random = self._world.random
        self._administrator.configure(
            random.choice(self._groups), {"errors.deadletterqueue.topic.name": random.choice(DEAD_LETTER_TOPICS)}
        )
        if random.random() < 0.5:
            self._processor().end_at = random.choice(
                (BEFORE_CONFIRMATION, *(f"append {topic}" for topic in DEAD_LETTER_TOPICS))
            )
            return
        self._log.refused_topics.update(DEAD_LETTER_TOPICS)
        self._world.after(1_000, 40_000, self._log.refused_topics.clear)

    def repeated_confirmations(self) -> None:
        """Let confirmations of dead-letter records come late, and twice."""
        random = self._world.random
        self._administrator.configure(
            random.choice(self._groups), {"errors.deadletterqueue.topic.name": random.choice(DEAD_LETTER_TOPICS)}
        )
        self._processor().repeats_confirmations = True

    def topic_change(self) -> None:
        self._administrator.change_topic()

    def configuration_change(self) -> None:
        self._administrator.change_config(self._world.random.choice(self._groups))

    def offset_reset(self) -> None:
        self._administrator.reset_offsets(self._world.random.choice(self._groups))

    def redrive(self) -> None:
        self._administrator.redrive(self._world.random.choice(self._groups))

    def drain(self) -> None:
        """Let a group acquire only what is in flight for a while."""
        group_id = self._world.random.choice(self._groups)
        self._administrator.configure(group_id, {DRAIN: "true"})
        self._world.after(2_000, 15_000, lambda: self._administrator.configure(group_id, {DRAIN: "false"}))

    def log_away(self) -> None:
        """Let nobody reach the log for a while."""
        self._log.away_until_ms = self._world.now_ms + self._world.random.choice((200, 2_000, 8_000))
        self._world.at(self._log.away_until_ms, self._wake_all)

    def restored_table(self) -> None:
        """Let somebody restore a version of the state table that lacks published commits, and the newest one later.

        A processor that runs must commit nothing more, and none may take over before the newest version is back.
        """
        if self._table.restore_older(self._world.random.random()):
            self._world.trace("the state table is restored to", self._table.last_marker())
            self._world.after(10, self._world.random.choice((100, 5_000)), self._table.restore_newest)

    def busy_interpreter(self) -> None:
        """Let the application of a member keep its interpreter busy: no thread of the process runs."""
        if members := self._members():
            member = self._world.random.choice(members)
            member.busy_until_ms = self._world.now_ms + self._world.random.choice((1_000, 4_000, 9_000))
            self._world.trace(member.member_id, "is busy until", member.busy_until_ms)

    def sink_away(self) -> None:
        """Let the members of a group be unable to write their results for a while."""
        application = self._applications[self._world.random.choice(self._groups)]
        application.let_sink_be_away(self._world.now_ms + self._world.random.choice((1_000, 5_000, 20_000)))

    def deadly_record(self) -> None:
        """Let a record, produced already or soon, end the process of each member that handles it."""
        random = self._world.random
        application = self._applications[random.choice(self._groups)]
        name = random.choice(self._administrator.topics)
        topic = self._log.topics.get(name)
        if topic is not None:
            partition = random.randrange(len(topic.end_offsets))
            offset = max(0, topic.end_offsets[partition] + random.randint(-6, 6))
            self._world.trace("the member that handles", name, partition, offset, "dies")
            application.deadly.add((name, partition, offset))
