"""A writer that is stopped while it has the log locked: all others wait, and the error says for whom."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import LogLockedError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_file import LocalFile
from sharegroup.logs.port import NewRecord
from sharegroup.logs.write_queue import LockHolder, lock_holder
from sharegroup.processor.output import LOCKED_ATTEMPTS, LogPublisher
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import request
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

SPAWN = multiprocessing.get_context("spawn")
CONFIG = ProcessorConfig(state_table_path="state", checkpoint_path="checkpoint")
BUSY_MS = 200


def _stop_in_a_transaction(path: Path, done: Connection) -> None:
    file = LocalFile(path, busy_timeout_ms=10_000)
    with file.transaction():
        os.kill(os.getpid(), signal.SIGSTOP)
    file.close()
    done.send("done")


class Site:
    """A log that a stopped process has locked."""

    def __init__(self, path: Path) -> None:
        self.log = LocalLog(path, busy_timeout_ms=BUSY_MS)
        self.description = self.log.create_topic(CONFIG.request_topic_name, 1)
        self._done, sender = SPAWN.Pipe(duplex=False)
        self.process: BaseProcess = SPAWN.Process(target=_stop_in_a_transaction, args=(path, sender))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def resume(self) -> None:
        """Let the process go on, and wait until it has given the lock back."""
        os.kill(self.pid, signal.SIGCONT)
        self._done.recv()

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.log.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "events.log")
    yield site
    site.close()


def test_the_error_names_the_process_and_says_that_it_is_stopped(site: Site) -> None:
    with pytest.raises(LogLockedError, match=f"locked by process {site.pid}, which is stopped") as refusal:
        site.log.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")])
    assert f"kill -CONT {site.pid}" in str(refusal.value)
    site.resume()
    assert site.log.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")]) == 0


def _descriptors(path: Path) -> int:
    """Return the number of descriptors of a file that this process has open."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        # That of the listing is closed by now, and threads close theirs.
        with suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{number}") == str(path)
    return count


def _waiting_threads() -> int:
    return sum(thread.name == "local-log-queue" for thread in threading.enumerate())


def test_tries_that_time_out_keep_one_thread_and_one_descriptor(site: Site, tmp_path: Path) -> None:
    lock = tmp_path / "events.log-lock"
    before = _descriptors(lock)
    for _ in range(4):
        with pytest.raises(LogLockedError):
            site.log.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")])
    assert (_descriptors(lock), _waiting_threads()) == (before, 1)
    site.resume()
    assert site.log.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")]) == 0
    eventually(lambda: _waiting_threads() == 0, "the waiting thread has ended")
    assert _descriptors(lock) == before


def test_a_try_that_timed_out_keeps_nobody_else_waiting(site: Site, tmp_path: Path) -> None:
    with pytest.raises(LogLockedError):
        site.log.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")])
    site.resume()
    with LocalLog(tmp_path / "events.log", busy_timeout_ms=10_000) as other:
        for offset in range(3):
            assert other.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")]) == 2 * offset
            assert site.log.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")]) == 2 * offset + 1


def test_a_log_that_is_closed_after_a_try_that_timed_out_keeps_nobody_waiting(site: Site, tmp_path: Path) -> None:
    lock = tmp_path / "events.log-lock"
    with pytest.raises(LogLockedError):
        site.log.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")])
    site.log.close()
    site.resume()
    eventually(lambda: (_waiting_threads(), _descriptors(lock)) == (0, 0), "thread and descriptor are gone")
    with LocalLog(tmp_path / "events.log", busy_timeout_ms=10_000) as other:
        assert other.append(CONFIG.request_topic_name, 0, [NewRecord(None, b"x")]) == 0


class Resuming(logging.Handler):
    """Lets the process go on once the publisher has said that it tries again."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site

    def emit(self, record: logging.LogRecord) -> None:
        if "log_locked" in record.getMessage():
            self._site.resume()


@pytest.fixture
def publisher(site: Site) -> LogPublisher:
    return LogPublisher(site.log, CONFIG, site.description.topic_id, leader_epoch=1)


def test_the_processor_publishes_once_the_process_goes_on(site: Site, publisher: LogPublisher) -> None:
    resuming = Resuming(site)
    logging.getLogger("sharegroup.processor").addHandler(resuming)
    try:
        publisher.send([request(ApiKey.TICK, "g", Tick())])
    finally:
        logging.getLogger("sharegroup.processor").removeHandler(resuming)
    assert site.log.offsets(CONFIG.request_topic_name)[0].end_offset == 1


def test_the_processor_gives_up_in_the_end(
    site: Site, publisher: LogPublisher, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LogLockedError):
        publisher.send([request(ApiKey.TICK, "g", Tick())])
    assert len([record for record in caplog.records if "log_locked" in record.getMessage()]) == LOCKED_ATTEMPTS - 1


def test_a_file_that_nobody_has_locked_has_no_holder(tmp_path: Path) -> None:
    (tmp_path / "free").touch()
    assert lock_holder(tmp_path / "free") is None
    assert lock_holder(tmp_path / "missing") is None


def test_who_waits_for_a_lock_does_not_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    status = path.stat()
    key = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    proc = tmp_path / "proc"
    (proc / "77").mkdir(parents=True)
    (proc / "77" / "stat").write_text("77 (a ) name) S 1 77")
    waiting = f"1: -> FLOCK  ADVISORY  WRITE 66 {key} 0 EOF\n"
    (proc / "locks").write_text(waiting)
    assert lock_holder(path, proc) is None
    (proc / "locks").write_text(f"{waiting}2: FLOCK  ADVISORY  WRITE 77 {key} 0 EOF\n")
    assert lock_holder(path, proc) == LockHolder(77, is_stopped=False)
