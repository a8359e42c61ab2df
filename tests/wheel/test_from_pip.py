"""The wheel with its dependencies, as pip installs them, on a machine without jars and settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from sharegroup.exit_code import ExitCode
from tests.platforms.page import versions_of
from tests.support import leash
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.wheel import build_wheel, install_with_dependencies
from tests.test_documents import COMMANDS, EXAMPLES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.pip,
    pytest.mark.long("installs the wheel with its dependencies, and retrieves jars"),
]

NO_NETWORK = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
"""Nobody listens there."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def installed(wheel: Path, folder: Path, *others: str) -> Path:
    """Install the wheel with Spark and others into a new environment; return the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install_with_dependencies(folder / "bin" / "python", wheel, "spark", *others)
    return folder / "bin"


@pytest.fixture(scope="module")
def programs(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, record_testsuite_property: Callable[[str, object], None]
) -> Path:
    """The folder of the programs of an environment with the wheel and the newest releases that pip finds."""
    folder = installed(wheel, tmp_path_factory.mktemp("pip") / "environment")
    for name, value in asdict(versions_of(folder / "python")).items():
        record_testsuite_property(name, value)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user, with the cache of all tests here."""
    return tmp_path_factory.mktemp("home")


class Terminal:
    """A terminal of that user in a folder."""

    def __init__(self, folder: Path, programs: Path, home: Path) -> None:
        self.folder = folder
        self._environment = {
            "HOME": str(home),
            "PATH": os.pathsep.join([str(programs), os.defpath]),
            **{name: value for name, value in os.environ.items() if name in ("JAVA_HOME", "LANG", "TMPDIR")},
        }
        java = shutil.which("java")
        if java is not None:
            self._environment["PATH"] += os.pathsep + str(Path(java).parent)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**self._environment, **variables}
        return leash.run(self._located(command), timeout_s=DEADLINE_S, cwd=self.folder, env=environment)

    def out(self, *command: str, **variables: str) -> str:
        ended = self.run(*command, **variables)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """A program that runs until the block ends; then it gets Ctrl-C, and leaves no process behind."""
        output = self.folder / f"{command[-1]}.out"
        with output.open("w") as file:
            process: subprocess.Popen[str] = leash.start(
                self._located(command),
                cwd=self.folder,
                env=self._environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        try:
            yield process
            assert process.poll() is None, output.read_text()
            os.killpg(process.pid, signal.SIGINT)
            process.wait(DEADLINE_S)
            eventually(lambda: process.pid not in leash.running_sessions(), f"{command} has left nothing behind")
        finally:
            leash.end(process)

    def _located(self, command: Sequence[str]) -> list[str]:
        program = shutil.which(command[0], path=self._environment["PATH"])
        assert program is not None
        return [program, *command[1:]]


@pytest.fixture
def terminal(tmp_path: Path, programs: Path, home: Path) -> Terminal:
    return Terminal(tmp_path, programs, home)


def figures(shown: str) -> dict[str, int]:
    """The counts of the orders that quickstart shows."""
    table = shown.partition("ORDERS")[2].partition("MEMBER")[0]
    return {name.strip(): int(count) for name, count in re.findall(r"^(.*?\S) +(\d+) *$", table, re.MULTILINE)}


def members(shown: str) -> set[str]:
    return set(re.findall(r"^(python-1|python-2|spark) ", shown.partition("MEMBER")[2], re.MULTILINE))


def lag(terminal: Terminal) -> int | None:
    """The records of the only group that are not finished; None before there is one."""
    groups = json.loads(terminal.out("sharegroup", "groups", "list", "--output", "json"))
    return groups[0]["lag"] if groups else None


def test_quickstart_from_an_empty_cache_then_again_and_then_offline(terminal: Terminal, home: Path) -> None:
    shown = terminal.out("sharegroup", "quickstart")
    assert str(terminal.folder / "sharegroup-quickstart") in shown
    assert members(shown) == {"python-1", "python-2", "spark"}
    counts = figures(shown)
    assert counts["accepted"] == 270
    assert counts["not handled yet"] == counts["findings of audit verify"] == 0
    assert {path.name for path in terminal.folder.iterdir()} == {"sharegroup-quickstart"}
    assert {path.name for path in home.iterdir()} == {".cache"}

    again = terminal.out("sharegroup", "quickstart")
    assert "There was a quickstart before" in again
    assert figures(again) == counts

    offline = terminal.out("sharegroup", "quickstart", "--folder", "offline", **NO_NETWORK)
    assert figures(offline) == counts
    assert members(offline) == members(shown)

    # What it prints as the next step.
    steps = re.findall(r"^  (cd .*|echo .*|sharegroup (?:topics|groups|audit) .*)$", shown, re.MULTILINE)
    assert [step.split()[0] for step in steps] == ["cd", "sharegroup", "echo", "sharegroup", "sharegroup"]
    assert "orders" in terminal.out("sh", "-c", " && ".join(steps))


def test_an_older_pyspark_gets_jars_of_its_version(wheel: Path, tmp_path: Path, home: Path) -> None:
    terminal = Terminal(tmp_path, installed(wheel, tmp_path / "environment", "pyspark==4.0.*"), home)
    shown = terminal.out("sharegroup", "quickstart")
    assert members(shown) == {"python-1", "python-2", "spark"}
    counts = figures(shown)
    assert counts["accepted"] == 270
    assert counts["not handled yet"] == counts["findings of audit verify"] == 0


def test_without_java_the_first_part_runs(terminal: Terminal) -> None:
    shown = terminal.out("sharegroup", "quickstart", JAVA_HOME=str(terminal.folder))
    assert "Left out: Java is missing" in shown
    assert members(shown) == {"python-1", "python-2"}
    assert figures(shown)["not handled yet"] > 0


def test_ctrl_c_leaves_nothing_behind(terminal: Terminal) -> None:
    log = terminal.folder / "quickstart.out"
    with terminal.running("sharegroup", "quickstart") as process:
        eventually(lambda: "3. spark" in log.read_text(), "the part in Spark has begun")
    assert process.returncode == 128 + signal.SIGINT


def test_the_programs_of_the_readme_run(terminal: Terminal) -> None:
    for name, program in EXAMPLES.items():
        (terminal.folder / name).write_text(program, encoding="utf-8")
    terminal.out(*COMMANDS["init"])
    with terminal.running(*COMMANDS["processor"]) as processor:
        eventually(lambda: terminal.run("sharegroup", "topics", "list").stdout, "the processor has made its topics")
        terminal.out("python", "produce.py")
        with terminal.running(*COMMANDS["stream.py"]):
            eventually(lambda: lag(terminal) == 0, "the stream has finished all records", pause_s=1)
        terminal.out("python", "produce.py")
        with terminal.running("python", "consumer.py"):
            eventually(lambda: lag(terminal) == 0, "the consumer has finished all records", pause_s=1)
        terminal.out("python", "produce.py")
        terminal.out(*COMMANDS["worker"], "--once")
        assert lag(terminal) == 0
    assert processor.returncode == ExitCode.OK
    assert "0 findings" in terminal.out("sharegroup", "audit", "verify")
