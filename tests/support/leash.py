"""Processes that end with the test run, however it ends: `kill -9` of pytest leaves none of them behind.

Each is the leader of a session of its own, so that its process group has all that it starts. The first start of a
run starts a warden, too: a process that reads from a pipe which only the run holds. When the pipe ends, the run is
over, and the warden kills the groups that are left.

Run as `python -m tests.support.leash`, it is the warden.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).resolve().parents[2]
_lock = threading.Lock()
_warden: subprocess.Popen[str] | None = None


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process in a session of its own; `options` are those of `subprocess.Popen`."""
    with _lock:
        pipe = _pipe()
        process = subprocess.Popen(command, start_new_session=True, **options)
        pipe.write(f"{process.pid} {start_time(process.pid)}\n")
        pipe.flush()
    return process


def run(command: Sequence[str], timeout_s: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its output is captured as text, and nothing that it has started is left."""
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    finally:
        end(process)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def running_sessions() -> set[int]:
    """Return the ids of all sessions that have a process; one that ended and was not waited for does not count."""
    sessions = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            sessions.add(int(session))
    return sessions


def start_time(pid: int) -> str:
    """Return when a process began, in ticks since the machine's start; empty when it is gone.

    A process that has another one's id has not its start time.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def guard(lines: IO[str]) -> None:
    """Read ids of process groups and start times of their leaders; kill those that are left when there are no more."""
    leaders = dict(line.split(maxsplit=1) for line in lines if len(line.split()) == 2)
    for pid, time in leaders.items():
        if start_time(int(pid)) in (time.strip(), ""):
            # A group outlives its leader; no other process gets the id of a group that is there.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(pid), signal.SIGKILL)


def _pipe() -> IO[str]:
    global _warden
    if _warden is None or _warden.poll() is not None:
        _warden = subprocess.Popen(
            [sys.executable, "-m", "tests.support.leash"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert _warden.stdin is not None
    return _warden.stdin


if __name__ == "__main__":
    guard(sys.stdin)
