"""Locks that end with a member's process, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sharegroup.errors import LogUnavailableError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.member_life import MemberLocks
from tests.support.eventually import eventually

_HOLD_AND_FORK = """
import os, sys, time
from sharegroup.logs.local import LocalLog
log = LocalLog(sys.argv[1])
lock = log.lock_member("orders", sys.argv[2])
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""

_HOLD = """
import sys, time
from sharegroup.logs.local import LocalLog
lock = LocalLog(sys.argv[1]).lock_member("orders", sys.argv[2])
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "events.log") as log:
        yield log


@pytest.fixture
def locks(log: LocalLog) -> Iterator[MemberLocks]:
    locks = log.member_locks()
    yield locks
    locks.close()


def member_process(log: LocalLog, member_id: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HOLD, str(log.path), member_id]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def ended(locks: MemberLocks) -> list[tuple[str, str]]:
    return sorted((member.group_id, member.member_id) for member in locks.ended())


@pytest.mark.slow
def test_a_killed_process_is_seen_at_once_and_others_are_not(log: LocalLog, locks: MemberLocks) -> None:
    processes = [member_process(log, member_id) for member_id in ("anna", "ben")]
    try:
        assert ended(locks) == []
        locks.wait(0)
        processes[0].send_signal(signal.SIGKILL)

        def is_seen() -> bool:
            locks.wait(60_000)
            return ended(locks) == [("orders", "anna")]

        eventually(is_seen, "the end of anna is seen")
        for member in locks.ended():
            locks.forget(member)
        assert ended(locks) == []
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_fork_does_not_hold_the_lock_of_its_parent(log: LocalLog, locks: MemberLocks) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _HOLD_AND_FORK, str(log.path), "anna"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    fork = int(process.stdout.readline())
    try:
        assert ended(locks) == []
        process.kill()
        process.wait()
        eventually(lambda: ended(locks) == [("orders", "anna")], "the end of anna is seen")
        os.kill(fork, 0)
    finally:
        process.kill()
        process.wait()
        os.kill(fork, signal.SIGKILL)


@pytest.mark.slow
def test_a_member_that_ended_while_nobody_checked_is_seen_later(log: LocalLog) -> None:
    process = member_process(log, "anna")
    process.kill()
    process.wait()
    locks = log.member_locks()
    assert ended(locks) == [("orders", "anna")]
    locks.close()


def test_a_lock_that_was_given_back_leaves_nothing(log: LocalLog, locks: MemberLocks) -> None:
    lock = log.lock_member("orders", "anna")
    assert ended(locks) == []
    lock.close()
    lock.close()
    assert ended(locks) == []
    assert list(log.path.with_name(log.path.name + ".members").iterdir()) == []


def test_any_member_id_can_be_held(log: LocalLog, locks: MemberLocks) -> None:
    for member_id in ("../../etc/passwd", "", "ä" * 300):
        with_lock = log.lock_member("orders", member_id)
        assert ended(locks) == []
        with_lock.close()


def test_a_file_that_is_no_members_is_passed_over(log: LocalLog, locks: MemberLocks) -> None:
    folder = log.path.with_name(log.path.name + ".members")
    (folder / "strange").write_text("not JSON")
    (folder / "strange2").write_text('{"group_id": "orders"}')
    (folder / "folder").mkdir()
    assert ended(locks) == []


def test_threads_that_close_a_lock_at_once_close_it_once(log: LocalLog, locks: MemberLocks) -> None:
    for number in range(200):
        lock = log.lock_member("orders", f"member-{number}")
        with ThreadPoolExecutor(4) as threads:
            for closed in [threads.submit(lock.close) for _ in range(4)]:
                closed.result()
    assert ended(locks) == []


def test_a_lock_that_cannot_be_taken_leaves_nothing(log: LocalLog) -> None:
    folder = log.path.with_name(log.path.name + ".members")
    (folder / "anna" / "inside").mkdir(parents=True)
    descriptors = open_descriptors()
    with pytest.raises(LogUnavailableError, match="anna"):
        log.lock_member("orders", "anna")
    assert open_descriptors() == descriptors
    assert [path.name for path in folder.iterdir()] == ["anna"]


def open_descriptors() -> dict[str, str]:
    """Descriptors of this process, and what they are of, without the one that listing them takes."""
    return {path.name: str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()}
