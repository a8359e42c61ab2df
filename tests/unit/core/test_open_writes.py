"""Open writes: what an acknowledgement, the end of a lock and a resolution make of the records that have one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.cause_rules import CHOSEN_ENDS, DECIDED_ENDS, ENDS_OF_DELIVERIES
from sharegroup.core.invariants import Circumstances
from sharegroup.core.open_writes import OpenWrite, RecordOutcome, Resolution, WriteClosed, WriteOpened
from sharegroup.core.record_invariants import check_record
from sharegroup.core.record_state import TRANSITIONS, AcknowledgeType, Cause, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord, Transition
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch, persisted_batches
from sharegroup.core.state_invariants import check_state
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError
from tests.unit.core.notation import shown

GAP, ACCEPT, RELEASE, REJECT, RENEW, UNREAD = AcknowledgeType
LIMITS = SharePartitionLimits(lock_duration_ms=1_000, delivery_count_limit=3, redelivery_backoff_ms=50)
NOW_MS = 10_000
LATER_MS = 20_000
"""All locks have ended by then."""


def write(version: int) -> OpenWrite:
    return OpenWrite(version, f"sharegroup/state/group/table/{version % 10}", "table", "/sink", 7, NOW_MS)


class Checked:
    """A share-partition; each record of it is held to the invariants, on a copy that only applies records."""

    def __init__(self, limits: SharePartitionLimits = LIMITS) -> None:
        self.engine = SharePartition(0)
        self.limits = limits
        self._copy = SharePartition(0)

    def acquire(self, count: int, version: int, now_ms: int = NOW_MS, end: int = 10) -> list[str]:
        request = AcquireRequest("m1", count)
        _, records = self.engine.acquire(request, self.limits, end, now_ms, write(version))
        return self._checked(records, now_ms)

    def acknowledge(
        self,
        first: int,
        last: int,
        kind: AcknowledgeType,
        version: int,
        *,
        is_begun: bool = False,
        delay_ms: int | None = None,
    ) -> list[str]:
        batch = AcknowledgementBatch(first, last, (kind,), delay_ms, version, is_begun)
        return self._checked(self.engine.acknowledge("m1", [batch], self.limits, NOW_MS), NOW_MS)

    def end_locks(self, now_ms: int = LATER_MS) -> list[str]:
        return self._checked(self.engine.expire_locks(self.limits, now_ms), now_ms)

    def release_member(self, cause: Cause) -> list[str]:
        return self._checked(self.engine.release_member("m1", self.limits, NOW_MS, cause), NOW_MS)

    def move_log_start(self, offset: int) -> list[str]:
        return self._checked(self.engine.move_log_start(offset, self.limits), NOW_MS)

    def resolve(
        self,
        version: int,
        *named: tuple[int, int, AcknowledgeType],
        others: AcknowledgeType | None = None,
        is_closed: bool = True,
        now_ms: int = LATER_MS,
    ) -> list[str]:
        outcomes = [(first, last, RecordOutcome(kind)) for first, last, kind in named]
        of_others = None if others is None else RecordOutcome(others)
        resolution = Resolution(outcomes, of_others, is_closed=is_closed)
        return self._checked(self.engine.resolve(version, resolution, self.limits, now_ms), now_ms)

    @property
    def open_versions(self) -> list[int]:
        return list(self.engine.open_writes)

    def shown(self) -> list[str]:
        return shown(self.engine)

    def _checked(self, records: Sequence[SharePartitionRecord], now_ms: int) -> list[str]:
        for record in records:
            assert check_record(self._copy, record, Circumstances(self.limits, now_ms, 100)) == []
            self._copy.apply(record)
        assert check_state(self.engine) == []
        assert shown(self._copy) == shown(self.engine)
        assert self._copy.open_writes == self.engine.open_writes
        return [text for record in records if (text := _text(record))]


def _text(record: SharePartitionRecord) -> str:
    match record:
        case Transition():
            intended = f" {record.intended}" if record.intended else ""
            return f"{record.first_offset}..{record.last_offset} {record.to_state.name} by {record.cause}{intended}"
        case WriteOpened():
            return f"opens {record.write.version}"
        case WriteClosed():
            return f"closes {record.version}"
        case _:
            return ""


@pytest.fixture
def checked() -> Checked:
    return Checked()


def test_an_acquisition_opens_its_write_and_the_records_keep_it(checked: Checked) -> None:
    assert checked.acquire(5, 100) == ["0..4 ACQUIRED by acquire", "opens 100"]
    assert checked.acknowledge(0, 4, RENEW, 100) == ["0..4 ACQUIRED by renew"]
    assert {run.write_version for run in checked.engine.runs} == {100}


def test_nothing_but_the_sink_accepts_a_record_with_an_open_write(checked: Checked) -> None:
    checked.acquire(5, 100)
    with pytest.raises(InvalidRecordStateError, match="open write 100"):
        checked.acknowledge(0, 4, ACCEPT, 100)


@pytest.mark.parametrize("kind", [RELEASE, REJECT, UNREAD, GAP, RENEW, ACCEPT])
@pytest.mark.parametrize("version", [-1, 99])
def test_an_acknowledgement_of_another_delivery_is_refused(
    checked: Checked, kind: AcknowledgeType, version: int
) -> None:
    checked.acquire(5, 100)
    with pytest.raises(InvalidRecordStateError, match=f"of write {version}"):
        checked.acknowledge(0, 4, kind, version)


def test_a_record_without_a_write_takes_no_acknowledgement_of_one(checked: Checked) -> None:
    checked.engine.acquire(AcquireRequest("m1", 5), LIMITS, 10, NOW_MS)
    with pytest.raises(InvalidRecordStateError):
        checked.acknowledge(0, 4, RELEASE, 100)
    with pytest.raises(InvalidRequestError, match="names no write"):
        checked.acknowledge(0, 4, RELEASE, -1, is_begun=True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (RELEASE, "0..4 AVAILABLE by release"),
        (UNREAD, "0..4 AVAILABLE by unread"),
        (REJECT, "0..4 ARCHIVED by reject"),
        (GAP, "0..4 ARCHIVED by gap"),
    ],
)
def test_a_write_that_was_given_up_before_it_began_is_closed(
    checked: Checked, kind: AcknowledgeType, expected: str
) -> None:
    checked.acquire(5, 100)
    assert checked.acknowledge(0, 4, kind, 100) == [expected, "closes 100"]


def test_a_write_of_which_some_records_are_given_up_stays_open(checked: Checked) -> None:
    checked.acquire(5, 100)
    assert checked.acknowledge(0, 1, RELEASE, 100) == ["0..1 AVAILABLE by release"]
    assert checked.open_versions == [100]
    assert checked.acknowledge(2, 4, RELEASE, 100) == ["2..4 AVAILABLE by release", "closes 100"]


@pytest.mark.parametrize("cause", [Cause.SESSION_CLOSE, Cause.MEMBER_SILENT, Cause.MEMBER_ENDED])
def test_a_member_that_is_gone_leaves_its_write_in_doubt(checked: Checked, cause: Cause) -> None:
    checked.acquire(5, 100)
    assert checked.release_member(cause) == [f"0..4 RESOLVING by in_doubt {cause}"]
    assert checked.open_versions == [100]


def test_records_in_doubt_are_for_nobody_and_hold_the_start_offset(checked: Checked) -> None:
    checked.acquire(5, 100)
    checked.end_locks()
    assert checked.acquire(10, 101, LATER_MS) == ["5..9 ACQUIRED by acquire", "opens 101"]
    assert checked.engine.start_offset == 0
    assert checked.engine.lag(10) == 10


# What ended the delivery, and what becomes of it in the end: state, delivery count and "not before" of the records.
_INTENDED = [
    ("a lock that ended", None, "0..4 AVAILABLE by lock_timeout", "0..4 AVAILABLE 1! @20050"),
    ("release", RELEASE, "0..4 AVAILABLE by release", "0..4 AVAILABLE 1"),
    ("unread", UNREAD, "0..4 AVAILABLE by unread", "0..4 AVAILABLE 0"),
    ("reject", REJECT, "0..4 ARCHIVED by reject", None),
    ("gap", GAP, "0..4 ARCHIVED by gap", None),
]


@pytest.mark.parametrize(
    ("kind", "transition", "run"), [row[1:] for row in _INTENDED], ids=[row[0] for row in _INTENDED]
)
def test_what_was_intended_applies_if_nothing_was_written(
    checked: Checked, kind: AcknowledgeType | None, transition: str, run: str | None
) -> None:
    checked.acquire(5, 100)
    if kind is None:
        checked.end_locks()
    else:
        checked.acknowledge(0, 4, kind, 100, is_begun=True)
    assert checked.engine.runs.is_resolving(100)
    assert checked.resolve(100) == [transition, "closes 100"]
    assert checked.shown() == (["start 0", run] if run else ["start 5"])


@pytest.mark.parametrize("kind", [row[1] for row in _INTENDED])
def test_what_was_intended_does_not_apply_if_the_sink_has_it(checked: Checked, kind: AcknowledgeType | None) -> None:
    checked.acquire(5, 100)
    if kind is None:
        checked.end_locks()
    else:
        checked.acknowledge(0, 4, kind, 100, is_begun=True)
    assert checked.resolve(100, others=ACCEPT) == ["0..4 ACKNOWLEDGED by accept", "closes 100"]
    assert checked.shown() == ["start 5"]


def test_the_first_intended_end_wins(checked: Checked) -> None:
    checked.acquire(5, 100)
    checked.acknowledge(0, 4, UNREAD, 100, is_begun=True)
    assert checked.end_locks() == []
    with pytest.raises(InvalidRecordStateError, match="RESOLVING"):
        checked.acknowledge(0, 4, REJECT, 100, is_begun=True)
    assert checked.resolve(100) == ["0..4 AVAILABLE by unread", "closes 100"]


def test_a_release_in_doubt_keeps_its_delay_from_the_time_it_was_sent(checked: Checked) -> None:
    checked.acquire(5, 100)
    checked.acknowledge(0, 4, RELEASE, 100, is_begun=True, delay_ms=500)
    checked.resolve(100, now_ms=NOW_MS + 400)
    assert checked.shown() == ["start 0", f"0..4 AVAILABLE 1 @{NOW_MS + 500}"]


def test_a_delivery_counts_once_and_its_limit_applies_when_it_is_decided() -> None:
    checked = Checked(SharePartitionLimits(lock_duration_ms=1_000, delivery_count_limit=1))
    checked.acquire(5, 100)
    assert checked.end_locks() == ["0..4 RESOLVING by in_doubt lock_timeout"]
    assert checked.resolve(100, (0, 2, ACCEPT)) == [
        "0..2 ACKNOWLEDGED by accept",
        "3..4 ARCHIVED by lock_timeout",
        "closes 100",
    ]


def test_a_commit_names_the_records_that_it_does_not_accept(checked: Checked) -> None:
    checked.acquire(5, 100)
    named = ((1, 1, REJECT), (2, 2, RELEASE), (3, 3, GAP))
    assert checked.resolve(100, *named, others=ACCEPT, now_ms=NOW_MS) == [
        "0..0 ACKNOWLEDGED by accept",
        "1..1 ARCHIVED by reject",
        "2..2 AVAILABLE by release",
        "3..3 ARCHIVED by gap",
        "4..4 ACKNOWLEDGED by accept",
        "closes 100",
    ]


def test_a_part_decides_on_its_own_records_only(checked: Checked) -> None:
    checked.acquire(6, 100)
    assert checked.resolve(100, (0, 2, ACCEPT), is_closed=False, now_ms=NOW_MS) == ["0..2 ACKNOWLEDGED by accept"]
    assert checked.resolve(100, (3, 5, ACCEPT), is_closed=False, now_ms=NOW_MS) == ["3..5 ACKNOWLEDGED by accept"]
    # No record is left, and a second run may still write a part.
    assert checked.open_versions == [100]
    assert checked.resolve(100, (0, 5, ACCEPT)) == ["closes 100"]


def test_a_resolution_is_a_fact_that_applies_once(checked: Checked) -> None:
    checked.acquire(5, 100)
    checked.resolve(100, now_ms=NOW_MS)
    checked.acquire(5, 101)
    assert checked.resolve(100, others=ACCEPT) == []
    assert checked.resolve(102, others=ACCEPT) == []
    assert {run.write_version for run in checked.engine.runs} == {101}


def test_records_of_other_writes_within_the_same_offsets_are_left_alone(checked: Checked) -> None:
    checked.acquire(2, 100)
    checked.acknowledge(0, 0, RENEW, 100)
    checked.acquire(2, 101)
    checked.end_locks()
    assert checked.resolve(100) == ["0..1 AVAILABLE by lock_timeout", "closes 100"]
    assert checked.shown()[-1].startswith("2..3 RESOLVING")


def test_a_held_record_whose_write_is_fenced_goes_back_to_the_queue(checked: Checked) -> None:
    checked.acquire(5, 100)
    assert checked.resolve(100, now_ms=NOW_MS) == ["0..4 AVAILABLE by not_written", "closes 100"]
    assert checked.shown() == ["start 0", "0..4 AVAILABLE 1"]


def test_the_log_start_waits_for_the_first_open_write(checked: Checked) -> None:
    checked.acquire(2, 100)
    checked.acknowledge(0, 1, RELEASE, 100, delay_ms=60_000)
    checked.acquire(3, 101)
    checked.move_log_start(4)
    assert checked.engine.start_offset == 2
    checked.resolve(101, others=ACCEPT, now_ms=NOW_MS)
    assert checked.engine.start_offset == 5


def test_records_in_doubt_are_to_kafka_what_they_were_before_the_acquisition(checked: Checked) -> None:
    checked.acquire(2, 100)
    checked.acknowledge(0, 1, RELEASE, 100, delay_ms=0)
    checked.acquire(2, 101)
    checked.end_locks()
    assert persisted_batches(checked.engine.runs) == [StateBatch(0, 1, 1, RecordState.AVAILABLE)]


def test_every_end_of_a_delivery_is_an_end_of_one_in_doubt_but_the_sink_s_own() -> None:
    assert ENDS_OF_DELIVERIES - {Cause.NOT_WRITTEN, Cause.LOG_START, Cause.OFFSET_RESET} == DECIDED_ENDS
    assert all(
        TRANSITIONS[RecordState.RESOLVING][cause] == TRANSITIONS[RecordState.ACQUIRED][cause] for cause in DECIDED_ENDS
    )
    assert {Cause.GAP, Cause.ACCEPT, Cause.RELEASE, Cause.REJECT, Cause.UNREAD} == CHOSEN_ENDS
