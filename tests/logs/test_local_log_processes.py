"""The local log under many processes, and under processes that die."""

from __future__ import annotations

import itertools
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from sharegroup.errors import LogUnavailableError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord

pytestmark = pytest.mark.slow

SPAWN = multiprocessing.get_context("spawn")

PRODUCER_COUNT = 4
BATCHES_PER_PRODUCER = 200
BATCH_RECORDS = 3


def _produce(path: Path, producer: int, start: Barrier) -> None:
    start.wait()
    with LocalLog(path) as log:
        log.create_topic("events", 1, if_not_exists=True)
        for batch in range(BATCHES_PER_PRODUCER):
            records = [NewRecord(b"%d" % producer, b"%d" % (batch * BATCH_RECORDS + i)) for i in range(BATCH_RECORDS)]
            log.append("events", 0, records)


def test_processes_create_and_append_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    start = SPAWN.Barrier(PRODUCER_COUNT)
    producers = [SPAWN.Process(target=_produce, args=(path, producer, start)) for producer in range(PRODUCER_COUNT)]
    for process in producers:
        process.start()
    for process in producers:
        process.join()
    assert [process.exitcode for process in producers] == [0] * PRODUCER_COUNT

    total = PRODUCER_COUNT * BATCHES_PER_PRODUCER * BATCH_RECORDS
    with LocalLog(path) as log:
        records = log.read("events", 0, 0, 2 * total)
    assert [record.offset for record in records] == list(range(total))
    for producer in range(PRODUCER_COUNT):
        own = [record for record in records if record.key == b"%d" % producer]
        assert [record.value for record in own] == [b"%d" % i for i in range(BATCHES_PER_PRODUCER * BATCH_RECORDS)]
        firsts = own[::BATCH_RECORDS]
        assert [record.offset for record in own] == [
            first.offset + i for first in firsts for i in range(BATCH_RECORDS)
        ], "a batch was torn apart"


def _append_until_killed(path: Path, acknowledgements: Connection) -> None:
    with LocalLog(path) as log:
        for _ in itertools.count():
            first = log.offsets("events")[0].end_offset
            log.append("events", 0, [NewRecord(None, b"%d" % (first + i)) for i in range(50)])
            acknowledgements.send(first)


@pytest.mark.parametrize("acknowledged_before_kill", [1, 7, 40])
def test_a_killed_process_leaves_whole_batches(tmp_path: Path, acknowledged_before_kill: int) -> None:
    path = tmp_path / "events.log"
    with LocalLog(path) as log:
        log.create_topic("events", 1)
    for _ in range(2):
        receiver, sender = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=_append_until_killed, args=(path, sender))
        process.start()
        sender.close()
        acknowledged = [receiver.recv() for _ in range(acknowledged_before_kill)]
        process.kill()
        process.join()
        acknowledged += _drain(receiver)

        with LocalLog(path) as log:
            end = log.offsets("events")[0].end_offset
            stored = log.read("events", 0, 0, end)
        assert [record.offset for record in stored] == list(range(end))
        assert [record.value for record in stored] == [b"%d" % offset for offset in range(end)]
        assert end - acknowledged[-1] in (50, 100), "only the batch after the last acknowledged one is in doubt"


def _drain(receiver: Connection) -> list[int]:
    drained = []
    try:
        while True:
            drained.append(receiver.recv())
    except (EOFError, OSError):
        return drained


def _append_beyond_a_file_size_limit(path: Path) -> tuple[str, int, int]:
    with LocalLog(path) as log:
        log.create_topic("events", 1)
        _, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard_limit))
        try:
            log.append("events", 0, [NewRecord(None, b"v" * 1_000)] * 10_000)
            refusal = ""
        except LogUnavailableError as error:
            refusal = str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
        first_offset = log.append("events", 0, [NewRecord(None, b"after")])
        return refusal, first_offset, len(log.read("events", 0, 0, 20_000))


def test_a_file_that_cannot_grow_takes_nothing_and_recovers(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        outcome = pool.submit(_append_beyond_a_file_size_limit, tmp_path / "events.log").result()
    refusal, first_offset, record_count = outcome
    assert "cannot be read or written" in refusal
    assert (first_offset, record_count) == (0, 1)
