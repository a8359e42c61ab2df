"""One seed, one schedule: members, producers, processors and faults, until everything is drained; then the audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from sharegroup.audit.verify import verify
from sharegroup.client.settings import FetchSettings
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor import ProcessorConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request
from sharegroup.state.fold import FoldedGroup, FoldedState, fold
from tests.simulation.ledger import Ledger
from tests.simulation.log import StoredLog
from tests.simulation.member import REQUEST_TOPIC, RESPONSE_TOPIC, Network, SimulatedMember
from tests.simulation.processor import REFUSED_AFTER, REFUSED_BEFORE, SimulatedProcessor
from tests.simulation.table import StoredTable
from tests.simulation.world import World

LEAST_MESSAGES = 300
LEAST_TAKEOVERS = 2
LEAST_FAULTS = 5

_CRASH_POINTS = (
    "applied",
    "before_commit",
    "after_commit",
    "committed",
    f"append {REQUEST_TOPIC}",
    f"append {RESPONSE_TOPIC}",
    "published",
    "fenced",
)
_STALL_POINTS = ("before_commit", "after_commit", "committed", "published")
_INTERNAL = b'{"api_key":10'
"""How values of internal messages begin; those of members' requests begin with the version."""
_LONGEST_MS = 1_200_000
_LONGEST_DRAIN_MS = 240_000


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes that a schedule is made of; mutants replace one of them."""

    ledger: type[Ledger] = Ledger
    member: type[SimulatedMember] = SimulatedMember
    processor: type[SimulatedProcessor] = SimulatedProcessor
    table: type[StoredTable] = StoredTable


@dataclass
class Result:
    """What became of a schedule.

    Attributes:
        seed: its seed.
        findings: what the auditor and the ledger say; empty when all is well.
        message_count: messages of the request log.
        takeover_count: takeovers but the first.
        fault_count: faults that came to pass.
        end_ms: virtual time at the end.
    """

    seed: int
    findings: list[str] = field(default_factory=list)
    message_count: int = 0
    takeover_count: int = 0
    fault_count: int = 0
    end_ms: int = 0


def run_schedule(seed: int, is_traced: bool = False, parts: Parts | None = None) -> Result:
    """Run the schedule of a seed, and audit it."""
    return Schedule(seed, is_traced, parts or Parts()).run()


class Schedule:
    """A schedule."""

    def __init__(self, seed: int, is_traced: bool, parts: Parts) -> None:
        self._seed = seed
        self._parts = parts
        self._world = World(seed, is_traced)
        random = self._world.random
        self._config = _processor_config(random.choice((1, 1, 2)), random.choice((1, 2, 3)))
        self._broker = _broker(
            random.choice((1_000, 2_000, 5_000)), random.choice((2, 3, 5)), random.choice((2, 5, 500))
        )
        self._log = StoredLog(self._world)
        self._log.create(REQUEST_TOPIC, self._config.request_topic_partitions, TOPIC_CONFIG)
        self._log.create(RESPONSE_TOPIC, self._config.response_topic_partitions, TOPIC_CONFIG)
        self._topics = {f"topic-{index}": random.randint(1, 3) for index in range(random.choice((1, 1, 2)))}
        for name, partition_count in self._topics.items():
            self._log.create(name, partition_count, {})
        self._groups = [f"group-{index}" for index in range(random.choice((1, 1, 2)))]
        self._ledger = parts.ledger(
            self._broker.group_share_delivery_count_limit, self._broker.group_share_record_lock_duration_ms
        )
        self._table = parts.table(self._ledger.committed)
        self._network = Network(repeat=0.02, delayed_repeat=0.02, unknown=0.02, lost=0.01, late=0.01, reread=0.01)
        self._members: list[SimulatedMember] = []
        self._member_count = 0
        self._processor: SimulatedProcessor
        """The one that took over last."""
        self._running: list[SimulatedProcessor] = []
        self._is_calm = False
        self._message_count = 0
        self._fault_count = 0
        self._takeover_is_due = False
        self._next_fault_at = random.randint(10, 40)

    def run(self) -> Result:
        self._log.topic(REQUEST_TOPIC).observers.append(self._requested)
        self._log.topic(RESPONSE_TOPIC).observers.append(self._answered)
        self._take_over()
        for group_id in self._groups:
            for _ in range(self._world.random.randint(1, 3)):
                self._join(group_id)
        self._world.at(5, self._produce)
        self._world.at(3_000, self._change_members)
        self._world.at(1_000, self._snapshot)
        self._world.run_until(_LONGEST_MS, lambda: self._has_seen_enough)
        if not self._has_seen_enough:
            return self._result(["the schedule does not come to its end"])
        self._calm_down()
        end_ms = self._world.now_ms + _LONGEST_DRAIN_MS
        while self._world.now_ms < end_ms and not self._is_drained:
            self._world.run_until(self._world.now_ms + 500)
        is_drained = self._is_drained
        self._world.run_until(self._world.now_ms + 200)
        for member in self._members:
            if not member.is_gone:
                member.close()
        self._world.run_until(self._world.now_ms + 2_000)
        return self._result(self._audit(is_drained))

    # The processors.

    def _take_over(self) -> None:
        self._takeover_is_due = False
        processor = self._parts.processor(
            self._world,
            self._log,
            self._table,
            self._ledger,
            self._config,
            self._broker,
            {group_id: {"share.auto.offset.reset": "earliest"} for group_id in self._groups},
            self._processor_ended,
        )
        is_first = not self._running and not self._table.rows
        self._processor = processor
        self._running.append(processor)
        if not self._is_calm and not is_first and self._world.happens(0.1):
            processor.end_at = self._world.random.choice(("fenced", *_CRASH_POINTS[4:6]))
        processor.start()

    def _processor_ended(self, processor: SimulatedProcessor) -> None:
        self._running.remove(processor)
        if processor is self._processor and not self._takeover_is_due:
            self._takeover_is_due = True
            self._world.after(5, 50 if self._is_calm or self._world.happens(0.7) else 4_000, self._take_over)

    # What goes on.

    def _produce(self) -> None:
        if self._is_calm:
            return
        name = self._world.random.choice(sorted(self._topics))
        partition = self._world.random.randrange(self._topics[name])
        if self._log.topic(name).end_offsets[partition] < 60:
            count = self._world.random.randint(1, 6)
            self._log.grow(name, partition, count)
            self._world.trace("producer appends", count, "to", name, partition)
            for processor in list(self._running):
                processor.look()
        self._world.after(50, 3_000, self._produce)

    def _join(self, group_id: str) -> SimulatedMember:
        random = self._world.random
        self._member_count += 1
        topics = sorted(self._topics) if self._is_calm or random.random() < 0.8 else [min(self._topics)]
        fetch = FetchSettings(
            max_records=100 if self._is_calm else random.choice((1, 3, 10)),
            batch_size=random.choice((1, 3, 10)),
            acquire_mode=random.choice(list(AcquireMode)),
            max_wait_ms=random.choice((500, 2_000)),
            request_timeout_ms=3_000,
            acknowledge_timeout_ms=random.choice((None, None, 5_000)),
        )
        member = self._parts.member(
            self._world,
            self._log,
            self._ledger,
            group_id,
            f"member-{self._member_count}",
            topics,
            self._network,
            fetch,
        )
        self._members.append(member)
        self._world.trace(member.member_id, "joins", group_id, topics)
        return member

    def _change_members(self) -> None:
        if self._is_calm:
            return
        present = [member for member in self._members if not member.is_gone]
        if present and self._world.happens(0.6):
            member = self._world.random.choice(present)
            if self._world.happens(0.5):
                member.die()
            else:
                member.close()
        if len(present) < 4:
            self._join(self._world.random.choice(self._groups))
        self._world.after(2_000, 12_000, self._change_members)

    def _snapshot(self) -> None:
        if self._is_calm:
            return
        self._world.trace("a table snapshot is taken")
        self._table.take_snapshot()
        self._world.after(2_000, 20_000, self._snapshot)

    def _requested(self, record: LogRecord) -> None:
        self._message_count += 1
        if record.value is not None and record.value.startswith(_INTERNAL):
            envelope = decoded_request(record.value)
            if envelope.api_key == ApiKey.PROCESSOR_STARTED:
                self._ledger.announced(record, envelope.leader_epoch)
            elif envelope.api_key == ApiKey.TICK:
                self._ledger.ticked(record, envelope.body.get("time_ms", 0))
        for processor in list(self._running):
            processor.wake_if_running()
        if self._message_count >= self._next_fault_at and not self._is_calm:
            self._next_fault_at = self._message_count + self._world.random.randint(15, 60)
            self._world.after(0, 20, self._fault)

    def _answered(self, record: LogRecord) -> None:
        self._ledger.answered(record)
        for member in self._members:
            member.deliver(record)

    # Faults.

    def _fault(self) -> None:
        if self._is_calm:
            return
        faults: Sequence[tuple[int, Callable[[], None]]] = (
            (5, self._crash),
            (2, self._refuse_commit),
            (3, self._stall_in_commit),
            (2, self._stall),
            (3, self._start_another),
            (2, self._jump),
            (2, self._disturb_network),
        )
        (fault,) = self._world.random.choices([fault for _, fault in faults], [weight for weight, _ in faults])
        fault()

    def _crash(self) -> None:
        self._fault_count += 1
        if self._world.happens(0.2):
            self._processor.kill()
        else:
            self._processor.end_at = self._world.random.choice(_CRASH_POINTS[:-1])

    def _refuse_commit(self) -> None:
        self._fault_count += 1
        self._processor.end_at = self._world.random.choice((REFUSED_BEFORE, REFUSED_AFTER))

    def _stall_in_commit(self) -> None:
        """Let a processor stand still at a point of a commit, and another one take over meanwhile, or not."""
        self._fault_count += 1
        duration_ms = self._world.random.choice((500, 3_000, 10_000))
        self._processor.stall = (self._world.random.choice(_STALL_POINTS), duration_ms)
        if self._world.happens(0.7):
            self._world.after(100, duration_ms, self._start_another_now)

    def _stall(self) -> None:
        self._fault_count += 1
        duration_ms = self._world.random.choice((500, 3_000, 10_000))
        self._world.trace("processor", self._processor.leader_epoch, "stands still for", duration_ms)
        self._processor.stalled_until_ms = self._world.now_ms + duration_ms
        if self._world.happens(0.5):
            self._world.after(100, duration_ms, self._start_another_now)

    def _start_another(self) -> None:
        self._fault_count += 1
        self._start_another_now()

    def _start_another_now(self) -> None:
        """Start a processor while the one before goes on."""
        if not self._is_calm and not self._takeover_is_due:
            self._take_over()

    def _jump(self) -> None:
        self._fault_count += 1
        partition = self._world.random.randrange(self._config.request_topic_partitions)
        jump_ms = self._world.random.choice((-20_000, -1_000, 1_000, 4_000, 60_000))
        self._world.trace("the clock of request partition", partition, "jumps by", jump_ms)
        self._log.jump(REQUEST_TOPIC, partition, jump_ms)

    def _disturb_network(self) -> None:
        self._fault_count += 1
        random = self._world.random
        before = Network(**vars(self._network))
        name = random.choice(sorted(vars(self._network)))
        self._world.trace("the network has more", name)
        setattr(self._network, name, 0.4)

        def restore() -> None:
            if not self._is_calm:
                vars(self._network).update(vars(before))

        self._world.after(500, 4_000, restore)

    # The end.

    @property
    def _takeover_count(self) -> int:
        return self._table.leader_epoch - 1

    @property
    def _has_seen_enough(self) -> bool:
        return (
            self._message_count >= LEAST_MESSAGES
            and self._takeover_count >= LEAST_TAKEOVERS
            and self._fault_count >= LEAST_FAULTS
        )

    def _calm_down(self) -> None:
        """End all faults; from now on there is a good member in each group."""
        self._world.trace("faults end")
        self._is_calm = True
        vars(self._network).update(vars(Network()))
        for processor in list(self._running):
            processor.calm_down()
        for member in self._members:
            member.is_good = True
        for group_id in self._groups:
            self._join(group_id).is_good = True

    @property
    def _is_drained(self) -> bool:
        return not self._undrained(fold(self._table.recovery().rows))

    def _audit(self, is_drained: bool) -> list[str]:
        findings = [str(finding) for finding in verify(self._table.rows, self._broker).findings]
        self._ledger.compare(self._table.rows)
        findings += self._ledger.violations
        folded = fold(self._table.recovery().rows)
        if not is_drained:
            findings += self._undrained(folded)
        if shown(folded) != shown(fold(row for row in self._table.rows if row.record_type != "TableSnapshot")):
            findings.append("the fold of the recovery's rows differs from that of all rows")
        return findings

    def _undrained(self, folded: FoldedState) -> list[str]:
        findings = []
        for group_id in self._groups:
            group = folded.groups.get(group_id, FoldedGroup(group_id))
            for name, partition_count in self._topics.items():
                for partition in range(partition_count):
                    end_offset = self._log.topic(name).end_offsets[partition]
                    led = group.partitions.get((f"id-of-{name}", partition))
                    if end_offset and (led is None or led.share_partition.lag(end_offset)):
                        findings.append(f"group {group_id} has records of {name}-{partition} left")
        return findings

    def _result(self, findings: list[str]) -> Result:
        return Result(
            self._seed,
            findings,
            self._message_count,
            self._takeover_count,
            self._fault_count,
            self._world.now_ms,
        )


def shown(folded: FoldedState) -> Mapping[str, object]:
    """The groups of a fold as plain values, to be compared."""
    return {
        group_id: (
            group.request_offset,
            [record.model_dump() for record in group.metadata.records()],
            {
                key: (led.share_partition.start_offset, list(led.share_partition.runs), led.state_epoch)
                for key, led in sorted(group.partitions.items())
            },
        )
        for group_id, group in sorted(folded.groups.items())
    }


TOPIC_CONFIG = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


@cache
def _processor_config(request_partitions: int, response_partitions: int) -> ProcessorConfig:
    return ProcessorConfig(
        state_table_path="simulated",
        checkpoint_path="simulated",
        request_topic_partitions=request_partitions,
        response_topic_partitions=response_partitions,
    )


@cache
def _broker(lock_duration_ms: int, delivery_count_limit: int, updates_per_snapshot: int) -> BrokerConfig:
    return BrokerConfig(
        group_share_min_record_lock_duration_ms=1_000,
        group_share_record_lock_duration_ms=lock_duration_ms,
        group_share_delivery_count_limit=delivery_count_limit,
        group_share_min_session_timeout_ms=5_000,
        group_share_session_timeout_ms=8_000,
        group_share_min_heartbeat_interval_ms=1_000,
        group_share_heartbeat_interval_ms=2_000,
        share_coordinator_snapshot_update_records_per_snapshot=updates_per_snapshot,
    )
