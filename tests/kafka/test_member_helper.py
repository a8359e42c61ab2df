"""Members with a helper process on a real broker: busy ones keep their records, those of ended ones come back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from sharegroup.core.record_state import Cause
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request
from tests.kafka.access import logged_in
from tests.kafka.site import KafkaSite
from tests.support import leash, processes
from tests.support.kafka_broker import USERS, KafkaBroker

pytestmark = pytest.mark.slow

_MEMBER = """
import ctypes, json, os, sys, time
from sharegroup import AcknowledgeType, ShareConsumer
{before}
config, topic = json.loads(sys.stdin.readline())
consumer = ShareConsumer(config | {{"share.acknowledgement.mode": "explicit"}})
consumer.subscribe([topic])
while not (messages := consumer.poll(1.0)):
    pass
{work}
"""
_HOLD = 'print("held", flush=True)\ntime.sleep(600)'
_BE_BUSY = """
# The call keeps the interpreter: no other thread of the process runs meanwhile.
ctypes.PyDLL(None).sleep(9)
for message in messages:
    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
print([error and error.name() for error in consumer.commit_sync(60).values()], flush=True)
consumer.close()
"""
_FORK = """
fork = os.fork()
if not fork:
    time.sleep(600)
print("held", flush=True)
time.sleep(600)
"""
_WITHOUT_HELPER = 'sys.executable = ""'
LONG_LOCK = {"share_record_lock_duration_ms": "60000"}


@contextmanager
def member_of(
    site: KafkaSite,
    group_id: str,
    topic: str,
    work: str = _HOLD,
    before: str = "",
    login: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a process with a member that polls records, and then does this work.

    Args:
        before: what it does before it has a member.
        login: its configuration of the cluster, where that is not the site's.
    """
    command = [sys.executable, "-c", _MEMBER.format(work=work, before=before)]
    process = leash.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    config = {**site.settings.channel_properties, **(login or {}), "group.id": group_id}
    process.stdin.write(json.dumps([config, topic]) + "\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        leash.end(process)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def helper_of(process: subprocess.Popen[str]) -> int:
    (helper,) = processes.children(process.pid, "helper_program")
    return helper


def causes(site: KafkaSite, group_id: str) -> set[Cause]:
    return {entry.cause for row in site.rows(group_id) for entry in row.transitions}


def await_return(site: KafkaSite, group_id: str, cause: Cause) -> None:
    """Wait until the records are back, by this cause alone."""
    site.until(lambda: causes(site, group_id) - {Cause.ACQUIRE}, "the records are back")
    assert causes(site, group_id) == {Cause.ACQUIRE, cause}


def sign_count(site: KafkaSite, group_id: str) -> int:
    """The number of signs of life in the request log."""
    topic = site.settings.processor.request_topic_name
    envelopes = [
        decoded_request(record.value)
        for partition, offsets in site.log.offsets(topic).items()
        for record in site.log.read(topic, partition, offsets.start_offset, offsets.end_offset)
    ]
    return sum(envelope.group_id == group_id and envelope.api_key == ApiKey.MEMBER_ALIVE for envelope in envelopes)


@pytest.mark.long("an application that keeps its interpreter busy for 9 s")
def test_an_application_with_a_busy_interpreter_keeps_its_records(site: KafkaSite) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group()
    with member_of(site, group_id, topic, _BE_BUSY) as member:
        assert line_of(member) == "[None]"
    assert causes(site, group_id) == {Cause.ACQUIRE, Cause.ACCEPT}
    assert sign_count(site, group_id) > 0


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["process", "group"])
def test_the_records_of_a_killed_process_come_back_at_once(
    site: KafkaSite, kill: Callable[[int, signal.Signals], None]
) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group(**LONG_LOCK)
    with member_of(site, group_id, topic) as member:
        assert line_of(member) == "held"
        helper = helper_of(member)
        kill(member.pid, signal.SIGKILL)
        assert line_of(member) == "", "the helper has not the output of the application"
        await_return(site, group_id, Cause.MEMBER_ENDED)
        site.until(lambda: not processes.is_running(helper), "the helper has ended")
    with site.consumer(group_id, topic) as consumer:
        assert len(site.poll(consumer, 1)) == 1


def test_a_helper_logs_in_as_its_member_does(site: KafkaSite, broker: KafkaBroker) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group(**LONG_LOCK)
    login = logged_in(broker, "admin", USERS["admin"]).client_properties()
    with member_of(site, group_id, topic, login=login) as member:
        assert line_of(member) == "held"
        member.kill()
        await_return(site, group_id, Cause.MEMBER_ENDED)


def test_the_records_of_a_process_that_ends_without_a_close_come_back_at_once(site: KafkaSite) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group(**LONG_LOCK)
    with member_of(site, group_id, topic, "pass") as member:
        await_return(site, group_id, Cause.MEMBER_ENDED)
        assert member.wait() == 0


def test_a_fork_does_not_hide_the_end_of_its_parent(site: KafkaSite) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group(**LONG_LOCK)
    with member_of(site, group_id, topic, _FORK) as member:
        assert line_of(member) == "held"
        (fork,) = processes.children(member.pid, "from sharegroup import")
        member.kill()
        await_return(site, group_id, Cause.MEMBER_ENDED)
        assert processes.is_running(fork)


@pytest.mark.long("a silence of 5 s")
def test_the_records_of_a_stopped_process_come_back_by_its_silence(site: KafkaSite) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group(**LONG_LOCK)
    with member_of(site, group_id, topic) as member:
        assert line_of(member) == "held"
        site.until(lambda: sign_count(site, group_id), "there is a sign of life")
        member.send_signal(signal.SIGSTOP)
        await_return(site, group_id, Cause.MEMBER_SILENT)


@pytest.mark.long("locks of 15 s, three times the time of a silence")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_a_helper_locks_end_by_time(site: KafkaSite, number: signal.Signals) -> None:
    topic, group_id = site.new_topic(record_count=1), site.new_group(share_record_lock_duration_ms="15000")
    with member_of(site, group_id, topic, before=_WITHOUT_HELPER) as member:
        assert line_of(member) == "held"
        member.send_signal(number)
        await_return(site, group_id, Cause.LOCK_TIMEOUT)
