"""A folder with a log, a state table and a configuration file, and the command line in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sharegroup.cli.flags import DEFAULT_CONFIG
from sharegroup.client.admin import AdminClient
from sharegroup.logs.local import LocalLog
from sharegroup.programs.main import program
from tests.client.processor_peer import ProcessorPeer

CONFIG = """
log.path: events.log
state.table.path: state
checkpoint.path: checkpoint
broker:
  group.share.assignment.interval.ms: 0
  group.share.min.record.lock.duration.ms: 1000
"""


@dataclass(frozen=True)
class CommandLine:
    """The command line in a folder of its own.

    Attributes:
        folder: the working folder of all commands.
    """

    folder: Path

    def run(self, *arguments: str, stdin: str | bytes = "", columns: int | None = None) -> Result:
        """Return the output of a command and its exit code; an exception that it lets out is raised."""
        environment = {"COLUMNS": str(columns)} if columns else {}
        return CliRunner().invoke(program, arguments, input=stdin, env=environment, catch_exceptions=False)

    def out(self, *arguments: str, stdin: str | bytes = "", columns: int | None = None) -> str:
        """The standard output of a command that must succeed."""
        result = self.run(*arguments, stdin=stdin, columns=columns)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        """The JSON document of a command that must succeed."""
        return json.loads(self.out(*arguments, "--output", "json"))

    def error(self, *arguments: str, exit_code: int = 1, stdin: str | bytes = "") -> str:
        """The standard error of a command that must fail like this."""
        result = self.run(*arguments, stdin=stdin)
        assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
        return result.stderr

    def open_log(self) -> LocalLog:
        """The log of the folder."""
        return LocalLog(self.folder / "events.log")


def rows(text: str) -> list[list[str]]:
    """The cells of a table."""
    return [line.split() for line in text.splitlines()]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line where nothing is yet but the configuration."""
    (tmp_path / DEFAULT_CONFIG).write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(tmp_path)


@pytest.fixture
def log(cli: CommandLine) -> Iterator[LocalLog]:
    """The log that the commands use."""
    with cli.open_log() as log:
        yield log


@pytest.fixture
def processor(cli: CommandLine, log: LocalLog) -> Iterator[ProcessorPeer]:
    """A processor on that log, which keeps the state table."""
    with ProcessorPeer(log, table_path=str(cli.folder / "state")) as processor:
        yield processor


@pytest.fixture
def admin(log: LocalLog, processor: ProcessorPeer) -> AdminClient:
    """An administrator of its groups."""
    return AdminClient(log)
