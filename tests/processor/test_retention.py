"""Records that are older than the retention are deleted, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.errors import UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.message_retention import delete_older_records


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "events.log") as opened:
        opened.create_topic("events", 2)
        yield opened


def append(log: LocalLog, partition: int, *timestamps_ms: int) -> None:
    log.append("events", partition, [NewRecord(None, b"v", (), timestamp_ms) for timestamp_ms in timestamps_ms])


def starts(log: LocalLog) -> dict[int, int]:
    return {partition: offsets.start_offset for partition, offsets in log.offsets("events").items()}


@pytest.mark.parametrize(
    ("before_ms", "below", "expected", "deleted"),
    [
        (100, None, {0: 0, 1: 0}, 0),
        (101, None, {0: 1, 1: 0}, 1),
        (250, None, {0: 2, 1: 1}, 3),
        (1_000, None, {0: 3, 1: 1}, 4),
        (1_000, {0: 2, 1: 9}, {0: 2, 1: 1}, 3),
        (1_000, {1: 1}, {0: 0, 1: 1}, 1),
        (1_000, {}, {0: 0, 1: 0}, 0),
    ],
)
def test_what_is_deleted(
    log: LocalLog, before_ms: int, below: dict[int, int] | None, expected: dict[int, int], deleted: int
) -> None:
    append(log, 0, 100, 200, 300)
    append(log, 1, 150)
    assert delete_older_records(log, "events", before_ms, below) == deleted
    assert starts(log) == expected


def test_a_young_record_keeps_what_follows_it(log: LocalLog) -> None:
    append(log, 0, 100, 300, 200, 400)
    assert delete_older_records(log, "events", 250) == 1
    assert starts(log)[0] == 1


def test_many_records_go_in_steps(log: LocalLog) -> None:
    append(log, 0, *[100] * 25_000)
    append(log, 0, 300)
    assert delete_older_records(log, "events", 200) == 25_000
    assert [record.offset for record in log.read("events", 0, 0, 30_000)] == [25_000]
    assert delete_older_records(log, "events", 200) == 0


def test_an_unknown_topic(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError):
        delete_older_records(log, "absent", 0)
