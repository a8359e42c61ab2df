"""Who may use a checkpoint folder. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import CheckpointInUseError
from sharegroup.logs.local import LocalLog
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request
from sharegroup.spark import checkpoint_lock
from sharegroup.spark.checkpoint_lock import CheckpointLock
from tests.support.eventually import eventually

REQUESTS = "__share_requests"


@pytest.fixture
def config(tmp_path: Path) -> ProcessorConfig:
    return ProcessorConfig(
        log_path=tmp_path / "log.db",
        state_table_path=str(tmp_path / "state"),
        checkpoint_path=str(tmp_path / "new" / "checkpoint"),
    )


@pytest.fixture
def log(config: ProcessorConfig) -> Iterator[LocalLog]:
    with LocalLog(config.log_path) as log:
        log.create_topic(REQUESTS, 1)
        yield log


def locked(config: ProcessorConfig) -> CheckpointLock:
    return CheckpointLock(Path(config.checkpoint_path))


def test_a_free_checkpoint_is_taken_without_a_word(config: ProcessorConfig, log: LocalLog) -> None:
    locked(config).take_over(log, config, threading.Event())
    assert log.offsets(REQUESTS)[0].end_offset == 0


def test_the_younger_waits_until_the_older_has_ended_and_gives_it_cause_to(
    config: ProcessorConfig, log: LocalLog
) -> None:
    older, younger, other = locked(config), locked(config), locked(config)
    assert older.try_acquire()
    waiting = threading.Thread(target=younger.take_over, args=(log, config, threading.Event()))
    waiting.start()
    eventually(lambda: log.offsets(REQUESTS)[0].end_offset, "there is something to commit for the older")
    assert [decoded_request(record.value).api_key for record in log.read(REQUESTS, 0, 0, 1)] == [ApiKey.TICK]
    assert waiting.is_alive()
    older.release()
    waiting.join(30)
    assert not waiting.is_alive()
    assert not other.try_acquire()
    younger.release()
    assert other.try_acquire()


def test_an_older_one_that_does_not_end_is_named(
    config: ProcessorConfig, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_lock, "_TIMEOUT_S", 0)
    older = locked(config)
    assert older.try_acquire()
    with pytest.raises(CheckpointInUseError, match="in use by process") as caught:
        locked(config).take_over(log, config, threading.Event())
    assert config.checkpoint_path in caught.value.message


def test_the_wait_can_be_ended(config: ProcessorConfig, log: LocalLog) -> None:
    older, stop = locked(config), threading.Event()
    assert older.try_acquire()
    stop.set()
    with pytest.raises(CheckpointInUseError):
        locked(config).take_over(log, config, stop)
