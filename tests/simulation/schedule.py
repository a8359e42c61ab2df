"""One seed, one schedule: members, producers, processors and faults, until everything is drained; then the audit."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random

from sharegroup.actor.sink_checks import EXACTLY_ONCE_KEY
from sharegroup.audit.verification.verify import verify
from sharegroup.client.settings import FetchSettings
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import RecordState
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import FoldedGroup, FoldedState, advance, fold, fold_order
from tests.simulation.administrator import DEAD_LETTER_TOPICS, Administrator
from tests.simulation.drains import DRAIN
from tests.simulation.faults import START_CRASH_POINTS, Faults
from tests.simulation.ledger import Ledger
from tests.simulation.log import StoredLog
from tests.simulation.member import REQUEST_TOPIC, RESPONSE_TOPIC, Application, Network, SimulatedMember
from tests.simulation.processor import SimulatedProcessor
from tests.simulation.sink import SimulatedSink
from tests.simulation.sink_member import SinkMember
from tests.simulation.table import StoredTable
from tests.simulation.world import World

LEAST_MESSAGES = 300
_LEAST_FAULTY_MESSAGES = 280
"""Messages before the faults end; the rest of a schedule, 60 on average, shows that all groups go on."""
LEAST_TAKEOVERS = 2
LEAST_FAULTS = 5

_LATE_MESSAGES = 200
"""After so many messages, faults are crashes until there are enough takeovers, so that no schedule runs on for them."""
_NOTED_KEYS = (ApiKey.PROCESSOR_STARTED, ApiKey.TICK, ApiKey.SHARE_GROUP_CONFIG_CHANGED)
_NOTED = tuple(b'{"api_key":%d,' % api_key for api_key in _NOTED_KEYS)
"""How the internal messages begin that the ledger notes; members' requests begin with the version."""
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
    """The result of a schedule.

    Attributes:
        findings: what the auditor and the ledger say; empty when all is well.
        message_count: messages of the request log.
        takeover_count: takeovers but the first.
        faults: faults by their name.
        end_ms: virtual time at the end.
    """

    seed: int
    findings: list[str] = field(default_factory=list)
    message_count: int = 0
    takeover_count: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    end_ms: int = 0

    @property
    def fault_count(self) -> int:
        """Number of faults."""
        return self.faults.total()


def run_schedule(seed: int, is_traced: bool = False, parts: Parts | None = None) -> Result:
    """Run the schedule of a seed, and audit it."""
    # Little of a schedule is garbage before its end; looking for it meanwhile takes a tenth of the time.
    gc.disable()
    try:
        return Schedule(seed, is_traced, parts or Parts()).run()
    finally:
        gc.enable()


FIRST_SEED_WITH_SINKS, SEEDS_BETWEEN_SINKS = 1, 2


def has_sinks(seed: int) -> bool:
    """Return True if groups of a schedule write into sinks exactly once."""
    return seed % SEEDS_BETWEEN_SINKS == FIRST_SEED_WITH_SINKS


