"""Random schedules of writers, pauses, lost and repeated messages: a record is accepted only if it is in the sink."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.invariants import Circumstances
from sharegroup.core.open_writes import OpenWrite, RecordOutcome, Resolution
from sharegroup.core.record_invariants import check_record
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord, Transition
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_invariants import check_state
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError

GAP, ACCEPT, RELEASE, REJECT, _, UNREAD = AcknowledgeType
RECORDS = 6
LIMITS = SharePartitionLimits(lock_duration_ms=100, delivery_count_limit=3)
Outcomes = dict[int, AcknowledgeType]


@dataclass
class Write:
    """A write, the outcomes of its commit, and whether the sink has fenced it."""

    opened: OpenWrite
    offsets: list[int]
    has_begun: bool = False
    committed: Outcomes | None = None
    is_fenced: bool = False
    is_given_up: bool = False


class Schedule:
    """One random schedule of the leader (the engine), its members, and the sink."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.engine, self.copy = SharePartition(0), SharePartition(0)
        self.writes: list[Write] = []
        self.resolutions: list[tuple[int, Resolution]] = []
        self.acknowledgements: list[AcknowledgementBatch] = []
        self.states: dict[int, RecordState] = {}
        self.now_ms = 0

    def run(self, step_count: int) -> None:
        steps = [
            *(self.acquire, self.end_locks, self.lose_the_member, self.move_the_log_start),
            *(self.give_up, self.write, self.write, self.check_the_sink, self.deliver, self.deliver_an_acknowledgement),
        ]
        for _ in range(step_count):
            self.now_ms += self.random.randrange(30)
            self.random.choice(steps)()
            self.check()
        self.finish()

    # The leader.

    def acquire(self) -> None:
        version = 100 + len(self.writes)
        used = {each.opened.app_id for each in self.writes if each.opened.version in self.engine.open_writes}
        app_id = next(str(slot) for slot in range(len(used) + 1) if str(slot) not in used)
        opened = OpenWrite(version, app_id, "table", "/table", 0, self.now_ms)
        request = AcquireRequest("m", self.random.randint(1, 3))
        _, records = self.engine.acquire(request, LIMITS, RECORDS, self.now_ms, opened)
        offsets = [n for record in records if isinstance(record, Transition) for n in _offsets(record)]
        if offsets:
            self.writes.append(Write(opened, offsets))
        self._note(records)

    def end_locks(self) -> None:
        self.now_ms += self.random.randrange(LIMITS.lock_duration_ms)
        self._note(self.engine.expire_locks(LIMITS, self.now_ms))

    def lose_the_member(self) -> None:
        cause = self.random.choice([Cause.SESSION_CLOSE, Cause.MEMBER_ENDED])
        self._note(self.engine.release_member("m", LIMITS, self.now_ms, cause))

    def move_the_log_start(self) -> None:
        if not self.random.randrange(10):
            self._note(self.engine.move_log_start(self.random.randrange(RECORDS), LIMITS))

    # Its members. They may do the next step of any write, however old it is.

    def give_up(self) -> None:
        """Give up a whole write, in one message for each record; one that has not begun never does then."""
        if (write := self._any_write()) is None:
            return
        kind, version = self.random.choice([RELEASE, REJECT, UNREAD, GAP]), write.opened.version
        self.acknowledgements += [
            AcknowledgementBatch(n, n, (kind,), None, version, write.has_begun) for n in write.offsets
        ]
        write.is_given_up = write.is_given_up or not write.has_begun

    def deliver_an_acknowledgement(self) -> None:
        if self.acknowledgements:
            with suppress(InvalidRecordStateError, InvalidRequestError):
                batch = self.random.choice(self.acknowledgements)
                self._note(self.engine.acknowledge("m", [batch], LIMITS, self.now_ms))

    def write(self) -> None:
        """Begin, or go on at any time later; the sink takes each write once, and none that is fenced."""
        if (write := self._any_write()) is None or write.is_given_up:
            return
        if not write.has_begun:
            write.has_begun = True
        elif write.committed is None and not write.is_fenced:
            kind = self.random.choice([ACCEPT, RELEASE, REJECT])
            write.committed = {n: kind if n == write.offsets[0] else ACCEPT for n in write.offsets}
            if self.random.random() < 0.5:
                self.resolutions.append(_report(write))

    def check_the_sink(self) -> None:
        if (write := self._any_write()) is not None:
            write.is_fenced = write.is_fenced or write.committed is None
            self.resolutions.append(_report(write))

    def deliver(self) -> None:
        """Any message, in any order, as often as it may come."""
        if self.resolutions:
            version, resolution = self.random.choice(self.resolutions)
            self._note(self.engine.resolve(version, resolution, LIMITS, self.now_ms))

    # The guarantee.

    def check(self) -> None:
        for offset in range(RECORDS):
            rows = [write for write in self.writes if (write.committed or {}).get(offset) is ACCEPT]
            state = self.states.get(offset, RecordState.AVAILABLE)
            assert len(rows) <= 1
            if state is RecordState.ACKNOWLEDGED:
                assert rows, f"offset {offset} is accepted without a result"
            elif state in (RecordState.AVAILABLE, RecordState.ARCHIVED):
                assert not rows, f"offset {offset} is {state.name} and has a result"
            elif rows:
                (run,) = self.engine.runs.overlapping(offset, offset)
                assert run.write_version == rows[0].opened.version
        assert list(self.copy.runs) == list(self.engine.runs)
        assert self.copy.open_writes == self.engine.open_writes
        assert check_state(self.engine) == []

    def finish(self) -> None:
        """Everything ends: locks, and then each open write by a lookup."""
        self.now_ms += LIMITS.lock_duration_ms
        self._note(self.engine.expire_locks(LIMITS, self.now_ms))
        for write in self.writes:
            if write.opened.version in self.engine.open_writes:
                write.is_fenced = write.is_fenced or write.committed is None
                self._note(self.engine.resolve(*_report(write), LIMITS, self.now_ms))
        assert not self.engine.open_writes
        self.check()

    def _any_write(self) -> Write | None:
        return self.random.choice(self.writes) if self.writes else None

    def _note(self, records: Sequence[SharePartitionRecord]) -> None:
        for record in records:
            assert check_record(self.copy, record, Circumstances(LIMITS, self.now_ms)) == []
            self.copy.apply(record)
            if isinstance(record, Transition):
                self.states.update(dict.fromkeys(_offsets(record), record.to_state))


def _offsets(record: Transition) -> range:
    return range(record.first_offset, record.last_offset + 1)


def _report(write: Write) -> tuple[int, Resolution]:
    if write.committed is None:
        return write.opened.version, Resolution([], None, is_closed=True)
    named = [(n, n, RecordOutcome(kind)) for n, kind in write.committed.items() if kind is not ACCEPT]
    return write.opened.version, Resolution(named, RecordOutcome(ACCEPT), is_closed=True)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_a_record_is_accepted_if_and_only_if_its_result_is_in_the_sink(seed: int) -> None:
    Schedule(seed).run(step_count=60)
