"""Several groups on one request log, in memory: the processor's own actor function, without Spark.

Members of a `Group` speak as in the other tests of actors; whatever else is appended goes the same way.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import cast

import pandas as pd
from pyspark.sql.streaming.state import GroupState
from sharegroup.spark.actor_function import UNDECODABLE, ActorFunction

from sharegroup.actor.effects import Effect, Persist, Respond, Send, Undecodable
from sharegroup.actor.mailbox import ActorState
from sharegroup.config.broker import BrokerConfig
from sharegroup.logs.partitioner import partition_for
from sharegroup.protocol.api_key import RECIPIENTS, ActorRole, ApiKey
from sharegroup.protocol.messages import RequestEnvelope
from sharegroup.protocol.rows import StateRow
from tests.actor.group_harness import START_MS, Group, LogPartition, Outcome

REQUEST_PARTITIONS = 2

ActorKey = tuple[str, str]
"""Group id and role, as Spark groups the messages."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of the request log; its place in the list is its offset."""

    partition: int
    time_ms: int
    value: bytes | None


@dataclass
class StateCell:
    """The state of one key, as Spark's `GroupState` hands it out."""

    value: bytes = b""

    @property
    def exists(self) -> bool:
        return bool(self.value)

    @property
    def get(self) -> tuple[bytes]:
        return (self.value,)

    def update(self, value: tuple[bytes]) -> None:
        (self.value,) = value


@dataclass
class Actors:
    """The actor function and the states of all its keys.

    Attributes:
        broker: configuration of all groups.
        folder: an empty folder: nothing is recovered.
    """

    broker: BrokerConfig
    folder: Path
    states: dict[ActorKey, StateCell] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._function = ActorFunction(self.broker, 1, self.folder, REQUEST_PARTITIONS)

    def run(self, key: ActorKey, messages: Sequence[tuple[int, Logged]], cut_ms: int) -> list[Effect]:
        """Apply (offset, record) messages of one batch to one key."""
        frame = pd.DataFrame(
            {
                "request_partition": [logged.partition for _, logged in messages],
                "request_offset": [offset for offset, _ in messages],
                "time_ms": [logged.time_ms for _, logged in messages],
                "value": [logged.value for _, logged in messages],
                "recipient": [_recipient(key[1], logged.value) for _, logged in messages],
                "cut_ms": [cut_ms] * len(messages),
            }
        )
        cell = self.states.get(key, StateCell())
        outputs = list(self._function(key, [frame], cast(GroupState, cell)))
        if cell.exists:
            self.states[key] = cell
        return [effect for output in outputs for effect in pickle.loads(output["effects"].iloc[0])]