class Schedule:
    """A schedule."""

    def __init__(self, seed: int, is_traced: bool, parts: Parts) -> None:
        self._seed = seed
        self._parts = parts
        self._world = World(seed, is_traced)
        random = self._world.random
        self._config = _processor_config(random.choice((1, 1, 2)), random.choice((1, 2, 3)))
        self._broker = _broker(
            random.choice((1_000, 2_000, 5_000)),
            random.choice((2, 3, 5)),
            random.choice((2, 5, 500)),
            random.choice((0, 0, 2_500)),
        )
        self._log = StoredLog(self._world)
        self._log.create(REQUEST_TOPIC, self._config.request_topic_partitions, TOPIC_CONFIG)
        self._log.create(RESPONSE_TOPIC, self._config.response_topic_partitions, TOPIC_CONFIG)
        self._topics = [f"topic-{index}" for index in range(random.choice((1, 1, 2)))]
        for name in self._topics:
            self._log.create(name, random.randint(1, 3), {})
        self._groups = [f"group-{index}" for index in range(random.choice((1, 1, 2)))]
        self._applications = {group_id: Application(self._end_process) for group_id in self._groups}
        self._overrides = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": random.choice(("", DEAD_LETTER_TOPICS[0])),
        }
        self._group_overrides = dict.fromkeys(self._groups, self._overrides)
        self._ledger = parts.ledger(
            self._broker.group_share_delivery_count_limit,
            self._broker.group_share_record_lock_duration_ms,
            self._broker.group_share_member_silence_ms,
        )
        self._sinks = self._ledger.sinks.sinks
        if has_sinks(seed):
            self._add_sinks(Random(seed))
        self._table = parts.table(self._ledger.committed, lambda: self._ledger.published_commit_id)
        self._network = Network(repeat=0.02, delayed_repeat=0.02, unknown=0.02, lost=0.01, late=0.01, reread=0.01)
        self._members: list[SimulatedMember] = []
        self._member_count = 0
        self._processor: SimulatedProcessor
        """The one that took over last."""
        self._running: list[SimulatedProcessor] = []
        self._is_calm = False
        self._administrator = Administrator(
            self._world, self._log, self._ledger, self._topics, self._members_of, self._poll_all
        )
        self._faults = Faults(
            self._world,
            self._log,
            self._network,
            self._administrator,
            self._table,
            self._applications,
            self._present_members,
            self._config,
            lambda: self._processor,
            self._start_another,
            self._wake_all,
        )
        self._folded = FoldedState()
        """The state by the first rows of the table, from when the schedule is calm: then no row is taken back."""
        self._folded_row_count = 0
        self._message_count = 0
        self._takeover_is_due = False
        self._next_fault_at = random.randint(10, 40)

    def _add_sinks(self, random: Random) -> None:
        """Let groups write exactly once, into tables of their own."""
        for group_id in self._groups[: random.randint(1, 2)]:
            sink = self._sinks[group_id] = SimulatedSink(self._world, f"table-of-{group_id}")
            self._applications[group_id].sink = sink
            self._group_overrides[group_id] = {
                **self._overrides,
                EXACTLY_ONCE_KEY: "true",
                "share.exactly.once.max.writes": random.choice(("2", "5", "1000")),
            }

    def run(self) -> Result:
        self._log.topic(REQUEST_TOPIC).observers.append(self._requested)
        self._log.topic(RESPONSE_TOPIC).observers.append(self._note_response)
        self._take_over()
        for group_id in self._groups:
            for _ in range(self._world.random.randint(1, 3)):
                self._join(group_id)
        self._world.at(5, self._produce)
        self._world.at(3_000, self._change_members)
        self._world.after(1_000, 20_000, self._snapshot)
        self._world.run_until(_LONGEST_MS, self._has_seen_enough)
        if not self._has_seen_enough():
            return self._result(["the schedule does not come to its end"])
        self._calm_down()
        end_ms = self._world.now_ms + _LONGEST_DRAIN_MS
        is_drained = False
        while self._world.now_ms < end_ms and not (is_drained := self._is_drained()):
            self._world.run_until(self._world.now_ms + 250)
        self._world.run_until(self._world.now_ms + 200)
        for member in self._members:
            if not member.is_gone:
                member.close()
        self._world.run_until(self._world.now_ms + 2_000, lambda: all(member.is_gone for member in self._members))
        self._world.run_until(self._world.now_ms + 200)
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
            self._group_overrides,
            self._processor_ended,
            self._faults.bad_messages,
        )
        is_first = not self._running and not self._table.rows
        self._processor = processor
        self._running.append(processor)
        if not self._is_calm and not is_first and self._world.happens(0.1):
            processor.end_at = self._world.random.choice(START_CRASH_POINTS)
        processor.start()

    def _processor_ended(self, processor: SimulatedProcessor) -> None:
        self._running.remove(processor)
        if processor is self._processor and not self._takeover_is_due:
            self._takeover_is_due = True
            self._world.after(5, 50 if self._is_calm or self._world.happens(0.7) else 4_000, self._take_over)

    def _start_another(self) -> None:
        """Start a processor while the one before goes on."""
        if not self._is_calm and not self._takeover_is_due:
            self._take_over()

    def _wake_all(self) -> None:
        for processor in list(self._running):
            processor.wake_if_running()

    def _poll_all(self) -> None:
        for processor in list(self._running):
            processor.poll()

    # What goes on.

    def _produce(self) -> None:
        if self._is_calm:
            return
        topic = self._log.topics.get(name := self._world.random.choice(self._topics))
        if topic is not None and not self._log.is_away:
            partition = self._world.random.randrange(len(topic.end_offsets))
            if topic.end_offsets[partition] < 60:
                count = self._world.random.randint(1, 6)
                self._log.grow(name, partition, count)
                self._world.trace("producer appends", count, "to", name, partition)
                self._poll_all()
        self._world.after(50, 3_000, self._produce)

    def _join(self, group_id: str) -> SimulatedMember:
        random = self._world.random
        self._member_count += 1
        topics = list(self._topics) if self._is_calm or random.random() < 0.8 else self._topics[:1]
        fetch = FetchSettings(
            max_records=100 if self._is_calm else random.choice((1, 3, 10)),
            batch_size=random.choice((1, 3, 10)),
            acquire_mode=random.choice(list(AcquireMode)),
            max_wait_ms=random.choice((500, 2_000)),
            request_timeout_ms=3_000,
            acknowledge_timeout_ms=random.choice((None, None, 5_000)),
        )
        member_type = SinkMember if group_id in self._sinks else self._parts.member
        member = member_type(
            self._world,
            self._log,
            self._ledger,
            group_id,
            f"member-{self._member_count}",
            topics,
            self._network,
            fetch,
            self._applications[group_id],
            # A good one dies with no other.
            "" if self._is_calm else random.choice(["", *(member.process for member in self._members_of(group_id))]),
            # Some processes cannot start another one.
            has_helper=self._world.happens(0.8),
        )
        self._members.append(member)
        self._world.trace(member.member_id, "joins", group_id, topics)
        return member

    def _present_members(self) -> list[SimulatedMember]:
        return [member for member in self._members if not member.is_gone]

    def _members_of(self, group_id: str) -> list[SimulatedMember]:
        return [member for member in self._present_members() if member.group_id == group_id]

    def _end_process(self, crashed: SimulatedMember) -> None:
        """End all members of a process that has crashed; a supervisor starts a member again."""
        for member in self._members_of(crashed.group_id):
            if member.process == crashed.process:
                member.die()

        def start() -> None:
            if not self._is_calm and self._administrator.is_open(crashed.group_id):
                self._join(crashed.group_id)

        self._world.after(200, 3_000, start)

    def _change_members(self) -> None:
        if self._is_calm:
            return
        present = self._present_members()
        if present and self._world.happens(0.6):
            member = self._world.random.choice(present)
            if self._world.happens(0.5):
                for other in self._members_of(member.group_id):
                    if other.process == member.process:
                        other.die()
            else:
                member.close()
        group_id = self._world.random.choice(self._groups)
        if len(present) < 4 and self._administrator.is_open(group_id):
            self._join(group_id)
        self._world.after(2_000, 12_000, self._change_members)

    def _snapshot(self) -> None:
        if self._is_calm:
            return
        self._world.trace("a table snapshot is taken")
        self._table.take_snapshot()
        self._world.after(10_000, 40_000, self._snapshot)

    def _requested(self, record: LogRecord) -> None:
        self._message_count += 1
        if record.value is not None and record.value.startswith(_NOTED):
            envelope = decoded_request(record.value)
            if envelope.api_key == ApiKey.PROCESSOR_STARTED:
                self._ledger.announced(record, envelope.leader_epoch)
            elif envelope.api_key == ApiKey.TICK:
                self._ledger.requests.ticked(record, envelope.body.get("time_ms", 0))
            elif envelope.api_key == ApiKey.SHARE_GROUP_CONFIG_CHANGED:
                self._ledger.drains.configured(envelope, record)
        self._wake_all()
        if self._message_count >= self._next_fault_at and not self._is_calm:
            self._next_fault_at = self._message_count + self._world.random.randint(15, 60)
            is_late = self._message_count > _LATE_MESSAGES and self._takeover_count < LEAST_TAKEOVERS
            self._world.after(0, 20, lambda: self._faults.happen(ends_processor=is_late))

    def _note_response(self, record: LogRecord) -> None:
        self._ledger.note_response(record)
        for member in self._members:
            member.deliver(record)

    # The end.

    @property
    def _takeover_count(self) -> int:
        return self._table.leader_epoch - 1

    def _has_seen_enough(self) -> bool:
        return (
            self._message_count >= _LEAST_FAULTY_MESSAGES
            and self._takeover_count >= LEAST_TAKEOVERS
            and self._faults.count >= LEAST_FAULTS
        )

    def _calm_down(self) -> None:
        """End all faults; from now on there is a good member in each group."""
        self._world.trace("faults end")
        self._is_calm = True
        self._faults.calm_down()
        for processor in list(self._running):
            processor.calm_down()
        for member in self._members:
            member.is_good = True
        self._wake_all()
        self._settle(5)
        for group_id in self._groups:
            self._join(group_id).is_good = True

    def _settle(self, times: int) -> None:
        """Let all groups go on, and have their dead letters written."""
        folded = self._present_state()
        for group_id in self._groups:
            # A group that is resumed asks again for everything: only one that is quarantined may.
            if folded.groups.get(group_id, FoldedGroup(group_id)).failures:
                self._administrator.resume(group_id)
            self._administrator.configure(
                group_id,
                {
                    "errors.deadletterqueue.topic.name": DEAD_LETTER_TOPICS[0],
                    "share.record.lock.duration.ms": "2000",
                    "share.redelivery.backoff.ms": "0",
                    DRAIN: "false",
                },
            )
        if times > 1:
            self._world.at(self._world.now_ms + 7_000, lambda: self._settle(times - 1))

    def _present_state(self) -> FoldedState:
        """Return the state by all rows but those of table snapshots; takes in those that are new."""
        new = self._table.rows[self._folded_row_count :]
        self._folded_row_count = len(self._table.rows)
        for row in sorted(new, key=fold_order):
            if row.group_id and row.record_type is not RecordType.TABLE_SNAPSHOT:
                advance(self._folded, row)
        return self._folded

    def _is_drained(self) -> bool:
        # The responses of the last commits may be left to a processor that is still to come.
        if self._message_count < LEAST_MESSAGES or self._takeover_is_due:
            return False
        return not self._undrained(self._present_state())

    def _audit(self, is_drained: bool) -> list[str]:
        findings = [str(finding) for finding in verify(self._table.rows, self._broker).findings]
        self._ledger.compare(self._table.rows)
        dead_letters = [
            record
            for name in DEAD_LETTER_TOPICS
            if name in self._log.topics
            for partition in self._log.topic(name).partitions
            for record in partition
        ]
        self._ledger.check_dead_letters(self._table.rows, dead_letters)
        findings += [*self._ledger.violations, *self._ledger.sinks.findings()]
        folded = fold(self._table.recovery().rows)
        if not is_drained:
            findings += self._undrained(folded)
        if shown(folded) != shown(self._present_state()):
            findings.append("the fold of the recovery's rows differs from that of all rows")
        return findings

    def _undrained(self, folded: FoldedState) -> list[str]:
        findings = []
        for group_id in self._groups:
            group = folded.groups.get(group_id, FoldedGroup(group_id))
            for with_state in group.partitions.values():
                # The state of a deleted topic stays until its writes are decided.
                if with_state.share_partition.open_writes:
                    findings.append(
                        f"group {group_id} has open writes of {with_state.topic}-{with_state.partition} left"
                    )
            for name in self._topics:
                topic = self._log.topics.get(name)
                if topic is None:
                    findings.append(f"topic {name} is not created again")
                    continue
                for partition, end_offset in enumerate(topic.end_offsets):
                    led = group.partitions.get((topic.description.topic_id, partition))
                    if end_offset and (led is None or led.share_partition.lag(end_offset)):
                        findings.append(f"group {group_id} has records of {name}-{partition} left")
                    elif led and any(run.state is RecordState.ARCHIVING for run in led.share_partition.runs):
                        findings.append(f"group {group_id} has records of {name}-{partition} without dead letter")
        return findings

    def _result(self, findings: list[str]) -> Result:
        return Result(
            self._seed,
            findings,
            self._message_count,
            self._takeover_count,
            self._faults.counts,
            self._world.now_ms,
        )


def shown(folded: FoldedState) -> Mapping[str, object]:
    """The groups of a fold as values that can be compared."""
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
def _broker(
    lock_duration_ms: int, delivery_count_limit: int, updates_per_snapshot: int, member_silence_ms: int
) -> BrokerConfig:
    return BrokerConfig(
        group_share_member_silence_ms=member_silence_ms,
        group_share_min_record_lock_duration_ms=1_000,
        group_share_record_lock_duration_ms=lock_duration_ms,
        group_share_delivery_count_limit=delivery_count_limit,
        group_share_min_session_timeout_ms=5_000,
        group_share_session_timeout_ms=8_000,
        group_share_min_heartbeat_interval_ms=1_000,
        group_share_heartbeat_interval_ms=2_000,
        share_coordinator_snapshot_update_records_per_snapshot=updates_per_snapshot,
    )
