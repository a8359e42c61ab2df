"""A scenario as it is performed on one side: its topic, its members, and its steps one after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol
from uuid import uuid4

from confluent_kafka import Producer

from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from tests.kafka.side_by_side.member import Member, ShareConsumer
from tests.kafka.side_by_side.outcome import Delivery, Outcome, PartitionState, outcome
from tests.kafka.side_by_side.scenario import Acknowledge, Consume, Hold, Produce, Say, Scenario, Step
from tests.support import leash
from tests.support.eventually import DEADLINE_S, SLOWNESS, eventually
from tests.support.kafka_broker import ROOT

PROBE = "probe"
_TRANSACTION_S = 30


class Side(Protocol):
    """Where a scenario can be performed.

    Attributes:
        name: for topics and groups.
        consumer_class: `module:class` of its share consumers.
        bootstrap_servers: of the cluster with the records.
        log: a log on that cluster.
    """

    name: str
    consumer_class: str
    bootstrap_servers: str
    log: KafkaLog

    def configure(self, group_id: str, config: Mapping[str, str]) -> None:
        """Set the configuration of a group."""

    def consumer(self, config: dict[str, Any]) -> ShareConsumer:
        """A share consumer."""

    def consumer_config(self, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration with which `consumer` makes one: this one, and what the side always sets."""

    def states(self, group_id: str, topic_id: str, partition_count: int) -> dict[int, PartitionState]:
        """The stored states of the share-partitions of a group, by partition."""


def perform(scenario: Scenario, side: Side) -> Outcome:
    """Perform a scenario, in a topic and a group of its own, and say what came of it."""
    with ExitStack() as stack:
        performance = _Performance(scenario, side, stack)
        for step in scenario.steps:
            performance.take(step)
    return performance.outcome()


