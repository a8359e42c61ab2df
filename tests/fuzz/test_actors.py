"""Hostile messages beside members that do what they must: nobody is stopped, and nobody's records are touched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from sharegroup.actor.mailbox import ActorState
from sharegroup.audit.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import ACKNOWLEDGE_CAUSE, Cause, RecordState
from sharegroup.logs.partitioner import partition_for
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.messages import decoded_request
from tests.actor.group_harness import LogPartition
from tests.fuzz.conftest import MESSAGES_PER_RUN
from tests.fuzz.honest_member import HonestMember
from tests.fuzz.hostile_sender import HostileSender, Victim
from tests.fuzz.shared_log import REQUEST_PARTITIONS, Actors, SharedGroup, SharedLog, destinations, run_batch

BROKER = BrokerConfig(group_share_max_size=6, group_share_max_share_sessions=10, group_share_assignors="all")
MESSAGES_PER_TURN = 500
RECORDS_PER_TURN = 20
LARGEST_STATE_BYTES = 3_000_000
MEMBERS_CAUSES = {*ACKNOWLEDGE_CAUSE.values(), Cause.SESSION_CLOSE}
"""Why a lock ends before its time."""


pytestmark = pytest.mark.slow


def named(stem: str, partition: int) -> str:
    """A group id whose messages are in this partition of the request log."""
    return next(name for n in range(100) if partition_for(name := f"{stem}-{n}", REQUEST_PARTITIONS) == partition)


class Fuzz:
    """One run: a group that is attacked, one that is given up, and two others that share their partitions."""

    def __init__(self, seed: int, folder: Path) -> None:
        random = Random(seed)
        self.shared = SharedLog(BROKER, folder)
        self.target, self.outlaw = self._group("target", 0), self._group("outlaw", 0)
        self.others = [self._group("beside", 0), self._group("apart", 1)]
        self.members = [
            HonestMember(group, name, Random(random.random()))
            for group in (self.target, *self.others)
            for name in ("anna", "ben")
        ]
        self.victims = [Victim(group.group_id, "orders", "orders-id") for group in (self.target, self.outlaw)]
        self.sender = HostileSender(random, *self.victims, REQUEST_PARTITIONS)
        self.sent: Counter[tuple[str, int]] = Counter()
        """(member id, correlation id) of a good envelope → how often it was sent."""
        self.largest_state_bytes = 0

    def run(self, message_count: int) -> None:
        self.turn()
        for _ in range(-(-message_count // MESSAGES_PER_TURN)):
            self.look_around()
            for _ in range(MESSAGES_PER_TURN):
                attack = self.sender.attack()
                self.shared.append(attack.value, attack.partition)
                if attack.asked:
                    self.sent[attack.asked] += 1
            self.grow()
            self.turn()
            self.largest_state_bytes = max(self.largest_state_bytes, *self.shared.state_sizes().values())

    def look_around(self) -> None:
        """Let the sender know who the members are, and where the log ends."""
        for group, victim in zip((self.target, self.outlaw), self.victims, strict=True):
            victim.end_offset = group.topics["orders"][1][0].end
            members = group.coordinator.group.state.members.values()
            victim.member_epochs = {member.member_id: member.member_epoch for member in members}

    def drain(self) -> None:
        """Let the members finish, now that nobody disturbs them."""
        for _ in range(400):
            if all(self.is_drained(group) for group in (self.target, *self.others)):
                return
            self.turn(5_000)

    def is_drained(self, group: SharedGroup) -> bool:
        topic_id, partitions = group.topics["orders"]
        led = group.leader.partitions
        return all(
            (topic_id, p) in led and led[topic_id, p].share_partition.start_offset == found.end
            for p, found in enumerate(partitions)
        )

    def turn(self, duration_ms: int = 500) -> None:
        for member in self.members:
            member.play()
        self.shared.settle()
        self.shared.advance(duration_ms)

    def grow(self) -> None:
        for group in (self.target, *self.others):
            for partition in range(2):
                group.grow("orders", partition, RECORDS_PER_TURN // 2)

    def _group(self, stem: str, partition: int) -> SharedGroup:
        topics = {"orders": ("orders-id", [LogPartition(end=10), LogPartition(end=10)])}
        return self.shared.add_group(named(stem, partition), topics)


def test_hostile_messages_stop_nobody(fuzz_seed: int, tmp_path: Path) -> None:
    fuzz = Fuzz(fuzz_seed, tmp_path)
    fuzz.run(MESSAGES_PER_RUN)
    fuzz.drain()
    fuzz.shared.advance(2**31)

    states = {key: ActorState.decoded(cell.value) for key, cell in fuzz.shared.actors.states.items()}
    assert [state.failure for state in states.values() if state.failure] == []
    assert fuzz.largest_state_bytes < LARGEST_STATE_BYTES
    assert [group.group_id for group in (fuzz.target, *fuzz.others) if not fuzz.is_drained(group)] == []
    answers = fuzz.shared.answers
    assert {asked: answers[asked] for asked, n in fuzz.sent.items() if not 1 <= answers[asked] <= n} == {}
    # The audit does see it where a sender plays the processor.
    rows = [row for row in fuzz.shared.rows if row.group_id != fuzz.outlaw.group_id]
    assert verify(rows, BROKER).findings == []
    assert strangers_at_locks(fuzz) == []
    assert_others_are_as_if_alone(fuzz, tmp_path)


def strangers_at_locks(fuzz: Fuzz) -> list[tuple[str, str]]:
    """(holder, sender) of requests that ended a lock of somebody else."""
    found = []
    for row in fuzz.shared.rows:
        for entry in row.transitions:
            if entry.from_state is RecordState.ACQUIRED and entry.cause in MEMBERS_CAUSES:
                sender = decoded_request(fuzz.shared.log[entry.request_offset].value).member_id
                if sender != entry.member_id:
                    found.append((entry.member_id, sender))
    return found


def assert_others_are_as_if_alone(fuzz: Fuzz, folder: Path) -> None:
    """The groups beside must have the same states and effects when everything else is taken out of the log."""
    alone = Actors(BROKER, folder)
    others = {group.group_id for group in fuzz.others}
    effects = {group_id: [] for group_id in others}
    for offsets, cut_ms in fuzz.shared.batches:
        mine = [o for o in offsets if {group_id for group_id, _ in destinations(fuzz.shared.log[o].value)} <= others]
        for (group_id, _), more in run_batch(alone, fuzz.shared.log, mine, cut_ms):
            effects[group_id] += more
    for group_id in others:
        for role in ActorRole:
            assert alone.states[group_id, role] == fuzz.shared.actors.states[group_id, role]
        assert effects[group_id] == fuzz.shared.effects[group_id]
