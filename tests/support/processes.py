"""The processes of this machine, as /proc shows them, and forks of this one."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from tests.support.eventually import DEADLINE_S

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def children(parent: int, program: str) -> list[int]:
    """Return the running processes that a process has started with this in their command line."""
    return [
        pid
        for pid, (state, its_parent, _) in _stats().items()
        if its_parent == parent and state != "Z" and program in command_line(pid)
    ]


def is_running(pid: int) -> bool:
    """Return True if a process has not ended."""
    return _stats().get(pid, ("Z", 0, 0))[0] != "Z"


def session_of(pid: int) -> int:
    """Return the id of a process's session."""
    return _stats()[pid][2]


def command_line(pid: int) -> str:
    """Return the arguments of a process; empty when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process lead to."""
    files = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files.append(str(descriptor.readlink()))
    return sorted(files)


def in_fork(use: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Return what a function returns in a fork of this process."""
    fork = multiprocessing.get_context("fork")
    result: SimpleQueue[T] = fork.SimpleQueue()
    child = fork.Process(target=_put, args=(result, use, arguments))
    child.start()
    child.join(DEADLINE_S)
    assert child.exitcode == 0
    return result.get()


def _put(result: SimpleQueue[T], use: Callable[[*Ts], T], arguments: tuple[*Ts]) -> None:
    # What libraries have in threads, which a fork lacks, is not to be collected here: some crash.
    gc.disable()
    result.put(use(*arguments))


def _stats() -> dict[int, tuple[str, int, int]]:
    """Return process → its state, its parent and its session."""
    stats: dict[int, tuple[str, int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            stats[int(stat.parent.name)] = state, int(parent), int(session)
    return stats