class _Performance:
    def __init__(self, scenario: Scenario, side: Side, stack: ExitStack) -> None:
        self._scenario = scenario
        self._side = side
        self._log = side.log
        self._stack = stack
        self._stem = f"{scenario.name}-{side.name}-{uuid4().hex[:8]}"
        self._topic = self._log.create_topic(self._stem, scenario.partition_count)
        self._members: dict[str, Member] = {}
        self._transaction: Producer | None = None
        self._in_transaction: set[str] = set()
        self._dropped: set[str] = {PROBE}
        self._deliveries: list[Delivery] = []
        self._scripts: dict[str, list[Say]] = {}
        side.configure(self._stem, {"share.auto.offset.reset": "earliest"} | _texts(_on_this_machine(scenario.group)))
        self._produce(Produce(records=scenario.records))

    def take(self, step: Step) -> None:
        """Do what a step says."""
        (what,) = step.model_fields_set
        getattr(self, f"_{what}")(getattr(step, what))

    def outcome(self) -> Outcome:
        """The outcome, once everything that was delivered is stored."""
        offsets = self._offsets()
        counts: dict[str, int] = {}
        for delivery in self._deliveries:
            counts[delivery.record] = max(counts.get(delivery.record, 0), delivery.delivery_count)
        states: dict[int, PartitionState] = {}

        def is_stored() -> bool:
            states.update(self._side.states(self._stem, self._topic.topic_id, self._topic.partition_count))
            return all(
                states[partition].of(offset)[1] >= counts.get(name, 0)
                for partition, names in offsets.items()
                for offset, name in names.items()
            )

        eventually(is_stored, f"{self._stem}: {counts} is stored", pause_s=0.3)
        return outcome(self._deliveries, states, offsets)

    def _consume(self, step: Consume) -> None:
        members = [self._member(name) for name in step.members]
        awaited = self._scripts.keys() if step.until is None else set(step.until)

        def is_over() -> bool:
            for member in members:
                delivered = member.polled()
                self._deliveries += [delivery for delivery in delivered if delivery.record != PROBE]
                for delivery in delivered:
                    script = self._scripts.get(delivery.record, [])
                    member.say(delivery, script.pop(0) if script else "accept")
                if delivered:
                    member.commit()
            if self._unfinished(awaited):
                return False
            for member in members:
                if member.has_pending:
                    member.commit()
            return not any(member.has_pending for member in members)

        eventually(is_over, f"{self._stem}: all scripted acknowledgements were sent", pause_s=0.001)

    def _unfinished(self, records: Iterable[str]) -> list[str]:
        finished = {delivery.record for delivery in self._deliveries if delivery.is_finished}
        return [name for name in records if self._scripts[name] and name not in finished]

    def _hold(self, step: Hold) -> None:
        member = self._member(step.member)
        delivered = eventually(member.polled, f"{self._stem}: {step} is delivered", pause_s=0.001)
        self._note_held(step, delivered)

    def _kill(self, step: Hold) -> None:
        config = self._side.consumer_config(self._config(step.member))
        arguments = [self._side.consumer_class, json.dumps(config), self._topic.name, str(DEADLINE_S)]
        command = [sys.executable, "-m", "tests.kafka.side_by_side.doomed_member", *arguments]
        with leash.start(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            self._stack.callback(process.kill)
            assert process.stdout is not None
            delivered = [Delivery(*delivery) for delivery in json.loads(process.stdout.readline())]
            process.kill()
        self._note_held(step, delivered)

    def _note_held(self, step: Hold, delivered: list[Delivery]) -> None:
        records = sorted(delivery.record for delivery in delivered)
        assert step.records is None or records == sorted(step.records), f"{self._stem}: {step} brought {records}"
        self._deliveries += delivered

    def _acknowledge(self, step: Acknowledge) -> None:
        member = self._member(step.member)
        for record, says in step.says.items():
            for acknowledgement in says:
                member.say(member.held(record), acknowledgement)

    def _commit(self, name: str) -> None:
        member = self._member(name)

        def is_committed() -> bool:
            member.commit()
            if member.has_pending:
                self._deliveries += member.polled()
            return not member.has_pending

        eventually(is_committed, f"{self._stem}: {name} hears of its acknowledgements", pause_s=0.001)

    def _close(self, name: str) -> None:
        self._members[name].close()

    def _produce(self, step: Produce) -> None:
        if step.in_transaction:
            self._transaction = self._transaction or self._begun()
        for partition, names in step.records.items():
            for name in names:
                self._scripts[name] = list(self._scenario.acknowledgements.get(name, ["accept"]))
            if self._transaction is not None and step.in_transaction:
                self._produce_in_transaction(self._transaction, partition, names)
                continue
            records = [NewRecord(None, name.encode()) for name in names]
            for batch in [records] if step.in_one_batch else [[record] for record in records]:
                self._log.append(self._topic.name, partition, batch)

    def _produce_in_transaction(self, transaction: Producer, partition: int, names: Iterable[str]) -> None:
        for name in names:
            self._in_transaction.add(name)
            transaction.produce(self._topic.name, name.encode(), partition=partition)
            assert transaction.flush(_TRANSACTION_S) == 0

    def _begun(self) -> Producer:
        servers = {"bootstrap.servers": self._side.bootstrap_servers}
        producer = Producer({**servers, "transactional.id": self._stem, "linger.ms": 0})
        producer.init_transactions(_TRANSACTION_S)
        producer.begin_transaction()
        return producer

    def _end_transaction(self, how: str) -> None:
        assert self._transaction is not None
        if how == "commit":
            self._transaction.commit_transaction(_TRANSACTION_S)
        else:
            self._transaction.abort_transaction(_TRANSACTION_S)
            self._drop(self._in_transaction)
        self._transaction = None

        def is_over() -> bool:
            ends = self._log.offsets(self._topic.name).values()
            return all(offsets.last_stable_offset == offsets.end_offset for offsets in ends)

        eventually(is_over, f"{self._stem}: the transaction is over")

    def _join_at_the_end(self, name: str) -> None:
        member = self._member(name)

        def has_begun() -> bool:
            self._log.append(self._topic.name, 0, [NewRecord(None, PROBE.encode())])
            delivered = member.polled()
            for delivery in delivered:
                assert delivery.record == PROBE, self._stem
                member.say(delivery, "accept")
            member.commit()
            return bool(delivered)

        eventually(has_begun, f"{self._stem}: the group begins", pause_s=0.001)

    def _delete_records(self, first_left: str) -> None:
        for partition, names in self._offsets().items():
            for offset, other in names.items():
                if other == first_left:
                    self._log.delete_records(self._topic.name, partition, offset)
                    self._drop({other for below, other in names.items() if below < offset})

    def _drop(self, names: Iterable[str]) -> None:
        """These are no records any more, and nobody waits for them."""
        self._dropped |= set(names)
        for name in names:
            self._scripts[name] = []

    def _offsets(self) -> dict[int, dict[int, str]]:
        ends = self._log.offsets(self._topic.name)
        return {
            partition: {
                record.offset: name
                for record in self._log.read(self._topic.name, partition, end.start_offset, end.end_offset)
                if (name := _name(record.value)) not in self._dropped
            }
            for partition, end in ends.items()
        }

    def _member(self, name: str) -> Member:
        if name not in self._members:
            consumer = self._side.consumer(self._config(name))
            self._stack.callback(consumer.close)
            spec = self._scenario.members[name]
            self._members[name] = Member(consumer, self._topic.name, spec, lambda message: _name(message.value()))
        return self._members[name]

    def _config(self, name: str) -> dict[str, Any]:
        spec = self._scenario.members[name]
        return {
            "bootstrap.servers": self._side.bootstrap_servers,
            "group.id": self._stem,
            "share.acknowledgement.mode": spec.mode,
            **spec.config,
            **(spec.config_here if self._side.name == "here" else {}),
        }


def _on_this_machine(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's configuration with locks that are longer where members are slower."""
    return {
        key: round(value * SLOWNESS) if key == "share.record.lock.duration.ms" else value
        for key, value in group.items()
    }


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in config.items()}


def _name(value: bytes | None) -> str:
    return (value or b"").decode()
