"""Processes of a benchmark: they end with it; CPU time and memory of a session, read from /proc."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command's name.
_SESSION, _CPU_TICKS = 3, slice(11, 13)


def die_with_parent() -> None:
    """Let this process end with its parent: a benchmark that is killed leaves none behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def session_pids(session: int) -> list[int]:
    """The processes of a session: the one that started it, and those that it started."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _stat(path)[_SESSION] == session]


def cpu_by_pid_s(pids: list[int]) -> dict[int, float]:
    """CPU time that each process has used, user and system, without that of its ended children."""
    return {pid: sum(_stat(Path(f"/proc/{pid}/stat"))[_CPU_TICKS]) / _TICKS_PER_S for pid in pids}


def used_s(before: dict[int, float], after: dict[int, float]) -> float:
    """CPU time between two measurements; what a process used that ended meanwhile is not in it."""
    return sum(cpu - before.get(pid, 0.0) for pid, cpu in after.items())


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process: its own memory, and its part of what it shares; 0 when it has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1_024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _stat(path: Path) -> list[int]:
    try:
        # The name is in parentheses and may have spaces; the state, the first field after it, is a letter.
        fields = path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return [0] * 50
    return [0, *(int(value) for value in fields[1:])]
