"""The helper process of a log in Kafka: when it is there, and what it has of this process. No broker is needed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.helper_process import KafkaMemberHelper
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.life_signs import LifeSigns
from tests.support import processes
from tests.support.eventually import DEADLINE_S, eventually

pytestmark = pytest.mark.slow

PASSWORD = "a-very-secret-password"
NOWHERE = KafkaConfig(bootstrap_servers="127.0.0.1:9")
SIGNS = LifeSigns("requests", 0, b"g", b"alive", b"ended")


@pytest.fixture
def log() -> Iterator[KafkaLog]:
    """A log of a cluster that is away."""
    config = KafkaConfig(
        bootstrap_servers="127.0.0.1:9",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="anna",
        sasl_password=SecretStr(PASSWORD),
    )
    with KafkaLog(config) as log:
        yield log
    eventually(lambda: not helpers(), "no helper is left")


def helpers(pid: int | None = None) -> list[int]:
    return processes.children(os.getpid() if pid is None else pid, "helper_program")


def the_helper() -> int:
    """The one helper of this process, once it has read its pipe and imported the C client."""
    (helper,) = helpers()
    eventually(lambda: "confluent_kafka" in Path(f"/proc/{helper}/maps").read_text(), "the helper is ready")
    return helper


def test_one_process_helps_all_members_while_there_are_some(log: KafkaLog) -> None:
    anna, ben = (helper_of(log) for _ in range(2))
    anna.note(holds_records=False, has_sent=True)
    assert not helpers(), "nobody holds records"
    anna.note(holds_records=True, has_sent=False)
    ben.note(holds_records=True, has_sent=False)
    helper = the_helper()
    anna.close()
    anna.close()
    assert processes.is_running(helper)
    ben.close()
    eventually(lambda: not processes.is_running(helper), "the helper ends with the last member")
    with closing(helper_of(log)) as cleo:
        cleo.note(holds_records=True, has_sent=False)
        assert the_helper() != helper


def helper_of(log: KafkaLog) -> KafkaMemberHelper:
    helper = log.help_member(SIGNS)
    assert helper is not None
    return helper


def test_it_has_nothing_of_this_process_but_the_pipe(log: KafkaLog) -> None:
    with closing(helper_of(log)) as member:
        member.note(holds_records=True, has_sent=False)
        helper = the_helper()
        assert PASSWORD not in processes.command_line(helper)
        assert PASSWORD not in Path(f"/proc/{helper}/environ").read_text()
        pipes = [file for file in processes.open_files(helper) if not file.startswith("anon_inode")]
        assert [file.partition(":")[0] for file in pipes] == ["/dev/null", "/dev/null", "pipe"]
        assert processes.session_of(helper) == helper


def test_signals_that_end_this_process_do_not_end_it_before(log: KafkaLog) -> None:
    with closing(helper_of(log)) as member:
        member.note(holds_records=True, has_sent=False)
        (ignored,) = re.findall(r"^SigIgn:\s(\w+)$", Path(f"/proc/{the_helper()}/status").read_text(), re.MULTILINE)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            assert int(ignored, 16) >> (number - 1) & 1


def test_one_that_is_killed_is_replaced(log: KafkaLog, caplog: pytest.LogCaptureFixture) -> None:
    with closing(helper_of(log)) as member:
        member.note(holds_records=True, has_sent=False)
        killed = the_helper()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in helpers() and helpers(), "there is another one")
        the_helper()
    assert "event=member_helper_killed signal=9" in caplog.text


_FORK = """
import sys
from pathlib import Path
from tests.logs.test_helper_process import use_in_fork
use_in_fork(Path(sys.argv[1]))
"""


def test_a_fork_is_no_member_and_does_not_hold_the_pipe_open(tmp_path: Path) -> None:
    # A process of its own: libraries of other tests may have threads here, which no fork survives.
    program = [sys.executable, "-c", _FORK, str(tmp_path / "seen")]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 0, ended.stderr
    shared, own = json.loads((tmp_path / "seen").read_text())
    assert shared == [], "the pipes of the helper are closed"
    assert len(own) == 1, "it has a helper of its own"


def use_in_fork(seen: Path) -> None:
    """Use a member in a fork: the parent's one does nothing, and a new one has another helper."""
    with KafkaLog(NOWHERE) as log, closing(helper_of(log)) as member:
        member.note(holds_records=True, has_sent=False)
        helper = the_helper()
        child = multiprocessing.get_context("fork").Process(target=_use, args=(member, helper, seen))
        child.start()
        child.join()
        if child.exitcode or helpers() != [helper]:
            sys.exit(f"the fork ended with {child.exitcode}, the helper {helper} is one of {helpers()}")


def _use(member: KafkaMemberHelper, helper: int, seen: Path) -> None:
    pipes = {file for file in processes.open_files(helper) if file.startswith("pipe")}
    shared = [file for file in processes.open_files(os.getpid()) if file in pipes]
    member.note(holds_records=False, has_sent=True)
    member.close()
    with KafkaLog(NOWHERE) as log, closing(helper_of(log)) as own:
        own.note(holds_records=True, has_sent=False)
        seen.write_text(json.dumps([shared, helpers()]))


_WITHOUT = """
import os, sys, threading
from sharegroup.event_log import log_events
from sharegroup.logs.helper_process import KafkaMemberHelper
from sharegroup.logs.life_signs import LifeSigns
from tests.support import processes
from tests.support.eventually import eventually
log_events()
change, settings = {change}, {settings}
for _ in range(2):
    member = KafkaMemberHelper(LifeSigns("requests", 0, b"g", b"alive", b"ended"), settings)
    member.note(holds_records=True, has_sent=False)
    member.note(holds_records=True, has_sent=True)
    eventually(lambda: not processes.children(os.getpid(), "helper_program"), "no helper is left")
    eventually(lambda: all(thread.name != "share-group-helper" for thread in threading.enumerate()), "that was seen")
    member.close()
"""


@pytest.mark.parametrize(
    ("change", "settings", "reason"),
    [
        ("setattr(sys, 'executable', '')", "{}", "not started by a Python interpreter"),
        ("setattr(sys, 'frozen', True)", "{}", "not started by a Python interpreter"),
        ("setattr(sys, 'executable', '/nowhere/python')", "{}", "/nowhere/python"),
        ("setattr(sys, 'executable', '/bin/false')", "{}", "/bin/false ended with status 1"),
        ("None", "{'oauth_cb': print}", "cannot be passed to another process"),
    ],
)
def test_without_a_helper_one_line_says_so(change: str, settings: str, reason: str) -> None:
    program = _WITHOUT.format(change=change, settings=settings)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert "WARNING" in line
    assert "event=member_helper_missing" in line
    assert reason in line
