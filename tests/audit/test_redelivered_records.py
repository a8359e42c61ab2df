"""The list of records that were delivered more than once: its order, and what leaves it."""

from __future__ import annotations

from sharegroup.audit.timelines.redelivered_records import RedeliveredRecords
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import TransitionEntry

ACQUIRED, AVAILABLE, ARCHIVED = RecordState.ACQUIRED, RecordState.AVAILABLE, RecordState.ARCHIVED
ACKNOWLEDGED, ARCHIVING = RecordState.ACKNOWLEDGED, RecordState.ARCHIVING


def transition(
    offset: int,
    cause: Cause,
    to_state: RecordState,
    count: int = 2,
    from_state: RecordState = ACQUIRED,
    is_suspect: bool = False,
) -> TransitionEntry:
    return TransitionEntry(
        first_offset=offset,
        last_offset=offset,
        from_state=from_state,
        to_state=to_state,
        delivery_count=count,
        member_id="anna",
        deadline_ms=0,
        cause=cause,
        is_suspect=is_suspect,
        time_ms=1_000 + offset,
        request_offset=offset,
    )


def listed(records: RedeliveredRecords) -> list[int]:
    return [offset for first, last, _ in records for offset in range(first, last + 1)]


def test_given_up_records_come_first_then_suspects_then_others_by_their_deliveries() -> None:
    records = RedeliveredRecords()
    for entry in (
        transition(1, Cause.ACCEPT, ACKNOWLEDGED),
        transition(2, Cause.ACCEPT, ACKNOWLEDGED, count=4),
        transition(3, Cause.RELEASE, AVAILABLE, count=3),
        transition(4, Cause.LOCK_TIMEOUT, AVAILABLE, is_suspect=True),
        transition(5, Cause.REJECT, ARCHIVED),
        transition(6, Cause.RELEASE, ARCHIVED, count=5),
        transition(7, Cause.LOCK_TIMEOUT, ARCHIVING, count=5),
        transition(8, Cause.GAP, ARCHIVED),
        transition(9, Cause.REJECT, ARCHIVED, count=1),
    ):
        records.apply(entry)
    assert listed(records) == [6, 7, 5, 4, 2, 3, 1, 8]
    assert [(last.is_archived_at_limit, last.is_suspect) for _, _, last in records][:4] == [
        (True, False),
        (True, False),
        (False, False),
        (False, True),
    ]


def test_the_first_ones_are_kept_whenever_they_came() -> None:
    records = RedeliveredRecords(max_ranges=3)
    records.apply(transition(0, Cause.REJECT, ARCHIVED))
    for offset in range(1, 100):
        records.apply(transition(2 * offset, Cause.ACCEPT, ACKNOWLEDGED))
    records.apply(transition(999, Cause.LOCK_TIMEOUT, AVAILABLE, is_suspect=True))
    assert listed(records)[:2] == [0, 999]
    assert len(listed(records)) == 3


def test_records_whose_deliveries_were_taken_back_leave_the_list() -> None:
    records = RedeliveredRecords()
    for offset in (1, 2, 3):
        records.apply(transition(offset, Cause.REJECT, ARCHIVED))
    records.apply(transition(1, Cause.REDRIVE, AVAILABLE, count=0, from_state=ARCHIVED))
    records.apply(transition(2, Cause.UNREAD, AVAILABLE, count=1))
    assert listed(records) == [3]


def test_the_reason_of_the_archiving_stays_when_the_dead_letter_record_is_written() -> None:
    records = RedeliveredRecords()
    records.apply(transition(1, Cause.REJECT, ARCHIVING))
    records.apply(transition(1, Cause.DEAD_LETTER_WRITTEN, ARCHIVED, from_state=ARCHIVING))
    assert [(last.state, last.cause) for _, _, last in records] == [(ARCHIVED, Cause.REJECT)]
