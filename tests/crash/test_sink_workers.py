"""Spark workers with sinks that are killed: no result is lost or twice, and records are accepted exactly if it is."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.audit.verification.verify import verify
from sharegroup.core.record_state import Cause, RecordState
from tests.crash.sink_worker_process import BAD
from tests.support import leash
from tests.support.site import BROKER, Site

KILLS = 8
RECORDS = 400
PARTITIONS = 2

OffsetKey = tuple[int, int]
_SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("size", pa.int32())])


class Worker:
    """A worker that is started again and again; two of one machine write a table each."""

    def __init__(self, site: Site, group_id: str, topic: str, name: str) -> None:
        self.table = str(site.folder / name)
        write_deltalake(self.table, _SCHEMA.empty_table())
        self._arguments = [str(site.log_path), group_id, topic, self.table]
        self._output = site.folder / f"{name}.log"
        self.start()

    def start(self) -> None:
        with self._output.open("ab") as output:
            command = [sys.executable, "-m", "tests.crash.sink_worker_process", *self._arguments, "max.poll.records=50"]
            self._process = leash.start(command, stdout=output, stderr=output)

    def kill(self, *, spares_jvm: bool) -> None:
        """Kill the worker; without its program the JVM ends by itself, and may still commit meanwhile."""
        if spares_jvm:
            self._process.kill()
            self._process.wait()
        else:
            leash.end(self._process)
        self.start()

    def pause(self, *, resumes: bool) -> None:
        os.killpg(self._process.pid, signal.SIGCONT if resumes else signal.SIGSTOP)

    @property
    def rows(self) -> Counter[OffsetKey]:
        table = DeltaTable(self.table).to_pyarrow_table(columns=["partition", "offset"])
        return Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))

    @property
    def version(self) -> int:
        return int(DeltaTable(self.table).version())

    def end(self) -> None:
        leash.end(self._process)

    def check_running(self) -> None:
        assert self._process.poll() is None, self._output.read_text()[-5_000:]


@pytest.mark.long("two Spark applications that are killed and paused again and again")
def test_killed_and_paused_workers_write_each_result_once(tmp_path: Path) -> None:
    chance = random.Random(39)
    site = Site(tmp_path)
    topic = site.new_topic(partition_count=PARTITIONS)
    ledger: Counter[OffsetKey] = Counter()
    try:
        site.start()
        group_id = site.new_group(
            share_exactly_once_enable="true",
            share_record_lock_duration_ms="2000",
            share_delivery_count_limit="10",
        )
        workers = [Worker(site, group_id, topic, name) for name in ("left", "right")]
        for number in range(KILLS):
            # 1. Some records, and a worker that is at work with them.
            for partition in range(PARTITIONS):
                end = site.log.offsets(topic)[partition].end_offset
                ledger.update((partition, offset) for offset in range(end, end + RECORDS // KILLS))
                site.produce(topic, partition, RECORDS // KILLS)
            worker, version = workers[number % 2], workers[number % 2].version

            def has_committed(worker: Worker = worker, version: int = version) -> bool | None:
                for each in workers:
                    each.check_running()
                return worker.version > version or None

            site.until(has_committed, "the worker writes")
            # 2. It is lost at a random moment, or sleeps for longer than its locks last.
            go_on_for(chance.random())
            if number % 4 == 3:
                worker.pause(resumes=False)
                go_on_for(3.0)
                worker.pause(resumes=True)
            else:
                worker.kill(spares_jvm=number % 4 == 1)
        site.until(lambda: site.is_drained(group_id, topic) or None, "the group is done")
        for worker in workers:
            worker.end()
        # 3. The ledger decides, which was never near a worker.
        good = Counter({key: count for key, count in ledger.items() if key[1] % 50 != BAD})
        assert sum((worker.rows for worker in workers), Counter()) == good == accepted(site, group_id)
        folded = site.folded(group_id)
        states = {run.state for each in folded.partitions.values() for run in each.share_partition.runs}
        assert RecordState.RESOLVING not in states
        assert verify(site.rows(), BROKER).findings == []
    finally:
        for worker in workers:
            worker.end()
        site.close()


def accepted(site: Site, group_id: str) -> Counter[OffsetKey]:
    return Counter(
        (row.partition, offset)
        for row in site.rows(group_id)
        for entry in row.transitions
        if entry.cause is Cause.ACCEPT
        for offset in range(entry.first_offset, entry.last_offset + 1)
    )


def go_on_for(seconds: float) -> None:
    """Let the workers go on for a while: the moment of a kill is random."""
    threading.Event().wait(seconds)
