"""The dead-letter records of a redrive: which one counts, and that their content is not held in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.audit.redrive.dead_letters import DeadLetters
from sharegroup.audit.redrive.redrive_plan import Candidate, Copies, RedrivePlan
from sharegroup.audit.redrive.redrive_run import BATCH_BYTES, CopyBatch, copy_batches
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.dead_letters.headers import DeadLetterHeaders, dead_letter_headers_of

SINCE_MS = 1_000_000
REASON = "the state table does not have its history"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as log:
        log.create_topic("orders", 2)
        log.create_topic("dlq", 2)
        yield log


def dead_letter(offset: int, value: bytes | None, count: int = 5, group_id: str = "packers") -> NewRecord:
    origin = DeadLetterHeaders("orders", 0, offset, group_id, count, "Offset rejected by client.")
    return NewRecord(None, value, (("trace", b"t-1"), *origin.headers), SINCE_MS + count)


def candidates(dead_letters: DeadLetters) -> list[tuple[str, int, int, int]]:
    return [(c.topic, c.partition, c.first_offset, c.last_offset) for c in dead_letters.candidates()]


def copied(log: LocalLog, dead_letters: DeadLetters, first: int, last: int) -> list[CopyBatch]:
    """Copies of records whose originals are gone."""
    records = Candidate("orders", 0, first, last, SINCE_MS)
    plan = RedrivePlan("packers", copies=[Copies(records, 0, REASON, SINCE_MS, has_original=False)])
    return list(copy_batches(log, plan, dead_letters))


def test_of_several_dead_letter_records_of_a_record_the_last_one_counts(log: LocalLog) -> None:
    log.append("dlq", 0, [dead_letter(7, b"first", 1), dead_letter(3, b"three", 2), dead_letter(7, b"second", 3)])
    log.append("dlq", 1, [dead_letter(4, b"four", 4), dead_letter(5, b"other", group_id="others")])
    dead_letters = DeadLetters(log, "dlq", "packers")
    assert candidates(dead_letters) == [("orders", 0, 3, 4), ("orders", 0, 7, 7)]
    assert [c.dead_letters_since_ms for c in dead_letters.candidates()] == [SINCE_MS + 1] * 2
    (batch,) = copied(log, dead_letters, 7, 7)
    assert [record.value for record in batch.records] == [b"second"]
    origin = dead_letter_headers_of(batch.records[0].headers)
    assert origin == DeadLetterHeaders("orders", 0, 7, "packers", 3, "Offset rejected by client.")
    assert batch.records[0].headers[0] == ("trace", b"t-1")


def test_time_and_limit_select(log: LocalLog) -> None:
    log.append("dlq", 0, [dead_letter(offset, b"v", count=offset) for offset in range(10)])
    assert candidates(DeadLetters(log, "dlq", "packers", SINCE_MS + 6)) == [("orders", 0, 6, 9)]
    assert candidates(DeadLetters(log, "dlq", "packers", SINCE_MS + 6, limit=2)) == [("orders", 0, 6, 7)]


def test_those_without_content_and_those_that_are_deleted_are_left_out(log: LocalLog) -> None:
    log.append("dlq", 0, [dead_letter(0, b"v"), dead_letter(1, None), dead_letter(2, b"v")])
    dead_letters = DeadLetters(log, "dlq", "packers")
    log.delete_records("dlq", 0, 1)
    (batch,) = copied(log, dead_letters, 0, 2)
    assert (batch.offsets, [(s.first_offset, s.reason) for s in batch.skipped]) == ([2], [(0, REASON), (1, REASON)])


def test_the_content_is_not_held_in_memory(log: LocalLog) -> None:
    size_bytes, count = 100_000, 400
    for first in range(0, count, 50):
        log.append("dlq", first % 2, [dead_letter(offset, b"x" * size_bytes) for offset in range(first, first + 50)])
    tracemalloc.start()
    try:
        dead_letters = DeadLetters(log, "dlq", "packers")
        offsets: list[int] = []
        for copies in dead_letters.candidates():
            plan = RedrivePlan("packers", copies=[Copies(copies, 0, REASON, SINCE_MS, has_original=False)])
            for batch in copy_batches(log, plan, dead_letters):
                assert sum(len(record.value or b"") for record in batch.records) <= BATCH_BYTES
                offsets += batch.offsets
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert offsets == list(range(count))
    assert peak_bytes < 0.7 * count * size_bytes
