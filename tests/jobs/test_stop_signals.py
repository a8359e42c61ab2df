"""The first signal asks, the second one ends; a signal that reaches several processes of a program counts once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.eventually import DEADLINE_S

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, threading
from sharegroup.program import StopSignals

signals = StopSignals()
print("listening", flush=True)
signals.requested.wait()
print(signals.signal_name, flush=True)
for line in sys.stdin:
    signals.receive(line.strip(), 2)
    print("received", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert next_line(process) == "listening"
        yield process
        process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], listener: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{listener}\n")
    process.stdin.flush()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_program_at_once(program: subprocess.Popen[str], number: signal.Signals) -> None:
    program.send_signal(number)
    assert next_line(program) == number.name
    program.send_signal(number)
    assert program.wait(DEADLINE_S) == 128 + number


def test_one_signal_to_python_and_jvm_counts_once(program: subprocess.Popen[str]) -> None:
    program.send_signal(signal.SIGTERM)
    assert next_line(program) == "SIGTERM"
    tell(program, "jvm")
    assert next_line(program) == "received"
    tell(program, "jvm")
    assert program.wait(DEADLINE_S) == 128 + signal.SIGINT
