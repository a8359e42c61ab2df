"""Topics of the local log honour retention.ms, retention.bytes and max.message.bytes, and refuse unknown keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ConfigurationError, RecordTooLargeError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.message_retention import delete_expired_records

MINUTE_MS = 60_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def log(path: Path) -> Iterator[LocalLog]:
    with LocalLog(path) as opened:
        yield opened


def append(log: LocalLog, *ages_ms: int, size: int = 10, partition: int = 0) -> None:
    now_ms = log.now_ms()
    log.append("events", partition, [NewRecord(None, b"v" * size, (), now_ms - age_ms) for age_ms in ages_ms])


def offsets(log: LocalLog, partition: int = 0) -> list[int]:
    return [record.offset for record in log.read("events", partition, 0, 1_000_000)]


def test_records_past_the_retention_time_go_with_the_next_append(path: Path, log: LocalLog) -> None:
    log.create_topic("events", 2, {"retention.ms": str(10 * MINUTE_MS), "cleanup.policy": "delete"})
    append(log, 60 * MINUTE_MS, 30 * MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, 0)
    append(log, 60 * MINUTE_MS, partition=1)
    # As in Kafka, a young record keeps what follows it.
    assert offsets(log) == [2, 3, 4]
    assert offsets(log, 1) == []
    bounds = log.offsets("events")[0]
    assert (bounds.start_offset, bounds.end_offset) == (2, 5)
    # The same process checks again after a minute; another one checks with its first append.
    append(log, 60 * MINUTE_MS)
    assert offsets(log) == [2, 3, 4, 5]


def test_a_short_retention_is_kept_to_at_once(log: LocalLog) -> None:
    log.create_topic("events", 1, {"retention.ms": "0"})
    for _ in range(3):
        append(log, 1)
        assert offsets(log) == []


def test_as_many_bytes_stay_as_are_asked_for(log: LocalLog) -> None:
    log.create_topic("events", 1, {"retention.bytes": "1000"})
    for _ in range(50):
        append(log, 0, size=100)
    # At least 1,000 bytes stay, and one record more than that at most, with what came since the last check.
    assert 10 <= len(offsets(log)) <= 12
    assert offsets(log)[-1] == 49
    append(log, 0, size=5_000)
    append(log, 0, size=50)
    assert len(offsets(log)) <= 3


def test_without_retention_everything_stays(log: LocalLog) -> None:
    log.create_topic("events", 1, {"retention.ms": "-1", "retention.bytes": "-1"})
    append(log, 10**12, 0)
    append(log, 10**12, 0)
    assert offsets(log) == [0, 1, 2, 3]


def test_the_maintenance_deletes_what_nobody_appends_to(path: Path, log: LocalLog, tmp_path: Path) -> None:
    log.create_topic("events", 1, {"retention.ms": str(10 * MINUTE_MS)})
    append(log, 0)
    append(log, *[20 * MINUTE_MS] * 5)
    log.delete_records("events", 0, 1)
    config = ProcessorConfig(log_path=path, state_table_path=str(tmp_path), checkpoint_path=str(tmp_path))
    assert delete_expired_records(config, is_dry_run=True) == 5
    assert len(offsets(log)) == 5
    assert delete_expired_records(config) == 5
    assert offsets(log) == []


def test_a_record_larger_than_the_topic_takes(log: LocalLog) -> None:
    log.create_topic("events", 1, {"max.message.bytes": "100"})
    append(log, 0, size=100)
    with pytest.raises(RecordTooLargeError, match="the most is 100"):
        append(log, 0, size=101)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"retention.hours": "1"}, r"Unknown configuration retention\.hours of topic events"),
        ({"retention.ms": "soon"}, r"retention\.ms of topic events is 'soon'"),
        ({"retention.ms": "-2"}, "a whole number from -1 on"),
        ({"retention.bytes": "1e3"}, r"retention\.bytes"),
        ({"cleanup.policy": "compact"}, "Use delete"),
        ({"max.message.bytes": "-1"}, r"max\.message\.bytes"),
    ],
    ids=str,
)
def test_what_is_refused(log: LocalLog, config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        log.create_topic("events", 1, config)
    assert log.topics() == []