@lru_cache(maxsize=4_096)
def destinations(value: bytes | None) -> tuple[ActorKey, ...]:
    """The keys that `routed` gives a record to, as far as Python's JSON is Spark's."""
    try:
        fields = json.loads(value or b"", object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.get("group_id") in (None, ""):
        return (("", UNDECODABLE),)
    group_id = fields["group_id"] if isinstance(fields["group_id"], str) else json.dumps(fields["group_id"])
    group_id = group_id.encode(errors="replace").decode()
    try:
        roles = [role.value for role in RECIPIENTS[ApiKey(int(fields.get("api_key")))]]
    except (ValueError, TypeError, OverflowError):
        roles = [UNDECODABLE]
    return tuple((group_id, role) for role in roles)


def _recipient(role: str, value: bytes | None) -> int:
    return [found for _, found in destinations(value)].index(role)


class SharedGroup(Group):
    """A group whose messages are in the shared request log."""

    def __init__(self, log: SharedLog, group_id: str, topics: Mapping[str, tuple[str, Sequence[LogPartition]]]) -> None:
        super().__init__(log.actors.broker, group_id, topics)
        self._shared_log = log

    def append(self, envelope: RequestEnvelope | bytes) -> int:
        value = envelope if isinstance(envelope, bytes) else envelope.encoded()
        return self._shared_log.append(value, partition_for(self.group_id, REQUEST_PARTITIONS))

    def state(self, role: ActorRole) -> ActorState:
        cell = self._shared_log.actors.states.get((self.group_id, role.value))
        return ActorState.decoded(cell.value) if cell else ActorState()

    def settle(self) -> Outcome:
        seen = len(self.responses)
        self._shared_log.settle()
        return Outcome(responses=self.responses[seen:])

    def perform(self, effects: Iterable[Effect]) -> None:
        """Do what the group's actors want done."""
        outcome = Outcome()
        for effect in effects:
            self._perform(effect, outcome)
        self.write_dead_letters()
        self.rows += outcome.rows
        self.responses += outcome.responses
        self._append_facts()


class SharedLog:
    """The request log, the clock, and what came of every message.

    Args:
        broker: configuration of all groups.
        folder: an empty folder.
    """

    def __init__(self, broker: BrokerConfig, folder: Path) -> None:
        self.actors = Actors(broker, folder)
        self.now_ms = START_MS
        self.log: list[Logged] = []
        self.batches: list[tuple[range, int]] = []
        """Offsets and time of each batch."""
        self.groups: dict[str, SharedGroup] = {}
        self.rows: list[StateRow] = []
        self.answers: Counter[tuple[str, int]] = Counter()
        """(member id, correlation id) → answers."""
        self.effects: dict[str, list[Effect]] = {}
        """Group id → what its actors wanted done so far; for the groups that are followed."""
        self.counted: set[int] = set()
        """Offsets of messages that were counted as unreadable."""
        self._applied = 0

    def add_group(self, group_id: str, topics: Mapping[str, tuple[str, Sequence[LogPartition]]]) -> SharedGroup:
        """A group that starts at the earliest offset."""
        group = SharedGroup(self, group_id, topics)
        self.groups[group_id] = group
        self.effects[group_id] = []
        assert group.alter_config(share_auto_offset_reset="earliest") == 0
        return group

    def append(self, value: bytes | None, partition: int) -> int:
        self.log.append(Logged(partition, self.now_ms, value))
        return len(self.log) - 1

    def settle(self) -> None:
        for _ in range(50):
            if self._applied == len(self.log):
                return
            self._run_batch()
        raise AssertionError(f"the groups do not settle: {self.log[-1]}")

    def advance(self, duration_ms: int) -> None:
        """Let time pass; ticks that are due by then come at its end."""
        self.now_ms += duration_ms
        for group in self.groups.values():
            group.now_ms = self.now_ms
            if any(at_ms <= self.now_ms for at_ms in group.wakes.values()):
                group.wakes = {role: at_ms for role, at_ms in group.wakes.items() if at_ms > self.now_ms}
                group.append_tick()
        self.settle()

    def state_sizes(self) -> dict[ActorKey, int]:
        return {key: len(cell.value) for key, cell in self.actors.states.items()}

    def _run_batch(self) -> None:
        offsets = range(self._applied, len(self.log))
        self._applied = len(self.log)
        self.batches.append((offsets, self.now_ms))
        for (group_id, _), effects in run_batch(self.actors, self.log, offsets, self.now_ms):
            self._look_at(group_id, effects)
            if group_id in self.groups:
                self.groups[group_id].perform(effects)
            else:
                for effect in effects:
                    if isinstance(effect, Send):
                        partition = partition_for(effect.request.group_id, REQUEST_PARTITIONS)
                        self.append(effect.request.encoded(), partition)

    def _look_at(self, group_id: str, effects: Sequence[Effect]) -> None:
        if group_id in self.effects:
            self.effects[group_id] += effects
        for effect in effects:
            match effect:
                case Persist():
                    self.rows.append(effect.row)
                case Respond():
                    assert effect.partition >= 0
                    self.answers[effect.response.member_id, effect.response.correlation_id] += 1
                    effect.response.encoded()
                case Undecodable():
                    self.counted.add(effect.request_offset)


def run_batch(
    actors: Actors, log: Sequence[Logged], offsets: Iterable[int], cut_ms: int
) -> Iterator[tuple[ActorKey, list[Effect]]]:
    """Give the messages of a batch to their actors."""
    inboxes: dict[ActorKey, list[tuple[int, Logged]]] = {}
    for offset in offsets:
        for key in destinations(log[offset].value):
            inboxes.setdefault(key, []).append((offset, log[offset]))
    for key, messages in inboxes.items():
        yield key, actors.run(key, messages, cut_ms)
