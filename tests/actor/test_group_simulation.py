"""Random lives of a group: nothing is delivered that must not be, and the rows always add up to the live state."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sharegroup.config.broker import BrokerConfig
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.state_invariants import check_state
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request
from sharegroup.protocol.share_fetch import FINAL_EPOCH, ShareFetchResponse
from sharegroup.state.fold import FoldedGroup, fold
from tests.actor.delivery_ledger import DeliveryLedger
from tests.actor.group_harness import Acknowledgement, Batch, Group, LogPartition, Member, PartitionKey, group_with
from tests.support.examples import examples

LOCK_MS = 15_000
LIMIT = 3
PARTITIONS: list[PartitionKey] = [("orders-id", 0), ("orders-id", 1)]
MEMBERS = st.integers(0, 2)


class GroupMachine(RuleBasedStateMachine):
    """Three members; requests are appended, and batches run when the machine says so."""

    def __init__(self) -> None:
        super().__init__()
        self.group = group_with(30, 8, broker=BrokerConfig(share_coordinator_snapshot_update_records_per_snapshot=3))
        changed = {"share_record_lock_duration_ms": str(LOCK_MS), "share_delivery_count_limit": str(LIMIT)}
        assert self.group.alter_config(**changed) == 0
        self.ledger = DeliveryLedger(self.group, LIMIT, LOCK_MS)
        self.group.after_batch += [self.reopen_refused_sessions, self.compare_with_the_fold]
        self.restarted_at = 0
        self.members = [Member(self.group, name) for name in ("anna", "ben", "cleo")]

    @initialize()
    def begin(self) -> None:
        self.members[0].join()

    @rule(
        member=MEMBERS,
        max_records=st.integers(0, 12),
        mode=st.sampled_from(AcquireMode),
        batch_size=st.integers(1, 6),
        max_wait_ms=st.sampled_from([0, 500, 40_000]),
        partitions=st.sampled_from([PARTITIONS, PARTITIONS[:1], []]),
        forget=st.sampled_from([[], [], PARTITIONS[1:]]),
        reopen=st.sampled_from([False, False, False, True]),
        settles=st.sampled_from([True, True, False]),
    )
    def fetch(
        self,
        member: int,
        max_records: int,
        mode: AcquireMode,
        batch_size: int,
        max_wait_ms: int,
        partitions: list[PartitionKey],
        forget: list[PartitionKey],
        reopen: bool,
        settles: bool,
    ) -> None:
        self.members[member].send_fetch(
            partitions,
            forget=forget,
            epoch=0 if reopen else None,
            max_records=max_records,
            acquire_mode=mode,
            batch_size=batch_size,
            max_wait_ms=max_wait_ms,
        )
        if settles:
            self.group.settle()

    @rule(
        member=MEMBERS,
        first=st.integers(0, 100),
        size=st.integers(1, 8),
        acknowledge_type=st.sampled_from(AcknowledgeType),
        by_fetch=st.booleans(),
        settles=st.booleans(),
    )
    def acknowledge_what_is_held(
        self, member: int, first: int, size: int, acknowledge_type: AcknowledgeType, by_fetch: bool, settles: bool
    ) -> None:
        member_id = self.members[member].member_id
        if not self.ledger.held_by(member_id, self.group.now_ms):
            self.members[member].send_fetch(PARTITIONS, max_records=8, max_wait_ms=0)
            self.group.settle()
        held = self.ledger.held_by(member_id, self.group.now_ms)
        if not held:
            return
        self.have_session(member)
        first %= len(held)
        acknowledgements: dict[PartitionKey, list[Acknowledgement]] = {}
        for key, offset in held[first : first + size]:
            acknowledgements.setdefault(key, []).append((offset, offset, acknowledge_type))
        if by_fetch:
            self.members[member].send_fetch([], acknowledgements, max_records=4)
        else:
            self.members[member].send_acknowledge(acknowledgements)
        if settles:
            self.group.settle()

    @rule(
        member=MEMBERS,
        partition=st.integers(0, 1),
        first=st.integers(-1, 40),
        size=st.integers(0, 6),
        acknowledge_type=st.sampled_from(AcknowledgeType),
    )
    def acknowledge_anything(
        self, member: int, partition: int, first: int, size: int, acknowledge_type: AcknowledgeType
    ) -> None:
        self.have_session(member)
        range_ = (first, first + size - 1, acknowledge_type)
        self.members[member].send_acknowledge({PARTITIONS[partition]: [range_]})

    @rule(member=MEMBERS)
    def close_session(self, member: int) -> None:
        self.members[member].send_acknowledge({}, FINAL_EPOCH)

    @rule(member=MEMBERS)
    def send_last_request_again(self, member: int) -> None:
        # Not across a restart: there it is a new request, and clients send only those again that had no response.
        sent = [self.group.log[offset].value for offset in range(self.restarted_at, len(self.group.log))]
        mine = [value for value in sent if self.is_session_request(value, self.members[member].member_id)]
        if mine:
            self.group.append(mine[-1])

    @rule(back=st.integers(1, 6))
    def repeat_internal_message(self, back: int) -> None:
        value = self.group.log[-back].value
        if not decoded_request(value).member_id:
            self.group.append(value)

    @rule(member=MEMBERS, epoch=st.sampled_from([0, 0, None, None, -1]))
    def heartbeat(self, member: int, epoch: int | None) -> None:
        self.members[member].send_heartbeat(epoch, ["orders"] if epoch == 0 else None)

    @rule(partition=st.integers(0, 1), count=st.integers(1, 20))
    def grow(self, partition: int, count: int) -> None:
        self.group.grow("orders", partition, count)

    @rule(partition=st.integers(0, 1), count=st.integers(1, 4))
    def delete_records(self, partition: int, count: int) -> None:
        offsets = self.group.topics["orders"][1][partition]
        start = min(offsets.start + count, offsets.end)
        self.group.set_offsets("orders", partition, LogPartition(start, offsets.end))
        self.group.tell_offsets("orders")

    @rule(count=st.integers(1, 4), delay_ms=st.sampled_from([0, 0, 100, 20_000]))
    def run_batch(self, count: int, delay_ms: int) -> None:
        if self.group.pending_count:
            self.group.run_batch(self.group.now_ms + delay_ms, count)

    @rule()
    def settle(self) -> None:
        self.group.settle()

    @rule(duration_ms=st.sampled_from([1, 400, 400, 400, LOCK_MS - 1, LOCK_MS]))
    def wait(self, duration_ms: int) -> None:
        self.group.now_ms += duration_ms

    @rule(duration_ms=st.sampled_from([500, 500, 500, LOCK_MS, 50_000]))
    def let_time_pass(self, duration_ms: int) -> None:
        self.group.advance(duration_ms)

    @rule()
    def restart(self) -> None:
        self.group.settle()
        self.group.restart()
        self.restarted_at = len(self.group.log)
        for member in self.members:
            member.session_epoch = 0

    def have_session(self, member: int) -> None:
        """Open a session first where there is none, because that request can carry no acknowledgements."""
        if self.members[member].session_epoch == 0:
            self.members[member].send_fetch([], max_records=0)

    def is_session_request(self, value: bytes, member_id: str) -> bool:
        envelope = decoded_request(value)
        return envelope.member_id == member_id and envelope.api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)

    def teardown(self) -> None:
        self.group.settle()
        self.group.advance(200_000)

    def reopen_refused_sessions(self, batch: Batch) -> None:
        for member in self.members:
            member.take_assignments(batch.outcome.responses)
            for response in batch.outcome.responses:
                if response.member_id == member.member_id and "responses" not in response.body:
                    body = ShareFetchResponse.model_validate(response.body)
                    if body.error_code:
                        member.session_epoch = 0

    def compare_with_the_fold(self, batch: Batch) -> None:
        folded = fold(self.group.rows).groups.get(self.group.group_id, FoldedGroup(self.group.group_id))
        live = self.group.leader.partitions
        assert set(folded.partitions) == set(live)
        for key, led in live.items():
            share_partition, stored = led.share_partition, folded.partitions[key]
            assert check_state(share_partition) == []
            assert stored.share_partition.start_offset == share_partition.start_offset
            assert stored.share_partition.runs == share_partition.runs
            assert stored.state_epoch == share_partition.state_epoch
            assert stored.epochs == led.epochs
        assert folded.metadata.records() == self.group.coordinator.group.state.records()
        kept = self.group.leader.last_requests
        assert all(kept[member_id] == last for member_id, last in folded.last_requests.items())
        assert self.group.leader.overrides == folded.metadata.config_overrides


TestGroupSimulation = pytest.mark.slow(GroupMachine.TestCase)
TestGroupSimulation.settings = settings(
    max_examples=examples(20), stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]
)


def test_the_ledger_sees_a_record_that_two_members_hold() -> None:
    group = group_with(5)
    ledger = DeliveryLedger(group, LIMIT, 30_000)
    anna, ben = (Member(group, name) for name in ("anna", "ben"))
    anna.join()
    assert anna.fetch(PARTITIONS[:1]).record_count == 5
    assert len(ledger.held_by("anna", group.now_ms)) == 5
    group.rows.clear()
    group.restart()
    group.alter_config(share_auto_offset_reset="earliest")
    anna.join()
    with pytest.raises(AssertionError, match="anna"):
        ben.fetch(PARTITIONS[:1])


def holding_group() -> tuple[Group, list[Member]]:
    """Two members that hold every other three records of the first 30."""
    group = group_with(30)
    members = [Member(group, "anna"), Member(group, "ben")]
    members[0].join()
    for turn in range(10):
        group.now_ms += 1_000
        members[turn % 2].fetch(PARTITIONS[:1], max_records=3)
    return group, members


JUDGEMENTS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 29),
        st.integers(1, 3),
        st.sampled_from(AcknowledgeType),
        st.sampled_from([0, 1, 9_000]),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(JUDGEMENTS, st.lists(st.integers(1, 5)), st.integers(0, 100_000))
@settings(max_examples=examples(40))
def test_however_messages_fall_into_batches_they_are_applied_alike(
    judgements: list[tuple[int, int, int, AcknowledgeType, int]], counts: list[int], delay_ms: int
) -> None:
    ends = []
    for is_split in (False, True):
        group, members = holding_group()
        for member, first, size, acknowledge_type, wait_ms in judgements:
            group.now_ms += wait_ms
            members[member].send_acknowledge({PARTITIONS[0]: [(first, first + size - 1, acknowledge_type)]})
        responses = []
        for count in counts if is_split else ():
            responses += group.run_batch(group.now_ms + delay_ms, count).responses
        responses += group.run_batch().responses
        # Within a cut, refusals come after the other responses; members tell responses apart by correlation id.
        responses.sort(key=lambda response: (response.member_id, response.correlation_id))
        led = group.leader.partitions[PARTITIONS[0]]
        ends.append((responses, led.share_partition.start_offset, list(led.share_partition.runs)))
    assert ends[0] == ends[1]
