"""`sharegroup top`: in a terminal, and without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.state.writer import StateTableWriter
from tests.cli.conftest import CommandLine, rows
from tests.support.eventually import DEADLINE_S, eventually

TITLES = ["GROUP", "STATE", "#MEM", "LAG", "IN-FLIGHT", "LOCKED", "LOCK-ENDS", "ACCEPTED/S"]


class Terminal:
    """A terminal with a command in it; what the command writes is read by a thread.

    Args:
        master: the terminal's own side.
        process: the command.
    """

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._master = master
        self._written = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def shows(self, pattern: str) -> bool:
        """Return True if it was ever written; sequences that move or colour are left out."""
        text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", self._written).decode()
        return re.search(pattern, text) is not None

    def has_written(self, data: bytes) -> bool:
        return data in self._written

    def is_echoing(self) -> bool:
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def end(self) -> int:
        """The exit code."""
        return self.process.wait(timeout=DEADLINE_S)

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 4096):
                self._written += data
        except OSError:
            # The other side is closed.
            return


@contextmanager
def terminal(cli: CommandLine, *arguments: str, columns: int = 80) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", "from sharegroup.programs.main import main; main()", *arguments],
        cwd=cli.folder,
        env={**os.environ, "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(master)


@pytest.fixture
def idle_group(cli: CommandLine, admin: AdminClient) -> None:
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})


@pytest.mark.slow
@pytest.mark.usefixtures("idle_group")
def test_it_is_redrawn_until_q_is_pressed(cli: CommandLine, admin: AdminClient) -> None:
    with terminal(cli, "top", "--interval", "0.2") as top:
        eventually(lambda: top.shows(r"GROUP +STATE +#MEM +LAG +IN-FLIGHT +LOCKED +LOCK-ENDS +ACCEPTED/S"), "titles")
        eventually(lambda: top.shows(r"packers +Empty +0 +- +- +0 +- +0\.0"), "the group")
        assert not top.is_echoing()
        admin.alter_group_config("porters", {"share.auto.offset.reset": "earliest"})
        eventually(lambda: top.shows(r"porters +Empty"), "the next group, too")
        top.press(b"xq")
        assert top.end() == 0
        assert top.has_written(b"\x1b[?1049l"), "the screen is as before"
        assert top.is_echoing(), "the keyboard is as before"


@pytest.mark.slow
@pytest.mark.usefixtures("idle_group")
@pytest.mark.parametrize(("signal_number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it(cli: CommandLine, signal_number: int, exit_code: int) -> None:
    with terminal(cli, "top") as top:
        eventually(lambda: top.shows(r"packers +Empty"), "the group")
        top.process.send_signal(signal_number)
        assert top.end() == exit_code
        assert top.has_written(b"\x1b[?1049l"), "the screen is as before"
        assert top.is_echoing(), "the keyboard is as before"


def test_figures_of_a_group_at_work(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(None, b"v")] * 20)
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": "packers",
        "max.poll.records": 20,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as member:
        member.subscribe(["orders"])
        for message in member.poll(DEADLINE_S):
            member.acknowledge(message)
        member.commit_sync()
        # All that there is: what a member fetches ahead goes back when it does not poll.
        log.append("orders", 0, [NewRecord(None, b"v")] * 20)
        assert len(eventually(lambda: member.poll(DEADLINE_S), "the other records")) == 20
        (group,) = cli.json("top")
        titles, shown = rows(cli.out("top", "--once"))
    # The rate is that of the last seconds, which a test cannot know.
    assert group.pop("accepted_per_s") >= 0
    assert group == {
        "group_id": "packers",
        "type": "share",
        "protocol": "share",
        "state": "Stable",
        "member_count": 1,
        "partition_count": 1,
        "lag": 20,
        "in_flight_count": 20,
        "locked_count": 20,
        "resolving_count": 0,
    }
    assert titles == TITLES
    assert shown[:6] == ["packers", "Stable", "1", "20", "20", "20"]
    assert shown[6] == "in"


def test_without_a_terminal_it_shows_one_view(cli: CommandLine, log: LocalLog) -> None:
    StateTableWriter.open(str(cli.folder / "state"), {})
    assert cli.out("top").split() == TITLES


def test_a_missing_state_table_is_an_error(cli: CommandLine, log: LocalLog) -> None:
    assert f"There is no state table at {cli.folder / 'state'}." in cli.error("top")
