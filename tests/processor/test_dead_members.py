"""Members that are killed or stand still, with real processes: their records come back to the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from sharegroup.core.record_state import Cause
from sharegroup.errors import LogUnavailableError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.support.site import Site

pytestmark = pytest.mark.slow

_HOLD = """
import sys, time
from sharegroup.client.share_consumer import ShareConsumer
consumer = ShareConsumer({"log.path": sys.argv[1], "group.id": sys.argv[2], "share.acknowledgement.mode": "explicit"})
consumer.subscribe([sys.argv[3]])
count = 0
while not count:
    count = len(consumer.poll(1.0))
print("held", flush=True)
{work}
"""
_SLEEP = "time.sleep(600)"
_KEEP_THE_INTERPRETER = "import ctypes\nwhile True: ctypes.PyDLL(None).sleep(6), time.sleep(0.2)"
"""A thread that waits for the interpreter may have the log locked, so other threads run in between."""


class NewSite(Protocol):
    def __call__(self) -> Site: ...


@contextmanager
def holding_member(site: Site, group_id: str, topic: str, work: str = _SLEEP) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has polled records and acknowledges none."""
    command = [sys.executable, "-c", _HOLD.replace("{work}", work), str(site.log_path), group_id, topic]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def stand_still(site: Site, process: subprocess.Popen[str]) -> None:
    """Stop a process, but not while it writes to the log: a file that it has locked stays locked."""
    topic = site.new_topic()
    with LocalLog(site.log_path, busy_timeout_ms=500) as log:

        def is_writable() -> bool:
            process.send_signal(signal.SIGSTOP)
            # Until it has stopped it may still lock the file.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            try:
                log.append(topic, 0, [NewRecord(None, b"")])
            except LogUnavailableError:
                process.send_signal(signal.SIGCONT)
                return False
            return True

        site.until(is_writable, "the process stands still and has nothing locked")


def causes(site: Site, group_id: str) -> set[Cause]:
    return {entry.cause for row in site.rows(group_id) for entry in row.transitions}


def test_the_records_of_a_killed_member_come_back_at_once(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic, group_id = site.new_topic(record_count=10), site.new_group()
        with holding_member(site, group_id, topic) as member:
            member.send_signal(signal.SIGKILL)
            site.until(lambda: Cause.MEMBER_ENDED in causes(site, group_id), "its records are back")
        with site.consumer(group_id, topic) as consumer:
            assert len(site.poll(consumer, 10)) == 10
        assert not causes(site, group_id) & {Cause.LOCK_TIMEOUT, Cause.MEMBER_SILENT}


def test_a_member_that_died_while_no_processor_ran_is_noticed_by_the_next(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic, group_id = site.new_topic(record_count=10), site.new_group()
        with holding_member(site, group_id, topic) as member:
            site.stop()
            member.kill()
            member.wait()
            site.start()
            site.until(lambda: Cause.MEMBER_ENDED in causes(site, group_id), "its records are back")


def test_a_member_that_stands_still_keeps_its_records_until_its_locks_end(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group(share_member_silence_ms="1000", share_record_lock_duration_ms="4000")
        with holding_member(site, group_id, topic) as member:
            stand_still(site, member)
            site.until(lambda: Cause.LOCK_TIMEOUT in causes(site, group_id), "its locks end by their time")
            assert not causes(site, group_id) & {Cause.MEMBER_SILENT, Cause.MEMBER_ENDED}


def test_an_application_with_a_busy_interpreter_keeps_its_records_until_its_locks_end(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group(share_member_silence_ms="1000", share_record_lock_duration_ms="4000")
        with holding_member(site, group_id, topic, _KEEP_THE_INTERPRETER):
            site.until(lambda: Cause.LOCK_TIMEOUT in causes(site, group_id), "its locks end by their time")
            assert Cause.MEMBER_SILENT not in causes(site, group_id)
