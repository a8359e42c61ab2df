"""The engine against the naive model, step by step, with every invariant checked at each record and each state."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharegroup.core.acquisition import AcquireMode, AcquireRequest
from sharegroup.core.invariants import Circumstances
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_invariants import check_record
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_invariants import check_state
from sharegroup.errors import ApiError
from tests.support.examples import examples
from tests.unit.core.naive_model import NaiveSharePartition, RefusedError, offset_by_offset

LOCK_DURATION_MS = 100
HIGHEST_DELIVERY_COUNT_LIMIT = 10

members = st.sampled_from(["a", "b"])
acknowledge_types = st.sampled_from(AcknowledgeType)
limits = st.builds(
    SharePartitionLimits,
    lock_duration_ms=st.just(LOCK_DURATION_MS),
    delivery_count_limit=st.sampled_from([1, 2, 3, 5, 7, HIGHEST_DELIVERY_COUNT_LIMIT]),
    max_record_locks=st.integers(1, 40),
    max_span_offsets=st.sampled_from([30, 1_000]),
    max_runs=st.sampled_from([3, 8, 1_000]),
    is_renew_enabled=st.booleans(),
    has_dead_letter_queue=st.booleans(),
    redelivery_backoff_ms=st.sampled_from([0, 0, LOCK_DURATION_MS // 4]),
    redelivery_backoff_max_ms=st.sampled_from([LOCK_DURATION_MS // 2, 2 * LOCK_DURATION_MS]),
)
redelivery_delays = st.sampled_from([None, None, 0, LOCK_DURATION_MS // 2])


stored_runs = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.sampled_from(
            [RecordState.AVAILABLE] * 3 + [RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED]
        ),
        st.integers(0, HIGHEST_DELIVERY_COUNT_LIMIT - 1),
    ),
    max_size=4,
)


class SharePartitionMachine(RuleBasedStateMachine):
    @initialize(start_offset=st.integers(0, 5), stored=stored_runs, in_force=limits)
    def begin(
        self, start_offset: int, stored: list[tuple[int, RecordState, int]], in_force: SharePartitionLimits
    ) -> None:
        self.limits = in_force
        self.now_ms = 1_000
        runs: list[Run] = []
        self.log_end_offset = start_offset
        for size, state, delivery_count in stored:
            runs.append(Run(self.log_end_offset, self.log_end_offset + size - 1, state, delivery_count))
            self.log_end_offset += size
        self.last_stable_offset = self.log_end_offset
        self.isolation_level = IsolationLevel.READ_UNCOMMITTED
        self.engine = SharePartition(start_offset, runs)
        self.replica = SharePartition(start_offset, runs)
        self.model = NaiveSharePartition(start_offset, offset_by_offset(runs))

    def _replay(self, records: Sequence[SharePartitionRecord]) -> None:
        circumstances = Circumstances(self.limits, self.now_ms, HIGHEST_DELIVERY_COUNT_LIMIT)
        for record in records:
            assert check_record(self.replica, record, circumstances) == []
            self.replica.apply(record)

    @invariant()
    def engine_replica_and_model_agree(self) -> None:
        assert check_state(self.engine) == []
        assert self.engine.start_offset == self.replica.start_offset == self.model.start_offset
        assert self.engine.next_offset == self.replica.next_offset == self.model.next_offset
        assert self.engine.runs == self.replica.runs
        assert offset_by_offset(list(self.engine.runs)) == self.model.records

    @rule(size=st.integers(1, 20))
    def log_grows(self, size: int) -> None:
        self.log_end_offset += size

    @rule(data=st.data())
    def transactions_end(self, data: st.DataObject) -> None:
        self.last_stable_offset = data.draw(st.integers(self.last_stable_offset, self.log_end_offset))

    @rule(isolation_level=st.sampled_from(IsolationLevel))
    def isolation_level_changes(self, isolation_level: IsolationLevel) -> None:
        self.isolation_level = isolation_level

    @rule(ms=st.sampled_from([1, LOCK_DURATION_MS // 2, LOCK_DURATION_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self._replay(self.engine.expire_locks(self.limits, self.now_ms))
        self.model.expire_locks(self.limits, self.now_ms)

    @rule(in_force=limits)
    def configuration_changes(self, in_force: SharePartitionLimits) -> None:
        self.limits = in_force

    @rule(
        member_id=members,
        max_records=st.integers(0, 12),
        batch_size=st.integers(1, 4),
        mode=st.sampled_from(AcquireMode),
        fair_part=st.none() | st.integers(1, 12),
        takes_suspects=st.booleans(),
    )
    def acquire(
        self,
        member_id: str,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        fair_part: int | None,
        takes_suspects: bool,
    ) -> None:
        if self.engine.runs.are_suspects_held_by(member_id):
            return
        takes_suspects &= not self.engine.runs.is_held_by(member_id)
        request = AcquireRequest(member_id, max_records, batch_size, mode, fair_part, takes_suspects)
        end_offset = self.log_end_offset
        if self.isolation_level is IsolationLevel.READ_COMMITTED:
            end_offset = self.last_stable_offset
        count = self.engine.acquirable_count(self.limits, end_offset, self.now_ms)
        assert count == self.model.acquirable_count(self.limits, end_offset, self.now_ms)
        count = self.engine.acquirable_suspect_count(end_offset, self.now_ms)
        assert count == self.model.acquirable_suspect_count(self.limits, end_offset, self.now_ms)
        ranges, records = self.engine.acquire(request, self.limits, end_offset, self.now_ms)
        self._replay(records)
        acquired_counts = {
            offset: acquired.delivery_count
            for acquired in ranges
            for offset in range(acquired.first_offset, acquired.last_offset + 1)
        }
        assert acquired_counts == self.model.acquire(request, self.limits, end_offset, self.now_ms)
        assert all(offset < end_offset for offset in acquired_counts)
        assert sum(acquired.size for acquired in ranges) == len(acquired_counts)
        if mode is AcquireMode.RECORD_LIMIT or takes_suspects:
            assert len(acquired_counts) <= min(max_records, fair_part or max_records)
        if mode is AcquireMode.BATCH_OPTIMIZED:
            assert all(acquired.size <= batch_size for acquired in ranges)

    @rule(data=st.data(), member_id=members)
    def take_another_choice(self, data: st.DataObject, member_id: str) -> None:
        if self.engine.runs.are_suspects_held_by(member_id):
            return
        self.engine.runs.make_available(self.now_ms)
        available = list(self.engine.runs.available(are_suspects=False))
        # Each choice from a run may divide it into three.
        is_room_for_runs = self.model.run_count + 2 * len(available) < self.limits.max_runs
        end = self.model.allowed_end(self.limits, self.now_ms)
        if end > self.model.next_offset and is_room_for_runs:
            available.append(Run(self.model.next_offset, end - 1, RecordState.AVAILABLE, 0))
        chosen = []
        for run in available:
            first = data.draw(st.integers(run.first_offset, run.last_offset))
            if data.draw(st.booleans()):
                chosen.append(run.cut(first, data.draw(st.integers(first, run.last_offset))))
        offsets = [offset for run in chosen for offset in range(run.first_offset, run.last_offset + 1)]
        self._replay(self.engine.take(member_id, chosen, self.limits, self.now_ms))
        self.model.take(member_id, offsets, self.limits, self.now_ms)
        self.log_end_offset = max(self.log_end_offset, self.model.next_offset)

    @rule(data=st.data(), member_id=members)
    def acknowledge_anything(self, data: st.DataObject, member_id: str) -> None:
        low, high = max(self.model.start_offset - 3, 0), self.model.next_offset + 2
        batches = []
        for _ in range(data.draw(st.integers(1, 3))):
            first, last = data.draw(st.integers(low, high)), data.draw(st.integers(low, high))
            size = data.draw(st.sampled_from([1, max(1, last - first + 1)]))
            types = data.draw(st.lists(acknowledge_types, min_size=size, max_size=size))
            batches.append(AcknowledgementBatch(first, last, tuple(types), data.draw(redelivery_delays)))
        self._acknowledge(member_id, batches)

    @precondition(lambda self: self.engine.runs.member_ids)
    @rule(data=st.data())
    def acknowledge_what_is_held(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(self.engine.runs.member_ids))
        batches = []
        for run in data.draw(st.lists(st.sampled_from(self.engine.runs.held_by(member_id)), max_size=3)):
            first = data.draw(st.integers(run.first_offset, run.last_offset))
            last = data.draw(st.integers(first, run.last_offset))
            size = data.draw(st.sampled_from([1, last - first + 1]))
            types = data.draw(st.lists(acknowledge_types, min_size=size, max_size=size))
            batches.append(AcknowledgementBatch(first, last, tuple(types), data.draw(redelivery_delays)))
        self._acknowledge(member_id, batches)

    def _acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch]) -> None:
        refused = expected = None
        try:
            self._replay(self.engine.acknowledge(member_id, batches, self.limits, self.now_ms))
        except ApiError as error:
            refused = error.name
        try:
            self.model.acknowledge(member_id, batches, self.limits, self.now_ms)
        except RefusedError as error:
            expected = str(error)
        assert refused == expected

    @rule(member_id=members, is_orderly=st.booleans())
    def member_leaves(self, member_id: str, is_orderly: bool) -> None:
        cause = Cause.SESSION_CLOSE if is_orderly else Cause.MEMBER_ENDED
        self._replay(self.engine.release_member(member_id, self.limits, self.now_ms, cause))
        self.model.release_member(member_id, self.limits, is_orderly=is_orderly)

    @rule(data=st.data())
    def dead_letters_are_written(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(self.model.start_offset, self.model.next_offset))
        last = data.draw(st.integers(first, self.model.next_offset))
        self._replay(self.engine.finish_dead_letters(first, last, self.limits, self.now_ms))
        self.model.finish_dead_letters(first, last)

    @rule(data=st.data())
    def records_are_redriven(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(max(self.model.start_offset - 1, 0), self.model.next_offset))
        last = data.draw(st.integers(first, min(first + 3, self.model.next_offset)))
        refused = expected = None
        try:
            self._replay(self.engine.redrive([(first, last)], self.limits, self.now_ms))
        except ApiError as error:
            refused = error.name
        try:
            self.model.redrive(first, last)
        except RefusedError as error:
            expected = str(error)
        assert refused == expected

    @rule(data=st.data())
    def log_start_moves(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.model.next_offset + 3))
        self._replay(self.engine.move_log_start(offset, self.limits))
        self.model.move_log_start(offset)
        self.log_end_offset = max(self.log_end_offset, offset)
        self.last_stable_offset = max(self.last_stable_offset, offset)

    @rule()
    def state_is_stored_and_loaded(self) -> None:
        self.engine = SharePartition(self.engine.start_offset, list(self.engine.runs))


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(max_examples=examples(25), stateful_step_count=60)


class SharePartitionMachineAtLength(SharePartitionMachine):
    pass


TestSharePartitionAtLength = pytest.mark.slow(SharePartitionMachineAtLength.TestCase)
TestSharePartitionAtLength.settings = settings(max_examples=examples(100), stateful_step_count=60)
