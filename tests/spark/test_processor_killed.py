"""SIGKILL of a whole processor, Python and JVM, while members work: nothing is lost, and the table stands the audit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sharegroup.audit.history import group_history
from sharegroup.audit.verify import verify
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.rows import RecordType
from tests.conftest import ROOT
from tests.spark.site import BROKER, Site
from tests.support.eventually import eventually

RECORDS = 800


@contextmanager
def processor_process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A processor in its own process group; killed with all that it started, if it still runs at the end."""
    command = [sys.executable, "-m", "tests.spark.processor_process", str(folder)]
    with (folder / "processor.log").open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Worker(threading.Thread):
    """A consumer that accepts everything, until told to stop."""

    def __init__(self, site: Site, group_id: str, topic: str, over: threading.Event) -> None:
        super().__init__()
        self.processed: Counter[tuple[int | None, int | None]] = Counter()
        self._consumer = site.consumer(group_id, topic, max_poll_records=20)
        self._over = over

    def run(self) -> None:
        with self._consumer as consumer:
            while not self._over.is_set():
                for message in consumer.poll(timeout=0.2):
                    self.processed[message.partition(), message.offset()] += 1
            consumer.commit_sync()


@pytest.mark.spark
@pytest.mark.slow
def test_nothing_is_lost_when_a_processor_is_killed(tmp_path: Path) -> None:
    site = Site(None, tmp_path)
    topic = site.new_topic(partition_count=2, record_count=RECORDS // 2)
    over = threading.Event()
    workers: list[Worker] = []
    try:
        with processor_process(tmp_path) as process:
            eventually(site.reader.exists, "the processor runs", 120)
            eventually(lambda: site.rows(None, RecordType.FENCE), "the processor has its fence", 60)
            group_id = site.new_group(share_record_lock_duration_ms="5000")
            workers = [Worker(site, group_id, topic, over) for _ in range(2)]
            for worker in workers:
                worker.start()
            eventually(lambda: accepted_count(site, group_id) > RECORDS // 10, "members work", 60)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        committed = site.rows()
        assert 0 < accepted_count(site, group_id) < RECORDS
        with processor_process(tmp_path):
            eventually(lambda: site.is_drained(group_id, topic), "everything is done", 180)
            over.set()
            for worker in workers:
                worker.join(60)
    finally:
        over.set()
        for worker in workers:
            worker.join(90)
        site.close()
    assert [row for row in site.rows() if row.leader_epoch == 1] == committed
    processed = sum((worker.processed for worker in workers), Counter[tuple[int | None, int | None]]())
    assert set(processed) == {(partition, offset) for partition in range(2) for offset in range(RECORDS // 2)}
    history = group_history(group_id, site.rows())
    assert history.count(RecordState.ACKNOWLEDGED) == RECORDS
    assert history.record_count(Cause.ACCEPT) == RECORDS
    verification = verify(site.rows(), BROKER)
    assert verification.findings == []


def accepted_count(site: Site, group_id: str) -> int:
    return group_history(group_id, site.rows(group_id)).record_count(Cause.ACCEPT)
