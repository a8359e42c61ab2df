"""Wrong flags and configuration: one clear line and exit code 2, before Spark starts."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs import replay_audit
from jobs.live_audit import live_audit
from sharegroup.exit_code import MEANINGS, ExitCode
from sharegroup.programs.processor import processor
from sharegroup.programs.worker import worker
from tests.conftest import ROOT

Main = Callable[[list[str]], object]

CONFIG = str(ROOT / "conf" / "local.yaml")
PROCESSOR = processor
WORKER = worker
AUDIT = replay_audit.main
AUDITOR = live_audit
MEMBER = ("--group", "orders", "--topic", "orders")


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give back what a program changes for its whole process: the log, and where it looks for handlers."""
    root = logging.getLogger()
    handlers, level, path = list(root.handlers), root.level, list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield
    root.handlers[:], sys.path[:] = handlers, path
    root.setLevel(level)
    logging.captureWarnings(False)


def run(main: Main, *flags: str) -> int:
    """Run a program and return its exit code."""
    try:
        code = main(list(flags))
    except SystemExit as end:
        code = end.code or 0
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("main", "flags", "complaint"),
    [
        (PROCESSOR, [], "sharegroup init"),
        (PROCESSOR, ["--config", "missing.yaml"], "missing.yaml"),
        (PROCESSOR, ["--config", CONFIG, "--set", "batch.duration=1"], "Did you mean batch.duration.ms?"),
        (PROCESSOR, ["--config", CONFIG, "--set", "max.requests.per.cut=0"], "at least 1"),
        (PROCESSOR, ["--config", CONFIG, "--set", "checkpoint.path=s3a://b/c"], "checkpoint.path"),
        (PROCESSOR, ["--config", CONFIG, "--standby", "--once"], "--once"),
        (AUDITOR, ["--config", CONFIG], "--output"),
        (AUDITOR, ["--config", CONFIG, "--output", "audit", "--set", "no.such.key=1"], "no.such.key"),
        (WORKER, ["--config", CONFIG, *MEMBER], "MODULE:FUNCTION"),
        (WORKER, ["--config", CONFIG, "--topic", "orders", "handlers:work"], "group.id"),
        (WORKER, ["--config", CONFIG, "--group", "orders", "handlers:work"], "topics"),
        (WORKER, ["--config", CONFIG, *MEMBER, "handlers"], "package.module:function"),
        (WORKER, ["--config", CONFIG, *MEMBER, "nowhere:work"], "No module named 'nowhere'"),
        (AUDIT, ["stat"], "No such command 'stat'"),
        (AUDIT, ["stats", "--config", "missing.yaml"], "missing.yaml"),
        (AUDIT, ["stats", "--config", CONFIG, "--top", "0"], "--top"),
        (AUDIT, ["diff", "--config", CONFIG], "--from"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], main: Main, flags: list[str], complaint: str
) -> None:
    (tmp_path / "handlers.py").write_text("def work(records): ...\n")
    before = signal.getsignal(signal.SIGTERM)
    assert run(main, *flags) == ExitCode.USAGE
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "build").exists()
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_auditor_gives_up_where_no_processor_has_made_a_state_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(AUDITOR, "--config", CONFIG, "--output", "audit", "--wait", "0") == ExitCode.FAILED
    assert f"There is no state table at {Path('build/local/state').absolute()}." in capsys.readouterr().err


@pytest.mark.parametrize("main", [PROCESSOR, WORKER, AUDIT, AUDITOR])
def test_help_names_every_exit_code(capsys: pytest.CaptureFixture[str], main: Main) -> None:
    assert run(main, "--help") == ExitCode.OK
    text = " ".join(capsys.readouterr().out.split())
    assert [code for code, meaning in MEANINGS.items() if f"{code.value} {meaning}" not in text] == []


def test_help_of_the_processor_explains_an_older_state(capsys: pytest.CaptureFixture[str]) -> None:
    run(PROCESSOR, "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "--accept-older-state Start although the state table is an older copy than the request log" in text
    assert "--standby Stand by while another processor works" in text


def test_an_audit_without_a_table_fails_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(AUDIT, "stats", "--config", CONFIG, "--state-table", "none") == ExitCode.FAILED
    assert f"There is no state table at {Path('none').absolute()}" in capsys.readouterr().err
