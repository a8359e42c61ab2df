"""Ranges of records in columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sharegroup.errors import UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_arrow import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, RECORD_SCHEMA, read_arrow
from sharegroup.logs.port import NewRecord


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "events.log") as opened:
        opened.create_topic("events", 2)
        yield opened


def test_columns_of_a_batch(log: LocalLog) -> None:
    log.append("events", 1, [NewRecord(b"k", b"v", (("h", b"x"), ("n", None)), 1_500), NewRecord(None, None, (), 0)])
    (batch,) = read_arrow(log, "events", 1, 0, 2)
    assert batch.schema.equals(RECORD_SCHEMA)
    assert batch.to_pylist() == [
        {
            "topic": "events",
            "partition": 1,
            "offset": 0,
            "timestamp_ms": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
            "key": b"k",
            "value": b"v",
            "headers": [{"key": "h", "value": b"x"}, {"key": "n", "value": None}],
        },
        {
            "topic": "events",
            "partition": 1,
            "offset": 1,
            "timestamp_ms": datetime(1970, 1, 1, tzinfo=UTC),
            "key": None,
            "value": None,
            "headers": None,
        },
    ]


def test_batches_are_bounded_in_records(log: LocalLog) -> None:
    log.append("events", 0, [NewRecord(None, b"v")] * (MAX_BATCH_RECORDS + 5))
    batches = list(read_arrow(log, "events", 0, 2, MAX_BATCH_RECORDS + 4))
    assert [batch.num_rows for batch in batches] == [MAX_BATCH_RECORDS, 2]
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(2, MAX_BATCH_RECORDS + 4))


def test_batches_are_bounded_in_bytes(log: LocalLog) -> None:
    log.append("events", 0, [NewRecord(None, b"v" * (MAX_BATCH_BYTES // 2))] * 3)
    assert [batch.num_rows for batch in read_arrow(log, "events", 0, 0, 3)] == [2, 1]


def test_missing_offsets_are_absent(log: LocalLog) -> None:
    log.append("events", 0, [NewRecord(None, b"v")] * 5)
    log.raise_end_offset("events", 0, 10)
    log.append("events", 0, [NewRecord(None, b"v")])
    log.delete_records("events", 0, 3)
    (batch,) = read_arrow(log, "events", 0, 0, 99)
    assert batch.column("offset").to_pylist() == [3, 4, 10]
    assert list(read_arrow(log, "events", 0, 5, 10)) == []


def test_records_deleted_while_they_are_read(log: LocalLog) -> None:
    log.append("events", 0, [NewRecord(None, b"v")] * (2 * MAX_BATCH_RECORDS))
    end = 2 * MAX_BATCH_RECORDS
    batches = read_arrow(log, "events", 0, 0, end)
    assert next(batches).num_rows == MAX_BATCH_RECORDS
    log.delete_records("events", 0, end - 1)
    assert next(batches).num_rows == 1


def test_a_topic_that_does_not_exist(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError, match="absent-0"):
        next(read_arrow(log, "absent", 0, 0, 1))
