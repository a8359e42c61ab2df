"""A process that writes the state table, for the tests that need several of them or kill one.

Run as `python -m tests.state.processor_process PATH BEHAVIOUR`:

    take-turns     opens, appends until fenced, and again; prints what it committed
    append         appends until killed; prints each batch once it is committed
    limited-files  appends while files may not grow, and once more when they may; prints the error

Each prints `ready` first, then waits for a line.
"""

from __future__ import annotations

import json
import resource
import sys
from itertools import count

from sharegroup.errors import FencedProcessorError, StateTableError
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import keep_up
from tests.state.state_rows import batch_rows

TURNS = 3
APPENDS_A_TURN = 25


def take_turns(path: str) -> None:
    committed = []
    for _ in range(TURNS):
        writer = StateTableWriter.open(path, {})
        try:
            for commit_id in range(APPENDS_A_TURN):
                writer.append(batch_rows(commit_id), commit_id)
                committed.append([writer.leader_epoch, commit_id])
        except FencedProcessorError:
            continue
    print(json.dumps(committed), flush=True)


def append(path: str) -> None:
    writer = StateTableWriter.open(path, {})
    for commit_id in count():
        writer.append(batch_rows(commit_id), commit_id)
        print(commit_id, flush=True)
        if commit_id % 7 == 6:
            keep_up(path)


def limited_files(path: str) -> None:
    writer = StateTableWriter.open(path, {}, commit_timeout_ms=100)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, unlimited[1]))
    try:
        writer.append(batch_rows(0), 0)
    except StateTableError as error:
        message = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    writer.append(batch_rows(1), 1)
    print(message, flush=True)


if __name__ == "__main__":
    _, table_path, behaviour = sys.argv
    print("ready", flush=True)
    sys.stdin.readline()
    {"take-turns": take_turns, "append": append, "limited-files": limited_files}[behaviour](table_path)
